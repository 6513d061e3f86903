# SPDX-License-Identifier: Apache-2.0
"""The private way from Grafana to Pyroscope."""

import pulumi

from components.cluster import Cluster
from components.config import StackConfig
from components.grafana import Grafana
from components.grafana_access import GrafanaAccess
from components.private_link import PrivateLink, PrivateLinkArgs, private_link_service_id
from components.pyroscope import PORT, Pyroscope

from .place import Place


def private_link(
    config: StackConfig,
    place: Place,
    cluster: Cluster,
    pyroscope: Pyroscope,
    grafana: Grafana,
    access: GrafanaAccess | None,
) -> PrivateLink:
    return PrivateLink(
        "private-link",
        PrivateLinkArgs(
            endpoint_name=config.private_link.endpoint_name,
            domain=config.private_link.domain,
            grafana_name=grafana.workspace_name,
            grafana_resource_group_name=grafana.resource_group_name,
            grafana_location=grafana.location,
            service_id=private_link_service(config, place),
            service_location=cluster.location,
            request_message="gpuheap "
            f"{config.resource_group}/{grafana.workspace_name}/{config.private_link.endpoint_name}",
            depends_on=[pyroscope.service, *grafana.roles, *(access.ready[:1] if access else ())],
        ),
    )


def private_link_service(config: StackConfig, place: Place) -> pulumi.Output[str]:
    return place.subscription_id.apply(
        lambda subscription: private_link_service_id(
            subscription, config.resource_group, service_name(config)
        )
    )


def pyroscope_url(config: StackConfig) -> str:
    """Pyroscope as Grafana sees it."""
    return f"http://{config.private_link.domain}:{PORT}"


def service_name(config: StackConfig) -> str:
    """The Private Link Service's name."""
    return f"{config.name}-pyroscope"

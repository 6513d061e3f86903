# SPDX-License-Identifier: Apache-2.0
"""The Grafana workspace, and what it shows."""

import json
from pathlib import Path
from typing import Final

import pulumi

from components.cluster import Cluster
from components.config import StackConfig
from components.grafana import Grafana, GrafanaArgs, GrafanaContent, GrafanaContentArgs, Published
from components.grafana_access import GrafanaAccess, GrafanaAccessArgs, OwnSubnet
from components.metrics_pipeline import MetricsPipeline
from components.private_link import PrivateLink
from components.settings.grafana import ExistingGrafana
from components.settings.network import Network as NetworkRanges

from .place import Place
from .private_link import pyroscope_url

DASHBOARD: Final = Path(__file__).parents[2] / "dashboards" / "gpu_memory.json"


def grafana(config: StackConfig, place: Place, metrics: MetricsPipeline) -> Grafana:
    chosen = config.grafana
    group: pulumi.Input[str]
    if isinstance(chosen, ExistingGrafana):
        name, group, version = chosen.existing.name, chosen.existing.resource_group, None
    else:
        name, group, version = chosen.name, place.resource_group.name, chosen.major_version
    administrator = chosen.administrator
    return Grafana(
        "grafana",
        GrafanaArgs(
            workspace_name=name,
            resource_group_name=group,
            existing=isinstance(chosen, ExistingGrafana),
            location=config.location,
            major_version=version,
            public=True if isinstance(chosen, ExistingGrafana) else chosen.public_access,
            subscription_id=place.subscription_id,
            stack=config.name,
            metrics_workspace_id=metrics.workspace.id,
            administrator_id=administrator.object_id if administrator else place.deployer_id,
            administrator_type=administrator.principal_type if administrator else place.deployer_type,
            tags=config.tags,
        ),
    )


def grafana_access(
    config: StackConfig, place: Place, cluster: Cluster, grafana: Grafana
) -> GrafanaAccess | None:
    """The workspace's own private endpoint, where one is asked for."""
    wanted = config.grafana.private_access
    if wanted is None:
        return None
    if wanted.subnet_id is not None:
        subnet: OwnSubnet | str = wanted.subnet_id
    else:
        ranges = config.network or NetworkRanges()
        assert isinstance(ranges, NetworkRanges), "the configuration has checked it"
        subnet = OwnSubnet(network_name=config.name, address_range=ranges.private_endpoint_range)
    return GrafanaAccess(
        "grafana-access",
        GrafanaAccessArgs(
            stack=config.name,
            resource_group_name=place.resource_group.name,
            workspace_id=grafana.id,
            subnet=subnet,
            location=wanted.location or cluster.location,
            dns_zone=wanted.dns_zone,
            networks=wanted.networks,
            depends_on=[*cluster.ready, *grafana.roles],
            tags=config.tags,
        ),
    )


def grafana_content(
    config: StackConfig,
    metrics: MetricsPipeline,
    grafana: Grafana,
    private_link: PrivateLink,
    access: GrafanaAccess | None,
) -> GrafanaContent:
    published = config.grafana.published_dashboard
    return GrafanaContent(
        "grafana-content",
        GrafanaContentArgs(
            endpoint=grafana.endpoint,
            private=grafana.private,
            goes_with=grafana.workspace if grafana.private is True else None,
            pyroscope_url=pyroscope_url(config),
            prometheus_url=metrics.query_endpoint,
            dashboard=json.loads(DASHBOARD.read_text()),
            folder_title=config.grafana.folder.title,
            folder_permissions=config.grafana.folder.permissions,
            published=Published(url=published.url, sha256=published.sha256) if published else None,
            depends_on=[*grafana.roles, private_link.approval, *(access.ready if access else ())],
        ),
    )

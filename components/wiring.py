# SPDX-License-Identifier: Apache-2.0
"""Gives each component its values: from the configuration, and from the components before it.

One function a part, in the order of `__main__.py`. No decisions but those between new and existing.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pulumi
from pulumi_azure_native import authorization, resources

from .agent_image import AgentImage, AgentImageArgs, source_tag
from .cluster import GPU_NODE_LABELS, Cluster, ExistingClusterArgs, GpuPool, GpuPoolArgs, NewClusterArgs
from .config import StackConfig
from .config_parts import AgentBuild, ExistingGrafana, NewCluster
from .config_parts import Network as NetworkRanges
from .grafana import Grafana, GrafanaArgs, GrafanaContent, GrafanaContentArgs
from .inspektor_gadget import GADGET_NAMESPACE, InspektorGadget, InspektorGadgetArgs
from .metrics_pipeline import MetricsPipeline, MetricsPipelineArgs, scrape_annotated_pods
from .network import Network, NetworkArgs
from .private_link import PrivateLink, PrivateLinkArgs, private_link_service_id
from .profiler_agent import NAMESPACE as AGENT_NAMESPACE
from .profiler_agent import ProfilerAgent, ProfilerAgentArgs
from .pyroscope import PORT, Pyroscope, PyroscopeArgs
from .roles import ACR_PULL, AZURE_CLI_APPLICATION, assign

DASHBOARD: Final = Path(__file__).parent.parent / "dashboards" / "gpu_memory.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where everything of ours goes, and who puts it there."""

    resource_group_name: str
    resource_group: resources.ResourceGroup
    subscription_id: pulumi.Output[str]
    deployer_id: pulumi.Output[str]
    deployer_type: pulumi.Output[str]


def place(config: StackConfig) -> Place:
    deployer = authorization.get_client_config_output()
    return Place(
        resource_group_name=config.resource_group,
        resource_group=resources.ResourceGroup(
            "resource-group",
            resource_group_name=config.resource_group,
            location=config.location,
            tags=config.tags,
        ),
        subscription_id=deployer.subscription_id,
        deployer_id=deployer.object_id,
        deployer_type=deployer.client_id.apply(
            lambda application: "User" if application == AZURE_CLI_APPLICATION else "ServicePrincipal"
        ),
    )


def cluster(config: StackConfig, place: Place) -> Cluster:
    if not isinstance(config.cluster, NewCluster):
        return Cluster(
            "cluster",
            ExistingClusterArgs(
                cluster_name=config.cluster.existing.name,
                resource_group_name=config.cluster.existing.resource_group,
                our_resource_group_id=place.resource_group.id,
                subscription_id=place.subscription_id,
                stack=config.name,
            ),
        )
    ranges = config.network or NetworkRanges()
    network = Network(
        "network",
        NetworkArgs(
            resource_group_name=place.resource_group.name,
            location=config.location,
            virtual_network_name=config.name,
            address_space=ranges.address_space,
            node_subnet=ranges.node_subnet,
            private_link_subnet=ranges.private_link_subnet,
            tags=config.tags,
        ),
    )
    return Cluster(
        "cluster",
        NewClusterArgs(
            cluster_name=config.cluster.name,
            resource_group_name=place.resource_group.name,
            resource_group_id=place.resource_group.id,
            subscription_id=place.subscription_id,
            location=config.location,
            stack=config.name,
            node_subnet_id=network.node_subnet_id,
            depends_on=[network.private_link_subnet],
            system_vm_size=config.cluster.system_pool.vm_size,
            system_count=config.cluster.system_pool.count,
            kubernetes_version=config.cluster.kubernetes_version,
            tags=config.tags,
        ),
    )


def gpu_pool(config: StackConfig, cluster: Cluster) -> Sequence[GpuPool]:
    """The pool, or nothing: an existing cluster may have GPU nodes already."""
    if config.gpu_pool is None:
        return []
    pool = GpuPoolArgs(
        pool_name=config.gpu_pool.name,
        cluster_name=cluster.cluster_name,
        cluster_resource_group_name=cluster.resource_group_name,
        vm_size=config.gpu_pool.vm_size,
        count=config.gpu_pool.count,
        node_subnet_id=cluster.node_subnet_id,
        depends_on=cluster.ready,
        tags=config.tags,
    )
    return [GpuPool("gpu-pool", pool)]


def metrics_pipeline(config: StackConfig, place: Place, cluster: Cluster) -> MetricsPipeline:
    pipeline = MetricsPipeline(
        "metrics",
        MetricsPipelineArgs(
            resource_group_name=place.resource_group.name,
            location=config.location,
            workspace_name=config.name,
            cluster_name=cluster.cluster_name,
            cluster_id=cluster.id,
            tags=config.tags,
        ),
    )
    if isinstance(config.cluster, NewCluster):
        # An existing cluster's settings are its owner's: there this one line is theirs to add.
        scrape_annotated_pods(
            "metrics-scrape-settings",
            namespace=AGENT_NAMESPACE,
            opts=pulumi.ResourceOptions(parent=pipeline, provider=cluster.provider),
        )
    return pipeline


def inspektor_gadget(cluster: Cluster, metrics: MetricsPipeline) -> InspektorGadget:
    return InspektorGadget(
        "inspektor-gadget",
        InspektorGadgetArgs(
            cluster_name=cluster.cluster_name,
            cluster_resource_group_name=cluster.resource_group_name,
            depends_on=[*cluster.ready, metrics.association],
        ),
    )


def pyroscope(config: StackConfig, place: Place, cluster: Cluster, gadget: InspektorGadget) -> Pyroscope:
    new = isinstance(config.cluster, NewCluster)
    return Pyroscope(
        "pyroscope",
        PyroscopeArgs(
            chart=config.pyroscope.chart,
            chart_version=config.pyroscope.version,
            disk_gib=config.pyroscope.disk_gib,
            namespace=GADGET_NAMESPACE,
            private_link_service_name=_service_name(config),
            private_link_resource_group_name=place.resource_group_name,
            private_link_subnet_name=Network.PRIVATE_LINK_SUBNET if new else config.private_link.subnet,
            provider=cluster.provider,
            depends_on=[gadget.extension, place.resource_group],
        ),
    )


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
            subscription_id=place.subscription_id,
            stack=config.name,
            metrics_workspace_id=metrics.workspace.id,
            administrator_id=administrator.object_id if administrator else place.deployer_id,
            administrator_type=administrator.principal_type if administrator else place.deployer_type,
            tags=config.tags,
        ),
    )


def private_link(
    config: StackConfig, place: Place, cluster: Cluster, pyroscope: Pyroscope, grafana: Grafana
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
            depends_on=[pyroscope.service, *grafana.roles],
        ),
    )


def private_link_service(config: StackConfig, place: Place) -> pulumi.Output[str]:
    return place.subscription_id.apply(
        lambda subscription: private_link_service_id(
            subscription, config.resource_group, _service_name(config)
        )
    )


def pyroscope_url(config: StackConfig) -> str:
    """Pyroscope as Grafana sees it."""
    return f"http://{config.private_link.domain}:{PORT}"


def grafana_content(
    config: StackConfig, metrics: MetricsPipeline, grafana: Grafana, private_link: PrivateLink
) -> GrafanaContent:
    return GrafanaContent(
        "grafana-content",
        GrafanaContentArgs(
            endpoint=grafana.endpoint,
            pyroscope_url=pyroscope_url(config),
            prometheus_url=metrics.query_endpoint,
            dashboard=json.loads(DASHBOARD.read_text()),
            depends_on=[*grafana.roles, private_link.approval],
        ),
    )


def agent_image(config: StackConfig, place: Place, cluster: Cluster) -> tuple[str, Sequence[pulumi.Resource]]:
    """The image's name, and what must be there before a node can pull it."""
    if not isinstance(config.agent, AgentBuild):
        return config.agent.image, []
    build = config.agent.build
    image = AgentImage("agent-image", AgentImageArgs(registry=build.registry, tag=source_tag()))
    ready: list[pulumi.Resource] = [image]
    if build.registry_id is not None:
        pull = assign(
            "agent-image-pull",
            role=ACR_PULL,
            principal_id=cluster.kubelet_object_id,
            principal_type="ServicePrincipal",
            subscription_id=place.subscription_id,
            scope=build.registry_id,
            stack=config.name,
            opts=pulumi.ResourceOptions(parent=image, delete_before_replace=True),
        )
        ready.append(pull)
    return image.reference, ready


def profiler_agent(
    cluster: Cluster, pyroscope: Pyroscope, image: str, after: Sequence[pulumi.Resource]
) -> ProfilerAgent:
    return ProfilerAgent(
        "profiler-agent",
        ProfilerAgentArgs(
            image=image,
            pyroscope_url=pyroscope.url,
            cluster_name=cluster.cluster_name,
            node_selector=GPU_NODE_LABELS,
            provider=cluster.provider,
            depends_on=[pyroscope.release, *after],
        ),
    )


def _service_name(config: StackConfig) -> str:
    return f"{config.name}-pyroscope"

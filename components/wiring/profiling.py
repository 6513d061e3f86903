# SPDX-License-Identifier: Apache-2.0
"""The profilers on the nodes, and Pyroscope, to which they push."""

from collections.abc import Sequence

import pulumi

from components.agent_image import AgentImage, AgentImageArgs, source_tag
from components.cluster import GPU_NODE_LABELS, Cluster
from components.config import StackConfig
from components.inspektor_gadget import GADGET_NAMESPACE, InspektorGadget, InspektorGadgetArgs
from components.metrics_pipeline import MetricsPipeline
from components.profiler_agent import ProfilerAgent, ProfilerAgentArgs
from components.pyroscope import Pyroscope, PyroscopeArgs
from components.roles import ACR_PULL, assign
from components.settings.agent import AgentBuild

from .cluster import private_link_subnet_name
from .place import Place
from .private_link import service_name


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
    return Pyroscope(
        "pyroscope",
        PyroscopeArgs(
            chart=config.pyroscope.chart,
            chart_version=config.pyroscope.version,
            disk_gib=config.pyroscope.disk_gib,
            namespace=GADGET_NAMESPACE,
            private_link_service_name=service_name(config),
            private_link_resource_group_name=place.resource_group_name,
            private_link_subnet_name=private_link_subnet_name(config),
            provider=cluster.provider,
            depends_on=[gadget.extension, place.resource_group],
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

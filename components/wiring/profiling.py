# SPDX-License-Identifier: Apache-2.0
"""The profilers on the nodes, and Pyroscope, to which they push."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes

from components import pyroscope_values
from components.agent_image import AgentImage, AgentImageArgs, source_tag
from components.cluster import GPU_NODE_LABELS, Cluster
from components.config import StackConfig
from components.inspektor_gadget import GADGET_NAMESPACE, InspektorGadget, InspektorGadgetArgs
from components.metrics_pipeline import MetricsPipeline
from components.profiler_agent import LABELS as AGENT_LABELS
from components.profiler_agent import NAMESPACE as AGENT_NAMESPACE
from components.profiler_agent import ProfilerAgent, ProfilerAgentArgs
from components.pyroscope import Pyroscope, PyroscopeArgs
from components.pyroscope_access import Pods
from components.pyroscope_storage import PyroscopeStorage, PyroscopeStorageArgs
from components.roles import ACR_PULL, assign
from components.settings.agent import AgentBuild

from .cluster import private_link_ranges, private_link_subnet_name
from .place import Place
from .private_link import private_link_service, service_name

PYROSCOPE_NAMESPACE: Final = "pyroscope"
"""Where Pyroscope is without the extension. With it, it must be in the extension's namespace, to which that pushes."""


def inspektor_gadget(
    config: StackConfig, cluster: Cluster, metrics: MetricsPipeline
) -> InspektorGadget | None:
    if "inspektor-gadget" not in config.profilers:
        return None
    return InspektorGadget(
        "inspektor-gadget",
        InspektorGadgetArgs(
            cluster_name=cluster.cluster_name,
            cluster_resource_group_name=cluster.resource_group_name,
            version=config.inspektor_gadget.version,
            settings=config.inspektor_gadget.told(),
            node_selector=config.inspektor_gadget.node_selector,
            environment=config.inspektor_gadget.additional_env,
            provider=cluster.provider,
            depends_on=[*cluster.ready, metrics.association],
        ),
    )


def pyroscope_namespace(config: StackConfig) -> str:
    return GADGET_NAMESPACE if "inspektor-gadget" in config.profilers else PYROSCOPE_NAMESPACE


def pyroscope(
    config: StackConfig, place: Place, cluster: Cluster, gadget: InspektorGadget | None
) -> Pyroscope:
    namespace, wanted = pyroscope_namespace(config), config.pyroscope
    ready: list[pulumi.Resource] = [
        gadget.extension if gadget else _namespace(namespace, cluster),
        place.resource_group,
    ]
    chart: pulumi.Input[Mapping[str, Any]] = pyroscope_values.single(wanted)
    if wanted.size == "microservices":
        storage = _storage(config, place, cluster, namespace)
        chart = storage.client_id.apply(lambda client_id: pyroscope_values.microservices(wanted, client_id))
        ready += storage.ready
    return Pyroscope(
        "pyroscope",
        PyroscopeArgs(
            chart=wanted.chart,
            chart_version=wanted.version,
            size=wanted.size,
            values=chart,
            namespace=namespace,
            profilers=_pushing(config),
            private_link_ranges=private_link_ranges(config, cluster),
            private_link_service_name=service_name(config),
            private_link_service_id=private_link_service(config, place),
            private_link_resource_group_name=place.resource_group_name,
            private_link_subnet_name=private_link_subnet_name(config),
            provider=cluster.provider,
            depends_on=ready,
        ),
    )


def _namespace(name: str, cluster: Cluster) -> kubernetes.core.v1.Namespace:
    return kubernetes.core.v1.Namespace(
        "pyroscope-namespace",
        metadata=kubernetes.meta.v1.ObjectMetaArgs(
            name=name, labels={"pod-security.kubernetes.io/enforce": "baseline"}
        ),
        opts=pulumi.ResourceOptions(provider=cluster.provider, depends_on=cluster.ready),
    )


def _storage(config: StackConfig, place: Place, cluster: Cluster, namespace: str) -> PyroscopeStorage:
    assert config.pyroscope.storage
    return PyroscopeStorage(
        "pyroscope-storage",
        PyroscopeStorageArgs(
            account_name=config.pyroscope.storage.account_name,
            redundancy=config.pyroscope.storage.redundancy,
            resource_group_name=place.resource_group.name,
            location=config.location,
            stack=config.name,
            subscription_id=place.subscription_id,
            namespace=namespace,
            oidc_issuer_url=cluster.oidc_issuer_url,
            tags=config.tags,
        ),
    )


def _pushing(config: StackConfig) -> list[Pods]:
    pods = {
        "inspektor-gadget": Pods(namespace=GADGET_NAMESPACE, labels={"k8s-app": "gadget"}),
        "gpuheap": Pods(namespace=AGENT_NAMESPACE, labels=AGENT_LABELS),
    }
    return [pods[profiler] for profiler in config.profilers]


def _agent_image(
    config: StackConfig, place: Place, cluster: Cluster
) -> tuple[str, Sequence[pulumi.Resource]]:
    """The image's name, and what must be there before a node can pull it."""
    assert config.agent
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
    config: StackConfig,
    place: Place,
    cluster: Cluster,
    pyroscope: Pyroscope,
    after: Sequence[pulumi.Resource],
) -> ProfilerAgent | None:
    if "gpuheap" not in config.profilers:
        return None
    image, built = _agent_image(config, place, cluster)
    return ProfilerAgent(
        "profiler-agent",
        ProfilerAgentArgs(
            image=image,
            pyroscope_url=pyroscope.url,
            cluster_name=cluster.cluster_name,
            node_selector=GPU_NODE_LABELS,
            provider=cluster.provider,
            depends_on=[pyroscope.release, *after, *built],
        ),
    )

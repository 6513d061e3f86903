# SPDX-License-Identifier: Apache-2.0
"""Pyroscope in the cluster, and the Service that offers it to Private Link.

In two sizes: one replica, or components that keep their profiles in Azure Blob.
The chart is installed as one Helm release (docs/adr/0001-helm-release.md). The load-balancer Service is ours:
it is complete only when the cloud controller has made the Private Link Service, and its deletion waits until
that is gone again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pulumi
import pulumi_kubernetes as kubernetes

from .azure.leftover import PrivateLinkServiceRemoval
from .pyroscope_access import Pods, network_policy

RELEASE_NAME: Final = "pyroscope"
PORT: Final = 4040
SELECTOR: Final = {"app.kubernetes.io/name": "pyroscope", "app.kubernetes.io/instance": RELEASE_NAME}

Size = Literal["single", "microservices"]
# What the chart calls the component that takes profiles, and the one that answers questions.
WRITER: Final[Mapping[Size, str]] = {"single": "all", "microservices": "distributor"}
READER: Final[Mapping[Size, str]] = {"single": "all", "microservices": "query-frontend"}

# Making or removing a Private Link Service takes minutes; the provider would give up after ten.
PATIENCE: Final = pulumi.CustomTimeouts(create="20m", update="20m", delete="20m")


@dataclass(frozen=True, slots=True, kw_only=True)
class PyroscopeArgs:
    chart: str
    chart_version: str
    size: Size
    values: pulumi.Input[Mapping[str, Any]]
    namespace: str
    profilers: Sequence[Pods]
    private_link_ranges: pulumi.Input[Sequence[str]]
    private_link_service_name: str
    private_link_service_id: pulumi.Input[str]
    private_link_resource_group_name: pulumi.Input[str]
    private_link_subnet_name: str | None
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]
    """The extension, which makes the namespace and refuses one that it finds, and what the Private Link
    Service needs.
    """


class Pyroscope(pulumi.ComponentResource):
    """The profile store `pyroscope:4040` and its Private Link Service."""

    release: kubernetes.helm.v3.Release
    service: kubernetes.core.v1.Service
    policy: kubernetes.networking.v1.NetworkPolicy
    url: str
    """The address of Pyroscope inside the cluster."""

    def __init__(self, name: str, args: PyroscopeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:Pyroscope", name, {}, opts)
        self.url = f"http://{RELEASE_NAME}.{args.namespace}.svc:{PORT}"
        self.release = kubernetes.helm.v3.Release(
            name,
            name=RELEASE_NAME,
            chart=args.chart,
            # A chart in a folder carries its version; only one from a registry has to be asked for by
            # version.
            version=None if args.chart.startswith((".", "/")) else args.chart_version,
            namespace=args.namespace,
            values=args.values,
            # A failed installation stays, so that its pods can be looked at.
            atomic=False,
            timeout=600,
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=args.depends_on),
        )
        self.policy = network_policy(
            f"{name}-access",
            namespace=args.namespace,
            port=PORT,
            profilers=args.profilers,
            private_link_ranges=args.private_link_ranges,
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=args.depends_on),
        )
        if args.size == "microservices":
            self._writers(name, args)
        self.service = self._private_link_service(name, args)
        self.register_outputs({"url": self.url})

    def _writers(self, name: str, args: PyroscopeArgs) -> None:
        """One replica's Service is called `pyroscope`; of components there are many, and none has the name to which
        profilers push.
        """
        kubernetes.core.v1.Service(
            f"{name}-writers",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=RELEASE_NAME, namespace=args.namespace),
            spec=kubernetes.core.v1.ServiceSpecArgs(
                selector=selector(WRITER[args.size]),
                ports=[kubernetes.core.v1.ServicePortArgs(name="http", port=PORT, target_port=PORT)],
            ),
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[self.release]),
        )

    def _private_link_service(self, name: str, args: PyroscopeArgs) -> kubernetes.core.v1.Service:
        removal = PrivateLinkServiceRemoval(
            f"{name}-private-link-removal",
            private_link_service_id=args.private_link_service_id,
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.depends_on),
        )
        return kubernetes.core.v1.Service(
            f"{name}-private-link",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(
                name=f"{RELEASE_NAME}-private-link",
                namespace=args.namespace,
                annotations=private_link_annotations(args),
            ),
            spec=kubernetes.core.v1.ServiceSpecArgs(
                type="LoadBalancer",
                selector=selector(READER[args.size]),
                # Requests keep their source address, by which the network policy knows them.
                external_traffic_policy="Local",
                ports=[kubernetes.core.v1.ServicePortArgs(name="http", port=PORT, target_port=PORT)],
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                provider=args.provider,
                # Deleted first, while cloud controller and cluster still run: they take the Private Link
                # Service away.
                depends_on=[self.release, removal],
                custom_timeouts=PATIENCE,
            ),
        )


def private_link_annotations(args: PyroscopeArgs) -> dict[str, pulumi.Input[str]]:
    """What tells the cloud controller to put a Private Link Service before the load balancer.

    https://cloud-provider-azure.sigs.k8s.io/topics/pls-integration/
    """
    prefix = "service.beta.kubernetes.io/azure-"
    annotations: dict[str, pulumi.Input[str]] = {
        f"{prefix}load-balancer-internal": "true",
        f"{prefix}pls-create": "true",
        f"{prefix}pls-name": args.private_link_service_name,
        # Not the node resource group, the default: AKS Automatic locks it, and nobody could approve a
        # connection there.
        f"{prefix}pls-resource-group": args.private_link_resource_group_name,
        # Pyroscope does not speak the proxy protocol.
        f"{prefix}pls-proxy-protocol": "false",
        # Grafana's endpoint comes from a subscription of Microsoft's that nobody can name beforehand. Who
        # sees the service can ask for a connection; none is made before it is approved.
        f"{prefix}pls-visibility": "*",
    }
    if args.private_link_subnet_name is not None:
        annotations[f"{prefix}pls-ip-configuration-subnet"] = args.private_link_subnet_name
    return annotations


def selector(component: str) -> Mapping[str, str]:
    """The pods of one component of the chart."""
    return {**SELECTOR, "app.kubernetes.io/component": component}

# SPDX-License-Identifier: Apache-2.0
"""Pyroscope in the cluster, and the Service that offers it to Private Link.

The chart is installed as one Helm release (docs/adr/0001-helm-release.md). The load-balancer Service is ours:
it is complete only when the cloud controller has made the Private Link Service, and its deletion waits until
that is gone again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes
import yaml

RELEASE_NAME: Final = "pyroscope"
PORT: Final = 4040
VALUES: Final = Path(__file__).parent.parent / "helm-values" / "pyroscope.yaml"
SELECTOR: Final = {
    "app.kubernetes.io/name": "pyroscope",
    "app.kubernetes.io/instance": RELEASE_NAME,
    # What the chart calls the only component of a single-replica installation.
    "app.kubernetes.io/component": "all",
}

# Making or removing a Private Link Service takes minutes; the provider would give up after ten.
PATIENCE: Final = pulumi.CustomTimeouts(create="20m", update="20m", delete="20m")


@dataclass(frozen=True, slots=True, kw_only=True)
class PyroscopeArgs:
    chart: str
    chart_version: str
    disk_gib: int
    namespace: str
    private_link_service_name: str
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
            values=values(args.disk_gib),
            # A failed installation stays, so that its pods can be looked at.
            atomic=False,
            timeout=600,
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=args.depends_on),
        )
        self.service = self._private_link_service(name, args)
        self.register_outputs({"url": self.url})

    def _private_link_service(self, name: str, args: PyroscopeArgs) -> kubernetes.core.v1.Service:
        return kubernetes.core.v1.Service(
            f"{name}-private-link",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(
                name=f"{RELEASE_NAME}-private-link",
                namespace=args.namespace,
                annotations=private_link_annotations(args),
            ),
            spec=kubernetes.core.v1.ServiceSpecArgs(
                type="LoadBalancer",
                selector=SELECTOR,
                ports=[kubernetes.core.v1.ServicePortArgs(name="http", port=PORT, target_port=PORT)],
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                provider=args.provider,
                # Deleted first, while cloud controller and cluster still run: they take the Private Link
                # Service away.
                depends_on=[self.release],
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


def values(disk_gib: int) -> Mapping[str, Any]:
    """The chart's values: those of the file, and a disk of the wanted size."""
    chart: dict[str, Any] = yaml.safe_load(VALUES.read_text())
    persistence = {"enabled": True, "size": f"{disk_gib}Gi"} if disk_gib else {"enabled": False}
    return {**chart, "pyroscope": {**chart["pyroscope"], "persistence": persistence}}

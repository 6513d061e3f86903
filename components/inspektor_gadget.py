# SPDX-License-Identifier: Apache-2.0
"""Azure's own GPU profiler: the cluster extension `microsoft.inspektorgadget`, which makes and owns the
namespace `gadget`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_azure_native import kubernetesconfiguration as configuration

GADGET_NAMESPACE: Final = "gadget"
DAEMON_SET: Final = "gadget"
CONTAINER: Final = "gadget"
"""https://github.com/inspektor-gadget/inspektor-gadget/blob/main/charts/gadget/templates/daemonset.yaml"""
SETTINGS_ANNOTATION: Final = "gpuheap/settings"
"""On the pods of the DaemonSet: another value replaces them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspektorGadgetArgs:
    cluster_name: str
    cluster_resource_group_name: pulumi.Input[str]
    version: str | None
    """A version to stay at; None for automatic upgrades."""
    settings: Mapping[str, str]
    node_selector: Mapping[str, str]
    environment: Mapping[str, str]
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]
    """The metrics pipeline: without it `azureMonitor.enabled` fails, and a first installation that failed
    must be deleted by hand.
    """


class InspektorGadget(pulumi.ComponentResource):
    """The extension with its GPU gadgets on. Sends profiles to `pyroscope:4040` in its own namespace."""

    extension: configuration.Extension

    def __init__(
        self, name: str, args: InspektorGadgetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuheap:index:InspektorGadget", name, {}, opts)
        self.extension = configuration.Extension(
            name,
            resource_group_name=args.cluster_resource_group_name,
            cluster_rp="Microsoft.ContainerService",
            cluster_resource_name="managedClusters",
            cluster_name=args.cluster_name,
            extension_name="inspektor-gadget",
            extension_type="microsoft.inspektorgadget",
            # The only train that offers it.
            release_train="preview",
            # Azure refuses a pinned version together with automatic upgrades.
            version=args.version,
            auto_upgrade_minor_version=args.version is None,
            identity=configuration.IdentityArgs(type=configuration.ResourceIdentityType.SYSTEM_ASSIGNED),
            scope=configuration.ScopeArgs(
                cluster=configuration.ScopeClusterArgs(release_namespace=GADGET_NAMESPACE)
            ),
            configuration_settings=args.settings,
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.depends_on),
        )
        self._daemon_set(name, args)
        self.register_outputs({"extensionId": self.extension.id})

    def _daemon_set(self, name: str, args: InspektorGadgetArgs) -> None:
        """A changed setting reaches a ConfigMap, which the running pods have read already: they are replaced.

        Where they run, and their environment, are the DaemonSet's own: the extension could be told of a key, and never
        that it is gone. Here the API server knows whose it is, and takes it away.
        """
        kubernetes.apps.v1.DaemonSetPatch(
            f"{name}-restart",
            metadata=kubernetes.meta.v1.ObjectMetaPatchArgs(name=DAEMON_SET, namespace=GADGET_NAMESPACE),
            spec=kubernetes.apps.v1.DaemonSetSpecPatchArgs(
                template=kubernetes.core.v1.PodTemplateSpecPatchArgs(
                    metadata=kubernetes.meta.v1.ObjectMetaPatchArgs(
                        annotations={SETTINGS_ANNOTATION: fingerprint(args.settings)}
                    ),
                    spec=_pods(args.node_selector, args.environment),
                )
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                provider=args.provider,
                depends_on=[self.extension],
                # The DaemonSet goes with the extension: there is nothing to give back.
                retain_on_delete=True,
            ),
        )


def _pods(
    node_selector: Mapping[str, str], environment: Mapping[str, str]
) -> kubernetes.core.v1.PodSpecPatchArgs | None:
    """What pods have beside what the extension's chart gives them; None when it is nothing."""
    if not (node_selector or environment):
        return None
    variables = [
        kubernetes.core.v1.EnvVarPatchArgs(name=name, value=value)
        for name, value in sorted(environment.items())
    ]
    container = kubernetes.core.v1.ContainerPatchArgs(name=CONTAINER, env=variables)
    return kubernetes.core.v1.PodSpecPatchArgs(
        node_selector=dict(node_selector) or None, containers=[container] if variables else None
    )


def fingerprint(settings: Mapping[str, str]) -> str:
    """Changes with the settings, and only with them."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

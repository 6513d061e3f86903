# SPDX-License-Identifier: Apache-2.0
"""Azure's own GPU profiler: the cluster extension `microsoft.inspektorgadget`, which makes and owns the
namespace `gadget`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
from pulumi_azure_native import kubernetesconfiguration as configuration

GADGET_NAMESPACE: Final = "gadget"


@dataclass(frozen=True, slots=True, kw_only=True)
class InspektorGadgetArgs:
    cluster_name: str
    cluster_resource_group_name: pulumi.Input[str]
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
            # The only train that offers it. A pinned `version` would exclude automatic upgrades.
            release_train="preview",
            auto_upgrade_minor_version=True,
            identity=configuration.IdentityArgs(type=configuration.ResourceIdentityType.SYSTEM_ASSIGNED),
            scope=configuration.ScopeArgs(
                cluster=configuration.ScopeClusterArgs(release_namespace=GADGET_NAMESPACE)
            ),
            configuration_settings={"gpuObservability.enabled": "true", "azureMonitor.enabled": "true"},
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.depends_on),
        )
        self.register_outputs({"extensionId": self.extension.id})

# SPDX-License-Identifier: Apache-2.0
"""AKS clusters, their pools, maintenance windows and extensions, as Resource Manager shows them.

What appears inside the cluster is in `cluster_effects.py`.
"""

import re
from typing import Final

from localcloud.azure import aks_automatic
from localcloud.azure.errors import AzureError
from localcloud.azure.knowledge import TENANT, Asked, Finder, Knowledge, guid, token_hex
from localcloud.azure.records import Json, Resource
from localcloud.azure.types_basic import GROUP, system_identity
from localcloud.azure.types_network import PRIVATE_LINK_SERVICE
from localcloud.azure.vm_sizes import slice_name

AKS: Final = f"{GROUP}/providers/Microsoft.ContainerService/managedClusters/{{resourceName}}"
CLUSTER: Final = "azure-native:containerservice:ManagedCluster"
AGENT_POOL: Final = "azure-native:containerservice:AgentPool"
EXTENSION: Final = "azure-native:kubernetesconfiguration:Extension"
INSPEKTOR_GADGET: Final = "microsoft.inspektorgadget"
RELEASE_TRAINS: Final = {INSPEKTOR_GADGET: "preview", "microsoft.azurecontainerstoragev2": "stable"}
"""The extensions that are known here, and where each is offered."""

KUBERNETES_VERSION: Final = "1.36.3"
"""What a cluster gets that asks for none: the version of the local control plane."""

# The inputs that azure-native replaces on (provider/pkg/gen/replacement.go); the rest it changes in place.
_CLUSTER_REPLACES: Final = frozenset(
    {
        "diskEncryptionSetID",
        "dnsPrefix",
        "fqdnSubdomain",
        "linuxProfile",
        "nodeResourceGroup",
        "windowsProfile",
        "networkProfile.dnsServiceIP",
        "networkProfile.networkDataplane",
        "networkProfile.networkMode",
        "networkProfile.networkPlugin",
        "networkProfile.networkPluginMode",
        "networkProfile.networkPolicy",
        "networkProfile.outboundType",
        "networkProfile.podCidr",
        "networkProfile.serviceCidr",
        "networkProfile.serviceCidrs",
        "agentPoolProfiles[].nodePublicIPTags",
    }
)


def node_resource_group_id(cluster: Resource) -> str:
    """The resource group that AKS made for the cluster's nodes."""
    subscription = cluster.id.split("/resourceGroups/")[0]
    return f"{subscription}/resourceGroups/{cluster.outputs['nodeResourceGroup']}"


def _cluster(asked: Asked) -> Json:
    inputs, location = asked.inputs, asked.inputs["location"].replace(" ", "").lower()
    group = re.search(r"/resourceGroups/([^/]+)/", asked.id)
    node_group = inputs.get("nodeResourceGroup") or f"MC_{group[1] if group else ''}_{asked.name}_{location}"
    prefix = inputs.get("dnsPrefix") or asked.name
    host = f"{prefix}-{token_hex(asked.id)}"
    version = inputs.get("kubernetesVersion") or asked.kept("kubernetesVersion") or KUBERNETES_VERSION
    outputs = {
        "fqdn": f"{host}.hcp.{location}.azmk8s.io",
        "azurePortalFQDN": f"{host}.portal.hcp.{location}.azmk8s.io",
        "privateFQDN": "",
        "nodeResourceGroup": node_group,
        "kubernetesVersion": version,
        "currentKubernetesVersion": version,
        "enableRBAC": inputs.get("enableRBAC", True),
        "maxAgentPools": 100,
        "powerState": {"code": "Running"},
        "resourceUID": guid(asked.id, "uid").replace("-", "")[:24],
        "identityProfile": {"kubeletidentity": _kubelet_identity(asked, node_group)},
        "agentPoolProfiles": _own_pools(asked, version),
        **system_identity(asked),
    }
    if inputs.get("oidcIssuerProfile", {}).get("enabled"):
        issuer = f"https://{location}.oic.prod-aks.azure.com/{TENANT}/{guid(asked.id, 'issuer')}/"
        outputs["oidcIssuerProfile"] = {**inputs["oidcIssuerProfile"], "issuerURL": issuer}
    return outputs


def _kubelet_identity(asked: Asked, node_group: str) -> Json:
    subscription = asked.id.split("/")[2]
    return {
        "resourceId": f"/subscriptions/{subscription}/resourceGroups/{node_group}/providers"
        f"/Microsoft.ManagedIdentity/userAssignedIdentities/{asked.name}-agentpool",
        "clientId": guid(asked.id, "kubelet-client"),
        "objectId": guid(asked.id, "kubelet"),
    }


def _own_pools(asked: Asked, version: str) -> list[Json]:
    """The pools that are the cluster's own: a refresh puts all there are into the inputs."""
    others = {pool.name for pool in asked.store.resources(token=AGENT_POOL, under=asked.id)}
    pools = asked.inputs.get("agentPoolProfiles", ())
    return [_inline_pool(pool, version) for pool in pools if pool.get("name") not in others]


def _inline_pool(pool: Json, version: str) -> Json:
    return {
        **pool,
        "currentOrchestratorVersion": version,
        "nodeImageVersion": _IMAGE,
        "powerState": {"code": "Running"},
        "provisioningState": "Succeeded",
        "eTag": token_hex(str(pool)),
    }


_IMAGE: Final = "AKSUbuntu-2204gen2containerd-202601.07.0"


def _cluster_allowed(asked: Asked) -> None:
    others = [
        other.id for other in asked.store.resources(token=CLUSTER) if other.id.lower() != asked.id.lower()
    ]
    if others:
        raise AzureError(
            409,
            "NotSimulated",
            f"The local cloud has one control plane, and {others[0]} has it. Delete that cluster first.",
        )
    pools = asked.inputs.get("agentPoolProfiles", ())
    if asked.before is None and not any(pool.get("mode") == "System" for pool in pools):
        raise AzureError(400, "InvalidParameter", "Must define at least one system pool.")
    for pool in pools:
        _known_size(pool.get("vmSize"), pool.get("name", ""))
    if aks_automatic.is_automatic(asked.inputs):
        aks_automatic.check(asked.inputs)


def _with_pools(cluster: Resource, store: Finder) -> Json:
    """A cluster shows all its pools, also those that are resources of their own."""
    pools = {pool.get("name"): pool for pool in cluster.outputs.get("agentPoolProfiles", ())}
    for child in store.resources(token=AGENT_POOL, under=cluster.id):
        pools[child.name] = {**child.outputs, "name": child.name}
    return {**cluster.outputs, "agentPoolProfiles": list(pools.values())}


def _cluster_deletable(cluster: Resource, store: Finder) -> None:
    """AKS hangs while something outside is connected to a Private Link Service on the cluster's load balancer."""
    nodes = node_resource_group_id(cluster).lower()
    for service in store.resources(token=PRIVATE_LINK_SERVICE):
        # What AKS's cloud controller made names the load balancer, which is in the group of the nodes.
        ours = nodes in f"{service.id} {service.outputs}".lower()
        if ours and service.outputs.get("privateEndpointConnections"):
            raise AzureError(
                400,
                "PrivateLinkServiceCannotBeDeletedSinceHasExistingConnections",
                f"The cluster {cluster.name} cannot be deleted: {service.id} has private endpoint connections."
                " Delete the private endpoints and the Service of type LoadBalancer first.",
            )


def _agent_pool(asked: Asked) -> Json:
    cluster = asked.store.resource(asked.id.rsplit("/", 2)[0])
    version = cluster.outputs["kubernetesVersion"] if cluster else KUBERNETES_VERSION
    return {
        "count": asked.inputs.get("count", asked.inputs.get("minCount", 1)),
        "mode": asked.inputs.get("mode", "User"),
        "osType": asked.inputs.get("osType", "Linux"),
        "orchestratorVersion": asked.inputs.get("orchestratorVersion")
        or asked.kept("orchestratorVersion")
        or version,
        "currentOrchestratorVersion": version,
        "nodeImageVersion": _IMAGE,
        "powerState": {"code": "Running"},
        "type": asked.inputs.get("type", "VirtualMachineScaleSets"),
    }


def _agent_pool_allowed(asked: Asked) -> None:
    cluster = asked.store.resource(asked.id.rsplit("/", 2)[0])
    inline = cluster.outputs.get("agentPoolProfiles", ()) if cluster else ()
    if cluster and aks_automatic.provisions_nodes(cluster) and asked.inputs.get("enableAutoScaling"):
        raise AzureError(
            400,
            "BadRequest",
            "With node auto-provisioning only pools of a fixed number of nodes can be made.",
        )
    if asked.before is None and any(pool.get("name") == asked.name for pool in inline):
        raise AzureError(409, "AgentPoolAlreadyExists", f"Pool {asked.name} was made with the cluster.")
    _known_size(asked.inputs.get("vmSize"), asked.name)
    size, profile = str(asked.inputs.get("vmSize")), asked.inputs.get("gpuInstanceProfile")
    if profile and slice_name(size, profile) is None:
        raise AzureError(
            400,
            "InvalidParameter",
            f"The GPUs of {size}, of pool {asked.name}, cannot be cut into {profile}.",
        )


def _known_size(vm_size: str | None, pool: str) -> None:
    if not re.fullmatch(r"Standard_[A-Z]+\d\w*", vm_size or ""):
        raise AzureError(400, "InvalidParameter", f"The VM size {vm_size!r} of pool {pool} is not available.")


def _extension(asked: Asked) -> Json:
    settings = {
        **(asked.kept("configurationSettings") or {}),
        **asked.inputs.get("configurationSettings", {}),
    }
    return {
        # The service merges: a key that a program no longer has stays set.
        "configurationSettings": settings,
        "releaseTrain": asked.inputs.get("releaseTrain", "Stable"),
        "currentVersion": asked.inputs.get("version", "0.55.0"),
        "customLocationSettings": {},
        "errorInfo": {},
        "isSystemExtension": False,
        "packageUri": "",
        "statuses": [],
        **system_identity(asked),
    }


def _extension_allowed(asked: Asked) -> None:
    kind, train = str(asked.inputs.get("extensionType", "")), asked.inputs.get("releaseTrain", "Stable")
    if asked.inputs.get("version") and asked.inputs.get("autoUpgradeMinorVersion", True):
        raise AzureError(
            400,
            "InvalidRequest",
            "version cannot be given together with autoUpgradeMinorVersion=true; set that to false.",
        )
    offered = RELEASE_TRAINS.get(kind.lower())
    if offered is None:
        raise AzureError(
            501,
            "NotSimulated",
            f"The local cloud simulates {' and '.join(RELEASE_TRAINS)}, not the extension {kind!r}.",
        )
    if train.lower() != offered:
        raise AzureError(
            400,
            "ExtensionTypeRegistrationGetFailed",
            f"Extension type {kind} is not offered in release train {train}; it is in {offered}.",
        )


KNOWN: Final = {
    "containerservice:ManagedCluster": Knowledge(
        id=AKS,
        name="resourceName",
        name_pattern=r"[A-Za-z0-9]([\w-]{0,61}[A-Za-z0-9])?",
        name_rule="1 to 63 letters, digits, underscores and hyphens, a letter or digit at both ends",
        replaces=_CLUSTER_REPLACES,
        computed=_cluster,
        allowed=_cluster_allowed,
        deletable=_cluster_deletable,
        view=_with_pools,
    ),
    "containerservice:AgentPool": Knowledge(
        id=f"{AKS}/agentPools/{{agentPoolName}}",
        name="agentPoolName",
        name_pattern=r"[a-z][a-z0-9]{0,11}",
        name_rule="1 to 12 lower-case letters and digits, the first a letter",
        replaces=frozenset({"gpuInstanceProfile", "vmSize", "networkProfile.nodePublicIPTags"}),
        computed=_agent_pool,
        allowed=_agent_pool_allowed,
    ),
    "containerservice:MaintenanceConfiguration": Knowledge(
        id=f"{AKS}/maintenanceConfigurations/{{configName}}",
        name="configName",
        name_pattern=r"default|aksManagedAutoUpgradeSchedule|aksManagedNodeOSUpgradeSchedule",
        name_rule="default, aksManagedAutoUpgradeSchedule or aksManagedNodeOSUpgradeSchedule",
    ),
    "kubernetesconfiguration:Extension": Knowledge(
        id=f"{GROUP}/providers/{{clusterRp}}/{{clusterResourceName}}/{{clusterName}}"
        "/providers/Microsoft.KubernetesConfiguration/extensions/{extensionName}",
        name="extensionName",
        name_pattern=r"[A-Za-z0-9][A-Za-z0-9.-]{0,49}",
        name_rule="1 to 50 letters, digits, periods and hyphens",
        replaces=frozenset({"extensionType", "scope"}),
        computed=_extension,
        allowed=_extension_allowed,
    ),
}

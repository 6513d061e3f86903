# SPDX-License-Identifier: Apache-2.0
"""The provider's functions: lookups of resources, who the caller is, and a cluster's credentials."""

import base64
from collections.abc import Mapping
from typing import Any, Final

from localcloud.azure.errors import not_found
from localcloud.azure.knowledge import TENANT, guid
from localcloud.azure.known_types import KNOWN
from localcloud.azure.records import Json
from localcloud.azure.resource_manager import NotSimulated, ResourceManager
from localcloud.azure.resource_types import PACKAGE
from localcloud.azure.surroundings import Surroundings

DEPLOYER_OBJECT: Final = guid("deployer")
"""The Entra object of the one identity that deploys: what `getClientConfig` and every token say."""

DEPLOYER_CLIENT: Final = guid("deployer", "application")

_CREDENTIALS: Final = {
    "containerservice:listManagedClusterUserCredentials": "clusterUser",
    "containerservice:listManagedClusterAdminCredentials": "clusterAdmin",
}


def call(
    function: str, arguments: Mapping[str, Any], manager: ResourceManager, surroundings: Surroundings
) -> Json:
    """The result of a function, given by its token without package. Raises AzureError, NotSimulated, NotRunning."""
    if function == "authorization:getClientConfig":
        return {
            "clientId": DEPLOYER_CLIENT,
            "objectId": DEPLOYER_OBJECT,
            "subscriptionId": manager.subscription,
            "tenantId": TENANT,
        }
    if function in _CREDENTIALS:
        _found("containerservice:ManagedCluster", arguments, manager)
        content = base64.b64encode(surroundings.kubeconfig().read_bytes()).decode()
        return {"kubeconfigs": [{"name": _CREDENTIALS[function], "value": content}]}
    module, _, name = function.partition(":")
    path = f"{module}:{name.removeprefix('get')}"
    if name.startswith("get") and path in KNOWN:
        return _found(path, arguments, manager)
    raise NotSimulated(f"the function {PACKAGE}:{function} is not simulated by the local cloud")


def _found(path: str, arguments: Mapping[str, Any], manager: ResourceManager) -> Json:
    id = KNOWN[path].id_of(arguments, manager.subscription)
    resource = manager.read(id)
    if resource is None:
        raise not_found(id)
    return {**resource.outputs, "id": resource.id}

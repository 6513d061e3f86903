# SPDX-License-Identifier: Apache-2.0
"""The cluster, of either kind, and who may do what with it."""

from typing import Any

import pytest
import yaml

from components.roles import AKS_RBAC_CLUSTER_ADMIN, NETWORK_CONTRIBUTOR
from tests.components.conftest import CHECKOUT, run_program
from tests.components.recorder import Recording

CLUSTER = "azure-native:containerservice:ManagedCluster"
SAFEGUARDS = "azure-native:containerservice:DeploymentSafeguard"
ASSIGNMENT = "azure-native:authorization:RoleAssignment"
VNET = "/subscriptions/s/resourceGroups/shared/providers/Microsoft.Network/virtualNetworks/shared"


def changed(**keys: Any) -> Recording:
    """The stack `dev` with other values of these keys."""
    config = yaml.safe_load((CHECKOUT / "Pulumi.dev.yaml").read_text())["config"]
    return run_program(config | {f"gpuheap:{key}": value for key, value in keys.items()})


@pytest.fixture(scope="module")
def automatic() -> Recording:
    return changed(
        cluster={"name": "gpuheap-dev", "mode": "automatic", "protect": True},
        gpuPools=[
            {
                "name": "gpu",
                "vmSize": "Standard_NC96ads_A100_v4",
                "autoscale": {"max": 3},
                "spot": True,
                "zones": ["1", "2"],
                "labels": {"team": "research"},
            }
        ],
    )


@pytest.fixture(scope="module")
def elsewhere() -> Recording:
    """A standard cluster in subnets that are there, which only Entra identities may use."""
    return changed(
        cluster={
            "name": "gpuheap-dev",
            "localAccounts": False,
            "upgradeChannel": "stable",
            "maintenance": {
                "cluster": {"day": "Saturday", "start": "01:00", "utcOffset": "+01:00", "hours": 8},
                "nodeImages": {"day": "Sunday", "start": "02:00", "everyWeeks": 2},
                "notOn": [{"start": "2026-12-20", "end": "2027-01-03"}],
            },
        },
        network={"existing": {"nodeSubnetId": f"{VNET}/subnets/nodes", "privateLinkSubnet": "pl"}},
    )


def test_a_new_cluster_is_of_the_standard_tier_with_the_metrics_add_on(dev: Recording) -> None:
    cluster = dev.only(CLUSTER).inputs
    assert cluster["resourceName"] == "gpuheap-dev"
    assert cluster["sku"] == {"name": "Base", "tier": "Standard"}
    assert cluster["azureMonitorProfile"] == {"metrics": {"enabled": True}}
    assert cluster["autoUpgradeProfile"] == {"upgradeChannel": "patch", "nodeOSUpgradeChannel": "NodeImage"}
    assert cluster["oidcIssuerProfile"] == {"enabled": True}
    assert not dev.only(CLUSTER).request.protect


def test_the_system_pool_is_not_tainted(dev: Recording) -> None:
    (system,) = dev.only(CLUSTER).inputs["agentPoolProfiles"]
    assert system["mode"] == "System"
    assert "nodeTaints" not in system
    assert system["vnetSubnetID"] == "/id/network-nodes"


def test_pools_made_beside_the_cluster_are_no_drift_of_it(dev: Recording) -> None:
    assert list(dev.only(CLUSTER).request.ignoreChanges) == ["agentPoolProfiles"]


def test_the_control_plane_may_use_the_network_before_the_cluster_is_made(dev: Recording) -> None:
    role = dev["cluster-network-contributor"]
    assert role.inputs["roleDefinitionId"].endswith(f"/roleDefinitions/{NETWORK_CONTRIBUTOR}")
    assert role.inputs["scope"] == "/id/resource-group"
    assert role.inputs["principalId"] == "control-plane-principal"
    assert role.inputs["principalType"] == "ServicePrincipal"
    assert role.name in dev.only(CLUSTER).needs


def test_an_existing_clusters_own_identity_gets_the_right(existing: Recording) -> None:
    role = existing["cluster-network-contributor"].inputs
    assert role["principalId"] == "existing-principal"
    assert role["scope"] == "/id/resource-group"


def test_another_certificate_does_not_make_another_cluster(dev: Recording) -> None:
    assert dev["cluster-kubernetes"].inputs["clusterIdentifier"] == "gpuheap-dev/gpuheap-dev"


def test_aks_automatic_is_said_in_full(automatic: Recording) -> None:
    cluster = automatic.only(CLUSTER)
    assert cluster.inputs["sku"] == {"name": "Automatic", "tier": "Standard"}
    assert cluster.inputs["autoUpgradeProfile"] == {
        "upgradeChannel": "stable",
        "nodeOSUpgradeChannel": "NodeImage",
    }
    assert cluster.inputs["nodeProvisioningProfile"]["mode"] == "Auto"
    assert cluster.inputs["nodeResourceGroupProfile"] == {"restrictionLevel": "ReadOnly"}
    assert cluster.inputs["disableLocalAccounts"] is True
    assert cluster.inputs["aadProfile"] == {"managed": True, "enableAzureRBAC": True}
    assert cluster.request.protect


def test_the_api_server_of_aks_automatic_is_in_our_network(automatic: Recording) -> None:
    subnet = automatic["network-api-server"].inputs
    assert subnet["addressPrefix"] == "10.40.255.240/28"
    assert subnet["delegations"] == [
        {"name": "aks", "serviceName": "Microsoft.ContainerService/managedClusters"}
    ]
    assert automatic.only(CLUSTER).inputs["apiServerAccessProfile"] == {
        "enableVnetIntegration": True,
        "subnetId": "/id/network-api-server",
    }


def test_safeguards_leave_the_profilers_alone_before_these_come(automatic: Recording) -> None:
    safeguards = automatic.only(SAFEGUARDS)
    assert safeguards.inputs["excludedNamespaces"] == ["gadget", "gpuheap"]
    assert safeguards.inputs["level"] == "Enforce"
    assert safeguards.name in automatic.outlived_by("inspektor-gadget")
    assert safeguards.name in automatic.outlived_by("profiler-agent")


def test_a_standard_cluster_has_no_safeguards(dev: Recording) -> None:
    assert not dev.of_type(SAFEGUARDS)


def test_the_private_link_service_is_not_made_in_the_locked_group_of_the_nodes(automatic: Recording) -> None:
    annotations = automatic["pyroscope-private-link"].inputs["metadata"]["annotations"]
    assert annotations["service.beta.kubernetes.io/azure-pls-resource-group"] == "gpuheap-dev"


@pytest.mark.parametrize("name", ["automatic", "elsewhere"])
def test_who_deploys_is_administrator_where_only_entra_counts(
    name: str, request: pytest.FixtureRequest
) -> None:
    recording: Recording = request.getfixturevalue(name)
    role = recording["cluster-administrator"].inputs
    assert role["roleDefinitionId"].endswith(f"/roleDefinitions/{AKS_RBAC_CLUSTER_ADMIN}")
    assert (role["scope"], role["principalId"]) == ("/id/cluster", "deployer-object")
    assert role["principalType"] == "ServicePrincipal"
    assert "cluster-administrator" in recording.outlived_by("pyroscope")


def test_a_cluster_with_local_accounts_needs_no_such_role(dev: Recording) -> None:
    assert "cluster-administrator" not in dev.resources


def test_clients_get_a_kubeconfig_that_they_can_read(dev: Recording) -> None:
    (asked,) = [call for call in dev.asked if call.token.endswith(":listManagedClusterUserCredentials")]
    assert asked.args["format"] == "exec"


def test_given_subnets_are_used_with_the_right_to_each_and_to_no_more(elsewhere: Recording) -> None:
    scopes = {
        role.inputs["scope"]
        for role in elsewhere.of_type(ASSIGNMENT)
        if role.inputs["roleDefinitionId"].endswith(NETWORK_CONTRIBUTOR)
    }
    assert scopes == {"/id/resource-group", f"{VNET}/subnets/nodes", f"{VNET}/subnets/pl"}
    assert not elsewhere.of_type("azure-native:network:VirtualNetwork")
    (system,) = elsewhere.only(CLUSTER).inputs["agentPoolProfiles"]
    assert system["vnetSubnetID"] == f"{VNET}/subnets/nodes"
    annotations = elsewhere["pyroscope-private-link"].inputs["metadata"]["annotations"]
    assert annotations["service.beta.kubernetes.io/azure-pls-ip-configuration-subnet"] == "pl"


def test_each_kind_of_maintenance_has_its_window(elsewhere: Recording) -> None:
    windows = {
        window.inputs["configName"]: window.inputs["maintenanceWindow"]
        for window in elsewhere.of_type("azure-native:containerservice:MaintenanceConfiguration")
    }
    holidays = [{"start": "2026-12-20", "end": "2027-01-03"}]
    assert windows == {
        "aksManagedAutoUpgradeSchedule": {
            "schedule": {"weekly": {"dayOfWeek": "Saturday", "intervalWeeks": 1}},
            "startTime": "01:00",
            "utcOffset": "+01:00",
            "durationHours": 8,
            "notAllowedDates": holidays,
        },
        "aksManagedNodeOSUpgradeSchedule": {
            "schedule": {"weekly": {"dayOfWeek": "Sunday", "intervalWeeks": 2}},
            "startTime": "02:00",
            "utcOffset": "+00:00",
            "durationHours": 4,
            "notAllowedDates": holidays,
        },
    }


def test_the_upgrade_channel_is_the_stacks_to_say(elsewhere: Recording) -> None:
    profile = elsewhere.only(CLUSTER).inputs["autoUpgradeProfile"]
    assert profile == {"upgradeChannel": "stable", "nodeOSUpgradeChannel": "NodeImage"}


def test_pools_of_aks_automatic_are_karpenters(automatic: Recording) -> None:
    assert not automatic.of_type("azure-native:containerservice:AgentPool")
    node_class = automatic.only("kubernetes:karpenter.azure.com/v1beta1:AKSNodeClass")
    assert node_class.inputs["spec"]["vnetSubnetID"] == "/id/network-nodes"
    pool = automatic.only("kubernetes:karpenter.sh/v1:NodePool")
    assert node_class.name in pool.needs
    spec = pool.inputs["spec"]
    assert spec["limits"] == {"nvidia.com/gpu": "12"}, "three nodes of four GPUs"
    assert spec["template"]["metadata"]["labels"] == {"team": "research"}
    assert spec["template"]["spec"]["taints"] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"},
    ]
    wanted = {each["key"]: each["values"] for each in spec["template"]["spec"]["requirements"]}
    assert wanted["node.kubernetes.io/instance-type"] == ["Standard_NC96ads_A100_v4"]
    assert wanted["karpenter.sh/capacity-type"] == ["spot"]
    assert wanted["topology.kubernetes.io/zone"] == ["westeurope-1", "westeurope-2"]


def test_a_cluster_of_ours_that_is_gone_keeps_nothing_from_being_destroyed(dev: Recording) -> None:
    assert dev["cluster-kubernetes"].inputs["deleteUnreachable"] == "true"


def test_objects_that_an_interrupted_up_has_made_are_taken_over_by_the_next(
    dev: Recording, existing: Recording
) -> None:
    for provider in (dev["cluster-kubernetes"], existing["cluster-kubernetes"]):
        assert provider.inputs["upsertExistingObjects"] == "true"
        assert provider.inputs["enablePatchForce"] == "true"


def test_what_is_in_a_cluster_of_others_is_not_forgotten_when_it_does_not_answer(existing: Recording) -> None:
    assert existing["cluster-kubernetes"].inputs.get("deleteUnreachable") in (None, "false")

# SPDX-License-Identifier: Apache-2.0
"""Local NVMe disks as volumes."""

from components.local_storage import LocalStorage, LocalStorageArgs
from tests.components.recorder import Recording, record

EXTENSION = "azure-native:kubernetesconfiguration:Extension"
CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"


def declared() -> Recording:
    import pulumi_kubernetes as kubernetes

    return record(
        lambda: LocalStorage(
            "local-storage",
            LocalStorageArgs(
                cluster_name="shared",
                cluster_resource_group_name="shared-rg",
                provider=kubernetes.Provider("cluster-kubernetes", kubeconfig="{}"),
                depends_on=[],
            ),
        )
    )


def test_the_class_waits_for_the_node_of_the_first_pod() -> None:
    recording = declared()
    made = recording.only(CLASS)
    assert made.inputs["metadata"] == {"name": "local-nvme"}
    assert made.inputs["provisioner"] == "localdisk.csi.acstor.io"
    assert made.inputs["volumeBindingMode"] == "WaitForFirstConsumer", "the disk is on one node"
    assert recording.only(EXTENSION).name in made.needs, "its driver comes with the extension"
    assert recording.only(EXTENSION).inputs["extensionType"] == "microsoft.azurecontainerstoragev2"


def test_without_a_pool_that_offers_disks_nothing_is_installed(dev: Recording) -> None:
    assert not dev.of_type(CLASS)

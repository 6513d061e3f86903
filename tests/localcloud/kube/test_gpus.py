# SPDX-License-Identifier: Apache-2.0
"""What a plugin offers of a node's GPUs, by NVIDIA's table of strategies
(https://docs.nvidia.com/datacenter/cloud-native/kubernetes/latest/), and whose GPUs it serves.
"""

import pytest
from lightkube.models.core_v1 import (
    Container,
    EmptyDirVolumeSource,
    EnvVar,
    HostPathVolumeSource,
    PodSpec,
    Volume,
)
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod

from localcloud.kube.gpus import SOCKETS, Gpus, is_plugin, offered

WHOLE = Gpus(vendor="nvidia", count=4)
CUT = Gpus(vendor="nvidia", count=2, slices=7, slice="1g.10gb")
INSTINCT = Gpus(vendor="amd", count=8)
PARTITIONED = Gpus(vendor="amd", count=8, slices=8, slice="cpx_nps4")
NVIDIA_IMAGE, AMD_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.18.0", "docker.io/rocm/k8s-device-plugin:1"


def node(gpus: Gpus | None) -> Node:
    return Node(metadata=ObjectMeta(name="gpu-1", annotations=gpus.annotation() if gpus else None))


def plugin(
    image: str = NVIDIA_IMAGE, strategy: str | None = None, path: str = SOCKETS, *arguments: str
) -> Pod:
    variables = [EnvVar(name="MIG_STRATEGY", value=strategy)] if strategy else None
    return Pod(
        spec=PodSpec(
            containers=[Container(name="plugin", image=image, env=variables, args=list(arguments))],
            volumes=[
                Volume(name="own", emptyDir=EmptyDirVolumeSource()),
                Volume(name="sockets", hostPath=HostPathVolumeSource(path=path)),
            ],
        )
    )


@pytest.mark.parametrize(
    ("gpus", "strategy", "resources"),
    [
        (WHOLE, None, {"nvidia.com/gpu": "4"}),
        (WHOLE, "none", {"nvidia.com/gpu": "4"}),
        (WHOLE, "single", {"nvidia.com/gpu": "4"}),
        (WHOLE, "mixed", {"nvidia.com/gpu": "4"}),
        (CUT, "none", {"nvidia.com/gpu": "2"}),
        (CUT, "single", {"nvidia.com/gpu": "14"}),
        (CUT, "mixed", {"nvidia.com/mig-1g.10gb": "14"}),
    ],
)
def test_names_and_numbers_follow_from_the_strategy(
    gpus: Gpus, strategy: str | None, resources: dict[str, str]
) -> None:
    assert offered(node(gpus), plugin(strategy=strategy)) == resources


@pytest.mark.parametrize(
    ("gpus", "image", "resources"),
    [
        (INSTINCT, AMD_IMAGE, {"amd.com/gpu": "8"}),
        (INSTINCT, NVIDIA_IMAGE, {}),
        (WHOLE, AMD_IMAGE, {}),
        (None, NVIDIA_IMAGE, {}),
    ],
)
def test_a_plugin_serves_its_own_vendors_gpus_only(
    gpus: Gpus | None, image: str, resources: dict[str, str]
) -> None:
    assert offered(node(gpus), plugin(image)) == resources


@pytest.mark.parametrize(
    ("arguments", "resources"),
    [
        ([], {"amd.com/gpu": "64"}),
        (["-resource_naming_strategy=single"], {"amd.com/gpu": "64"}),
        (["-resource_naming_strategy=mixed"], {"amd.com/cpx_nps4": "64"}),
    ],
)
def test_amds_partitions_have_the_names_of_its_plugins_strategy(
    arguments: list[str], resources: dict[str, str]
) -> None:
    assert offered(node(PARTITIONED), plugin(AMD_IMAGE, None, SOCKETS, *arguments)) == resources


def test_a_plugin_is_known_by_the_folder_of_the_node_that_it_mounts() -> None:
    assert is_plugin(plugin())
    assert is_plugin(plugin(path=f"{SOCKETS}/"))
    assert not is_plugin(plugin(path="/var/lib/kubelet"))
    assert not is_plugin(Pod(spec=PodSpec(containers=[Container(name="main")])))

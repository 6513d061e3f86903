# SPDX-License-Identifier: Apache-2.0
"""The readiness checks, run with a stand-in for the vendor's tool that prints what the real one does."""

import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from components import readiness_words
from components.device_plugins import Nodes
from components.readiness import CHECKS
from components.readiness_words import words
from tests.components.recorder import Recording

# The form of `nvidia-smi --query-gpu=index,uuid,name,driver_version --format=csv,noheader`.
ONE = "0, GPU-6f2c1d9e-1111-2222-3333-444455556666, NVIDIA A100 80GB PCIe, 550.144.03"
TWO = f"{ONE}\n1, GPU-6f2c1d9e-1111-2222-3333-444455557777, NVIDIA A100 80GB PCIe, 550.144.03"
LOST = "0, GPU-6f2c1d9e-1111-2222-3333-444455556666, [GPU is lost], [GPU is lost]"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
# Of `amd-smi static --driver`, in the form of ROCm 7 and of ROCm 6.
AMD_NEW = (
    "GPU: 0\n    DRIVER:\n        NAME: amdgpu\n        VERSION: 6.12.12\n"
    "        OS_KERNEL_VERSION: 5.15.0-164-generic\n"
)
AMD_OLD = "GPU: 0\n    DRIVER:\n        DRIVER_NAME: amdgpu\n        DRIVER_VERSION: 6.7.0\n"
AMD_OF_THE_KERNEL = (
    "GPU: 0\n    DRIVER:\n        NAME: amdgpu\n        VERSION: Linuxversion6.17.0-1012-oem\n"
)


def run(
    vendor: str, folder: Path, prints: str | None, *, code: int = 0, minimum: str, devices: int = 1
) -> tuple[int, str]:
    """Exit code and output of the check where the vendor's tool prints that; None: there is no such tool."""
    for name in ("grep", "sed", "sort", "head", "cut"):
        (folder / name).symlink_to(
            f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}"
        )
    if prints is not None:
        tool = folder / {"nvidia": "nvidia-smi", "amd": "amd-smi"}[vendor]
        said = folder / "said"
        said.write_text(prints)
        tool.write_text(
            f"#!/bin/sh\nwhile IFS= read -r line; do echo \"$line\"; done <'{said}'\nexit {code}\n"
        )
        tool.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", (CHECKS / f"{vendor}.sh").read_text()],
        env={"PATH": os.fspath(folder), "NODE": "gpu-1", "MINIMUM_DRIVER": minimum, "DEVICES": str(devices)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_good_node_says_its_driver_and_its_gpus(tmp_path: Path) -> None:
    code, said = run("nvidia", tmp_path, TWO + "\n", minimum="535.104.05", devices=2)
    assert (code, said) == (0, f"node gpu-1 is ready: driver 550.144.03\n{TWO}\n")


@pytest.mark.parametrize(
    ("minimum", "expected"),
    [("550.144.03", 0), ("550.144.2", 0), ("550.144.04", 1), ("550.144.12", 1), ("1000", 1), ("99.9", 0)],
)
def test_versions_are_compared_part_by_part(tmp_path: Path, minimum: str, expected: int) -> None:
    code, _ = run("nvidia", tmp_path, ONE + "\n", minimum=minimum)
    assert code == expected


def test_an_old_driver_is_named_with_the_oldest_that_will_do_and_the_way_out(tmp_path: Path) -> None:
    code, said = run("nvidia", tmp_path, ONE + "\n", minimum="570.0")
    assert code == 1
    assert said.splitlines()[:2] == [
        "node gpu-1 is not ready: its driver is 550.144.03, and 570.0 is the oldest that will do",
        "what to do: upgrade the pool's node image, or set gpuheap:devices.minimumDriver.nvidia",
    ]


@pytest.mark.parametrize(
    ("prints", "code", "reason"),
    [
        (None, 0, "there is no nvidia-smi"),
        (NO_DRIVER + "\n", 9, "nvidia-smi ended with 9"),
        ("No devices were found\n", 0, "the driver sees no GPU"),
        ("No devices were found\n", 6, "nvidia-smi ended with 6"),
        (LOST + "\n", 0, "a GPU does not answer"),
        (ONE + "\n", 0, "the pod was given 2 GPUs and the driver shows 1"),
        ("", 0, "the driver sees no GPU"),
        (
            "0, GPU-1, NVIDIA A100, \n1, GPU-2, NVIDIA A100, \n",
            0,
            "nvidia-smi shows no version of the driver",
        ),
    ],
)
def test_what_is_wrong_with_a_node_is_said_with_what_the_tool_said(
    tmp_path: Path, prints: str | None, code: int, reason: str
) -> None:
    ended, said = run("nvidia", tmp_path, prints, code=code, minimum="535", devices=2)
    assert ended == 1
    assert said.startswith(f"node gpu-1 is not ready: {reason}")
    assert "\nwhat to do: " in said
    assert (prints or "").strip() in said


@pytest.mark.parametrize(("prints", "version"), [(AMD_NEW, "6.12.12"), (AMD_OLD, "6.7.0")])
def test_a_good_amd_node_says_its_driver(tmp_path: Path, prints: str, version: str) -> None:
    code, said = run("amd", tmp_path, prints, minimum="6.7")
    assert (code, said.splitlines()[0]) == (0, f"node gpu-1 is ready: driver {version}")


@pytest.mark.parametrize(
    ("prints", "code", "reason"),
    [
        (None, 0, "there is no amd-smi in the image of the check"),
        ("ERROR: no amdgpu driver\n", 1, "amd-smi ended with 1"),
        ("", 0, "the driver sees no GPU"),
        (AMD_NEW, 0, "the pod was given 2 GPUs and the driver shows 1"),
        (AMD_OF_THE_KERNEL * 2, 0, "its driver has no version of its own (Linuxversion6.17.0-1012-oem)"),
        (AMD_OLD * 2, 0, "its driver is 6.7.0, and 6.10 is the oldest that will do"),
    ],
)
def test_what_is_wrong_with_an_amd_node_is_said(
    tmp_path: Path, prints: str | None, code: int, reason: str
) -> None:
    ended, said = run("amd", tmp_path, prints, code=code, minimum="6.10", devices=2)
    assert ended == 1
    assert said.startswith(f"node gpu-1 is not ready: {reason}")


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_however_much_the_tool_says_the_kubelet_keeps_what_is_wrong(tmp_path: Path, vendor: str) -> None:
    _, said = run(vendor, tmp_path, ("x" * 500 + "\n") * 200, code=9, minimum="1")
    # https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
    kept = said.encode()[-2048:].decode()
    assert kept.startswith(f"node gpu-1 is not ready: {vendor}-smi ended with 9\nwhat to do: ")
    assert f"{vendor}-smi said:\nxxx" in kept


def test_words_for_a_check_that_never_ran_name_the_pool_what_it_asks_for_and_where_to_look() -> None:
    nodes = Nodes(label="kubernetes.azure.com/agentpool", values=("share",))
    said = words("share", "nvidia.com/mig-1g.10gb", nodes, "gpu-readiness", 600).splitlines()
    assert said[0].startswith(
        "the nodes of pool share are not ready: within 600 s not all of them ran the check"
    )
    assert "asks for one nvidia.com/mig-1g.10gb" in said[0]
    assert "  kubectl -n gpu-readiness get events" in said
    assert "  kubectl describe nodes -l 'kubernetes.azure.com/agentpool in (share)'" in said


def test_an_engine_that_is_too_old_to_call_programs_back_is_asked_for_nothing(
    dev: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dev["readiness-gpu"].request.hooks.on_error == ["readiness-gpu-words"]
    monkeypatch.setattr(readiness_words, "monitor_supports_feature", lambda _feature: False)
    assert readiness_words.said_when_time_is_up("words", "", cast("Any", None)) is None

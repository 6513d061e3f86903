# SPDX-License-Identifier: Apache-2.0
"""Ordinals to UUIDs: answers by hand from the documents that devices.py names, and those of PyTorch's own tests."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuheap.tracer.devices import Gpu, device_nodes, installed_gpus, uuid_of

A = "GPU-9942190a-aa31-4ff1-4aa9-c388d80f85f1"
B = "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293"
C = "GPU-e429a63e-c61c-4795-b757-5132caeb8e70"
D = "GPU-e56257c4-947f-6a5b-7ec9-0f45567ccf4e"
SLICE = "MIG-1f292bf8-f63f-570f-a866-efaab3ceb50a"
OTHER_SLICE = "MIG-89c850dc-0000-5000-8000-000000000000"
OLD_SLICE = f"MIG-{A}/7/0"


def machine(*uuids: str, models: str = "", sliced: str = "") -> tuple[Gpu, ...]:
    """GPUs in PCI order; `models` has a letter for each, of one model without."""
    return tuple(
        Gpu(
            uuid=uuid,
            model=models[at : at + 1] or "NVIDIA H100 80GB HBM3",
            bus=f"0000:{at + 1:02x}:00.0",
            minor=7 - at,  # minors need not follow PCI order
            sliced=bool(sliced) and uuid == sliced,
        )
        for at, uuid in enumerate(uuids)
    )


FOUR = machine(A, B, C, D)
MIXED = machine(A, B, C, D, models="LHHH")
SLICED = machine(A, B, sliced=A)


def seen(
    gpus: tuple[Gpu, ...] = FOUR, nodes: frozenset[int] | None = None, /, **environment: str
) -> list[str]:
    """What each ordinal stands for, up to the last that is known."""
    found = [uuid_of(ordinal, environment, gpus, nodes) for ordinal in range(8)]
    while found and not found[-1]:
        found.pop()
    return found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", [A]),
        ("2,1", [C, B]),  # the programming guide's example
        ("0,2,-1,1", [A, C]),  # the programming guide's example
        ("-1", []),
        ("", []),
        (" ", []),
        ("0,1,4,2", [A, B]),
        ("NoDevFiles", []),
        ("one,two,3,1", []),
        ("3,2,two,one", [D, C]),
        (" 1, 3", [B, D]),
        ("1gpu2,2ampere", [B, C]),
        ("2, +3, -0", [C, D, A]),
        ("0,1,2,1", []),
        ("0,1,-1,1", [A, B]),
        ("1,", [B]),
        (",1", []),
        ("99999999999999999999,0", []),
        ("0," + "1" * 10_000, [A]),
        ("٣,0", []),
        (B, [B]),
        (f"{D},{A}", [D, A]),
        ("GPU-9e8d35e3", [B]),
        ("GPU-9E8D35E3", [B]),
        ("GPU-e4,GPU-9e8d35e3", [C, B]),
        ("GPU-e", []),
        ("GPU-9e8d35e3,GPU-e,GPU-99", [B]),
        ("GPU-9e8d35e3,GPU-123,GPU-99", [B]),
        ("GPU-9e8d35e3,GPU-99,GPU-9e8", []),
        (f"1,{A}", [B, A]),
        (f"1,{B}", []),
        (SLICE, [SLICE]),
        (OLD_SLICE, [OLD_SLICE]),
        (f"{SLICE},{OTHER_SLICE}", [SLICE, OTHER_SLICE]),
        ("MIG-1f292bf8", []),
    ],
)
def test_cuda_visible_devices_chooses_and_orders(value: str, expected: list[str]) -> None:
    assert seen(CUDA_VISIBLE_DEVICES=value) == expected


def test_without_variables_all_gpus_are_there_in_pci_order() -> None:
    assert seen() == [A, B, C, D]


def test_an_ordinal_that_cannot_be_one_stands_for_nothing() -> None:
    assert uuid_of(-1, {}, FOUR) == uuid_of(4, {}, FOUR) == uuid_of(0, {}, ()) == ""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, []),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, []),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [A, B, C, D]),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "3,0"}, [D, A]),
        ({"CUDA_VISIBLE_DEVICES": "3,0"}, []),
        ({"CUDA_VISIBLE_DEVICES": f"3,{B}"}, ["", B]),
        ({"CUDA_VISIBLE_DEVICES": f"{C},{A}"}, [C, A]),
        ({"NVIDIA_VISIBLE_DEVICES": "2,1"}, [B, C]),  # those two are of one model
        ({"NVIDIA_VISIBLE_DEVICES": "0,1"}, []),
    ],
)
def test_among_different_models_a_number_is_known_only_in_pci_order(
    environment: dict[str, str], expected: list[str]
) -> None:
    assert seen(MIXED, **environment) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("all", [A, B, C, D]),
        ("none", []),
        ("2", [C]),
        ("3,1", [B, D]),  # a set: CUDA's order is not the list's
        (f"{D},{A}", [A, D]),
        ("GPU-9e8d", [B]),
        ("nvidia.com/gpu=2", [C]),
        (f"management.nvidia.com/gpu={D}", [D]),
        ("nvidia.com/gpu=all", [A, B, C, D]),
        ("void", []),
        ("", []),
        ("7", []),
        ("GPU-e", []),
        (SLICE, [SLICE]),
        (OLD_SLICE, [OLD_SLICE]),
        ("0:1", []),
        (f"{SLICE},{OTHER_SLICE}", []),
    ],
)
def test_nvidia_visible_devices_says_what_a_container_has(value: str, expected: list[str]) -> None:
    assert seen(NVIDIA_VISIBLE_DEVICES=value) == expected


@pytest.mark.parametrize(
    ("container", "chosen", "expected"),
    [
        ("3,1", "1", [D]),
        ("3,1", "1,0", [D, B]),
        ("3,1", "2", []),
        ("3,1", "GPU-e", [D]),  # the other that starts so is not in the container
        ("3,1", A, []),
        (SLICE, "0", [SLICE]),
        (SLICE, "1", []),
        ("0:1", SLICE, [SLICE]),
        (f"{SLICE},{OTHER_SLICE}", OTHER_SLICE, [OTHER_SLICE]),
        ("void", "0", []),
        ("void", B, [B]),
        ("all", "", []),
    ],
)
def test_cuda_visible_devices_counts_what_the_container_has(
    container: str, chosen: str, expected: list[str]
) -> None:
    assert seen(NVIDIA_VISIBLE_DEVICES=container, CUDA_VISIBLE_DEVICES=chosen) == expected


@pytest.mark.parametrize("container", ["void", "", "all", "0"])
def test_device_nodes_tell_what_a_container_has_whatever_its_variable_says(container: str) -> None:
    assert seen(FOUR, frozenset({6, 4}), NVIDIA_VISIBLE_DEVICES=container) == [B, D]


def test_device_nodes_count_also_where_the_variable_is_not_set() -> None:
    assert seen(FOUR, frozenset({4}), CUDA_VISIBLE_DEVICES="0") == [D]


def test_the_variable_decides_where_there_are_no_device_nodes() -> None:
    assert seen(FOUR, frozenset(), NVIDIA_VISIBLE_DEVICES="1") == [B]


def test_the_only_gpu_of_a_machine_is_the_one_that_a_process_uses() -> None:
    assert seen(machine(A), NVIDIA_VISIBLE_DEVICES="void") == [A]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, []),
        ({"CUDA_VISIBLE_DEVICES": "0"}, []),
        ({"CUDA_VISIBLE_DEVICES": A}, []),
        ({"CUDA_VISIBLE_DEVICES": B}, [B]),
        ({"CUDA_VISIBLE_DEVICES": SLICE}, [SLICE]),
        ({"NVIDIA_VISIBLE_DEVICES": SLICE}, [SLICE]),
        ({"NVIDIA_VISIBLE_DEVICES": "1"}, [B]),
        ({"NVIDIA_VISIBLE_DEVICES": "0"}, []),
    ],
)
def test_a_divided_gpu_is_never_taken_for_its_slice(environment: dict[str, str], expected: list[str]) -> None:
    assert seen(SLICED, **environment) == expected


def test_a_whole_uuid_stands_for_itself_where_the_machines_gpus_are_not_known() -> None:
    assert seen((), CUDA_VISIBLE_DEVICES=f"{C},GPU-99,{A}") == [C, "", A]
    assert seen(machine("", ""), CUDA_VISIBLE_DEVICES=B) == [B]


@pytest.mark.parametrize(
    ("gpus", "nodes"),
    [((), None), (machine("", ""), None), (machine("", ""), frozenset({6})), (machine(""), frozenset({7}))],
)
def test_a_containers_only_gpu_is_known_before_its_first_use(
    gpus: tuple[Gpu, ...], nodes: frozenset[int] | None
) -> None:
    assert seen(gpus, nodes, NVIDIA_VISIBLE_DEVICES=B) == [B]


WORDS = ["all", "none", "void", "GPU-", "MIG-", "MIG-GPU-", A, B, SLICE, "nvidia.com/gpu="]
PIECES = st.sampled_from([*"0123,:;=+-/. \0٣", *WORDS])
VALUES = st.one_of(
    st.binary(max_size=40).map(lambda value: value.decode(errors="replace")),
    st.lists(PIECES, max_size=12).map("".join),
)
NAMES = st.sampled_from(["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"])


@given(
    st.integers(-2, 9),
    st.dictionaries(NAMES, VALUES),
    st.sampled_from([(), FOUR, MIXED, SLICED, machine(A), machine("", B)]),
    st.none() | st.frozensets(st.integers(0, 8)),
)
def test_any_text_gives_a_uuid_or_nothing(
    ordinal: int, environment: dict[str, str], gpus: tuple[Gpu, ...], nodes: frozenset[int] | None
) -> None:
    found = uuid_of(ordinal, environment, gpus, nodes)
    named = "".join(environment.values())
    assert found == "" or found in {gpu.uuid for gpu in gpus} or found in named, "no UUID is made up"


# The content of a real file, of a machine with eight such GPUs.
INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 10
GPU UUID: \t GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b
Video BIOS: \t 96.00.99.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t 0000:62:00.0
Device Minor: \t 5
GPU Firmware: \t 535.129.03
GPU Excluded:\t No
"""


def describe(root: Path, address: str, content: str | bytes = INFORMATION) -> None:
    folder = root / "gpus" / address
    folder.mkdir(parents=True)
    (folder / "information").write_bytes(content if isinstance(content, bytes) else content.encode())


def test_a_gpu_is_read_from_the_kernel_modules_file(tmp_path: Path) -> None:
    describe(tmp_path, "0000:62:00.0")
    assert installed_gpus(tmp_path / "gpus") == (
        Gpu(
            uuid="GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b",
            model="NVIDIA H100 80GB HBM3",
            bus="0000:62:00.0",
            minor=5,
        ),
    )


def test_gpus_are_in_the_order_of_their_pci_addresses(tmp_path: Path) -> None:
    for address in ("10000:01:00.0", "0001:00:00.0", "0000:e1:00.0", "0000:07:00.0"):
        describe(tmp_path, address, f"Bus Location: {address}\n")
    buses = [gpu.bus for gpu in installed_gpus(tmp_path / "gpus")]
    assert buses == ["0000:07:00.0", "0000:e1:00.0", "0001:00:00.0", "10000:01:00.0"]


def test_a_gpu_that_was_never_used_has_no_uuid_and_keeps_its_place(tmp_path: Path) -> None:
    describe(tmp_path, "0000:62:00.0")
    unused = INFORMATION.replace(
        "9221d5d1-b60b-a624-bf14-0a1819cfda3b", "????????-????-????-????-????????????"
    )
    describe(tmp_path, "0000:01:00.0", unused)
    assert [uuid_of(ordinal, {}, installed_gpus(tmp_path / "gpus")) for ordinal in (0, 1)] == [
        "",
        "GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b",
    ]


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 300_000, b"GPU UUID: ../../etc\nDevice Minor: \xd9\xa3\nModel", b":\n::\n\0"]
)
def test_a_file_that_makes_no_sense_leaves_its_gpu_nameless(tmp_path: Path, content: bytes) -> None:
    describe(tmp_path, "0000:01:00.0", content)
    (found,) = installed_gpus(tmp_path / "gpus")
    assert (found.uuid, found.minor, found.bus) == ("", -1, "0000:01:00.0")


def test_what_is_no_gpus_folder_is_left_out(tmp_path: Path) -> None:
    describe(tmp_path, "0000:62:00.0")
    describe(tmp_path, "..0000:01:00.0")
    (tmp_path / "gpus" / "0000:63:00.0" / "information").mkdir(parents=True)
    assert [gpu.bus for gpu in installed_gpus(tmp_path / "gpus")] == ["0000:62:00.0", "0000:63:00.0"]


def test_a_gpu_that_the_module_excludes_has_no_place(tmp_path: Path) -> None:
    describe(tmp_path, "0000:01:00.0", INFORMATION.replace("Excluded:\t No", "Excluded:\t Yes"))
    assert installed_gpus(tmp_path / "gpus") == ()


def test_a_gpu_with_mig_instances_is_known_as_divided(tmp_path: Path) -> None:
    describe(tmp_path, "0000:62:00.0")
    mig = tmp_path / "capabilities/gpu5/mig"
    mig.mkdir(parents=True)
    assert not installed_gpus(tmp_path / "gpus")[0].sliced
    (mig / "gi7/ci0").mkdir(parents=True)
    assert installed_gpus(tmp_path / "gpus")[0].sliced


def test_a_machine_without_the_kernel_module_has_no_gpus(tmp_path: Path) -> None:
    assert installed_gpus(tmp_path / "gpus") == ()


def test_device_nodes_are_those_in_the_process_s_dev(tmp_path: Path) -> None:
    dev = tmp_path.joinpath("4711", "root", "dev")
    dev.mkdir(parents=True)
    for name in ("nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia3x", "null"):
        (dev / name).touch()
    assert device_nodes(4711, tmp_path) == frozenset({0, 12})
    assert device_nodes(4712, tmp_path) is None

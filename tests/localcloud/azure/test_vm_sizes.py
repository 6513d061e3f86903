# SPDX-License-Identifier: Apache-2.0
import pytest

from localcloud.azure.vm_sizes import slice_name, vm_size


@pytest.mark.parametrize(
    ("name", "processors", "gpus", "vendor"),
    [
        ("Standard_D4s_v5", 4, 0, None),
        ("Standard_NC24ads_A100_v4", 24, 1, "nvidia"),
        ("Standard_NC48ads_A100_v4", 48, 2, "nvidia"),
        ("Standard_NC96ads_A100_v4", 96, 4, "nvidia"),
        ("Standard_NC4as_T4_v3", 4, 1, "nvidia"),
        ("Standard_NC64as_T4_v3", 64, 4, "nvidia"),
        ("Standard_NC40ads_H100_v5", 40, 1, "nvidia"),
        ("Standard_ND96isr_H100_v5", 96, 8, "nvidia"),
        ("Standard_ND96isr_MI300X_v5", 96, 8, "amd"),
        ("Standard_NV36ads_A10_v5", 36, 1, "nvidia"),
        ("Standard_NV4as_v4", 4, 1, "amd"),
        ("Standard_NG32ads_V620_v1", 32, 1, "amd"),
    ],
)
def test_a_size_has_what_its_data_sheet_says(
    name: str, processors: int, gpus: int, vendor: str | None
) -> None:
    size = vm_size(name)
    assert (size.processors, size.gpus, size.gpu_vendor) == (processors, gpus, vendor)


@pytest.mark.parametrize(
    ("name", "slices"),
    [
        ("Standard_ND96asr_v4", ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]),
        ("Standard_NC24ads_A100_v4", ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]),
        ("Standard_NC40ads_H100_v5", ["1g.12gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"]),
        ("Standard_NC80adis_H100_v5", ["1g.12gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"]),
        ("Standard_ND96isr_H200_v5", ["1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"]),
        ("Standard_NCC40ads_H100_v5", [None] * 5),
        ("Standard_NC4as_T4_v3", [None] * 5),
    ],
)
def test_instances_have_the_names_of_nvidias_tables(name: str, slices: list[str | None]) -> None:
    assert [slice_name(name, f"MIG{profile}g") for profile in (1, 2, 3, 4, 7)] == slices

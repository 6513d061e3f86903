# SPDX-License-Identifier: Apache-2.0
"""The memory of GPUs, against the tables of Azure's documentation."""

import pytest

from alerts.capacity import gpu_bytes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("size", "gib"),
    [
        ("Standard_NC24ads_A100_v4", 80),
        ("Standard_NC96ads_A100_v4", 80),
        ("standard_nd96asr_v4", 40),
        ("Standard_ND96isr_MI300X_v5", 192),
        ("Standard_NV36ads_A10_v5", 24),
        ("Standard_NV6ads_A10_v5", 4),
        ("Standard_NC6s_v3", 16),
    ],
)
def test_a_gpu_has_the_memory_of_azures_table(size: str, gib: int) -> None:
    assert gpu_bytes(size) == gib * GIB


@pytest.mark.parametrize(
    "size", ["Standard_NC40ads_H100_v5", "Standard_NC80adis_H100_v5", "Standard_ND96isr_H200_v5"]
)
def test_sizes_with_odd_amounts_are_known(size: str) -> None:
    assert gpu_bytes(size)


def test_a_slice_has_its_part() -> None:
    # The MIG guide: 1g.10gb and 3g.40gb of an A100 with 80 GB.
    assert gpu_bytes("Standard_NC24ads_A100_v4", "MIG1g") == 10 * GIB
    assert gpu_bytes("Standard_NC24ads_A100_v4", "3g") == 40 * GIB


@pytest.mark.parametrize(
    ("size", "profile"), [("Standard_NC24ads_A200_v9", None), ("Standard_NC24ads_A100_v4", "9g")]
)
def test_what_is_not_in_the_tables_is_not_guessed(size: str, profile: str | None) -> None:
    assert gpu_bytes(size, profile) is None

# SPDX-License-Identifier: Apache-2.0
import pytest

from gpuheap.heap.quantities import bytes_text, count_text, cuda_result_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (340 * 1024, "340 KiB"),
        (12 * 1024**2, "12.0 MiB"),
        (3 * 1024**3 // 2, "1.50 GiB"),
        (1024**3 - 1, "1.00 GiB"),
        (1000 * 1024**2, "1000 MiB"),
        (-2048, "-2.00 KiB"),
        (5 * 1024**6, "5.00 EiB"),
        (5000 * 1024**6, "5000 EiB"),
    ],
)
def test_bytes_are_worded_in_binary_units(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_one_thing_is_not_many_things() -> None:
    assert (count_text(1, "allocation"), count_text(12000, "allocation")) == (
        "1 allocation",
        "12,000 allocations",
    )
    assert count_text(2, "process", "processes") == "2 processes"


def test_a_driver_result_has_its_name_in_cuda_h() -> None:
    assert cuda_result_text(2) == "CUDA_ERROR_OUT_OF_MEMORY (2)"
    assert cuda_result_text(12345) == "CUresult (12345)"

# SPDX-License-Identifier: Apache-2.0
"""How numbers and driver results are worded for people."""

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

# CUresult of cuda.h; the ones that an allocation call can return.
_CUDA_RESULTS: Final = {
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    4: "CUDA_ERROR_DEINITIALIZED",
    201: "CUDA_ERROR_INVALID_CONTEXT",
    709: "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    800: "CUDA_ERROR_NOT_PERMITTED",
    801: "CUDA_ERROR_NOT_SUPPORTED",
    999: "CUDA_ERROR_UNKNOWN",
}


def bytes_text(count: int) -> str:
    """Bytes to three digits (four from 1000 to 1023) with a binary unit: `512 B`, `1.50 GiB`, `12.0 MiB`, `340 KiB`."""
    value, unit = float(count), 0
    while abs(value) >= 1023.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    if unit == 0:
        return f"{count} B"
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {_UNITS[unit]}"


def count_text(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 allocation`, `12,000 allocations`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def cuda_result_text(code: int) -> str:
    """The name of a CUresult with its number."""
    return f"{_CUDA_RESULTS.get(code, 'CUresult')} ({code})"

# SPDX-License-Identifier: Apache-2.0
"""Which CPython a file holds, and where that keeps its frames: the layout for the walk in bpf/python.bpf.h.

Owns what is supported and how versions are told; the tables are in `cpython_layouts` (3.8 to 3.12) and `debug_offsets`
(3.13 and newer). A version that is not known here is never guessed at.
"""

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from .cpython_layouts import LAYOUTS, Layout
from .debug_offsets import COOKIE, DEBUG_OFFSETS_BYTES, DESCRIBED, NoSense, described

SUPPORTED: Final = "3.8 to 3.15"

FIRST_EXPORTED: Final = {
    (3, 8): "Py_InitializeFromConfig",
    (3, 9): "PyFrame_GetCode",
    (3, 10): "Py_NewRef",
    (3, 11): "Py_Version",
}
"""Functions by the version that began to export them ("New in version" in the C API's documentation)."""

RELEASE_CANDIDATE: Final = 0xC0
"""In PY_VERSION_HEX; from then on a version's structures stay as they are."""

COUNTING: Final = ((3, 13),)
"""3.12 has the same counter, and numbers its code objects by another one, which is nowhere to be found."""
_DTOA_POOL_BYTES: Final = 2304  # PRIVATE_MEM in Include/internal/pycore_dtoa.h


class Unsupported(Exception):
    """The interpreter's layout is not known; the text names the version or what is odd about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A version, and its layout."""

    version: tuple[int, int]
    layout: Layout


def code_counter(version: tuple[int, int], runtime: bytes, pointers: Mapping[int, int]) -> int:
    """Where in `_PyRuntime` the main interpreter counts the code objects that it has made; 0 when it was not found.

    `func_state.next_version` of 3.13: each new code object takes a number there, and functions can. It comes right
    behind the dtoa state (Include/internal/pycore_interp.h), whose last field points at its own memory pool, 2304 bytes
    before: no other pointer does. In the file it is 1. Where it is, differs with the patch version; `pointers` are
    those in `_PyRuntime` to itself.
    """
    if version not in COUNTING:
        return 0
    places = [place + 8 for place, target in pointers.items() if place - target == _DTOA_POOL_BYTES]
    counters = [place for place in places if runtime[place : place + 4] == b"\1\0\0\0"]
    return counters[0] if len(counters) == 1 else 0


def layout(number: int | None, exported: Collection[str], runtime: bytes) -> Described:
    """The version and its layout. Raises Unsupported.

    `runtime` is the beginning of `_PyRuntime` in the interpreter's file. `number` is PY_VERSION_HEX as it exports it as
    `Py_Version` (None before 3.11), and `exported` those of FIRST_EXPORTED that it has: needed only before 3.13.
    """
    table = runtime.startswith(COOKIE)
    if table:
        if len(runtime) < DEBUG_OFFSETS_BYTES:
            raise Unsupported("its _PyRuntime is cut short")
        number = struct.unpack_from("<Q", runtime, len(COOKIE))[0]
    version = _named(number) if number is not None else _by_exports(exported)
    if version is None:
        raise Unsupported(f"CPython older than 3.8 is not supported (supported: {SUPPORTED})")
    name = f"CPython {version[0]}.{version[1]}"
    if version not in (DESCRIBED if table else LAYOUTS):
        raise Unsupported(f"{name} is not supported (supported: {SUPPORTED})")
    if number is not None and number & 0xF0 < RELEASE_CANDIDATE:
        raise Unsupported(f"a {name} from before its release candidates is not supported")
    if not table:
        return Described(version=version, layout=LAYOUTS[version])
    try:
        return Described(version=version, layout=described(runtime, version))
    except NoSense as reason:
        raise Unsupported(f"{name} is not what it says: {reason}") from reason


def _named(number: int) -> tuple[int, int]:
    return number >> 24 & 0xFF, number >> 16 & 0xFF


def _by_exports(exported: Collection[str]) -> tuple[int, int] | None:
    return max((version for version, name in FIRST_EXPORTED.items() if name in exported), default=None)

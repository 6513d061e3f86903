# SPDX-License-Identifier: Apache-2.0
"""Has the kernel side count how many code objects a Python frees that does not count them itself (3.9 to 3.12).

While that number stands still, a code object's address is the same code, and a stack that was seen before is recognised
by addresses alone (bpf/python.bpf.h). The probe is on the function that frees code objects, PyCode_Type.tp_dealloc,
and only in processes that use the driver, from their first call on; until then stacks are recognised in the slower way.
Where it cannot be set, they always are.
"""

import logging
import struct
import time
from ctypes import c_uint32
from typing import Final

from . import libbpf
from .abi import CodeDeaths as Deaths
from .errors import AttachError
from .interpreter_files import InterpreterFile
from .mappings import Mapping, mappings
from .process_memory import read_memory

LOGGER: Final = logging.getLogger(__name__)

VERSIONS: Final = ((3, 9), (3, 10), (3, 11), (3, 12))
"""3.13 and newer count. In 3.8 `tp_dealloc` is called wherever a reference is given up, not in one place for all types:
there a compiler that knows the profile can put the function itself, and a probe at its beginning would miss some."""

_DEALLOC: Final = 48
"""Offset of tp_dealloc in PyTypeObject, 3.8 to 3.15."""


class CodeDeaths:
    """The probes of all processes, each taken away when its process has ended."""

    def __init__(self, bpf: libbpf.BpfObject) -> None:
        self._bpf = bpf
        self._counts = bpf.map_fd("code_deaths")
        self._links: dict[int, int] = {}

    def begin(self, image: int, pid: int, interpreter: tuple[InterpreterFile, Mapping] | None) -> None:
        """The process has called the driver for the first time."""
        if interpreter is None or interpreter[0].version not in VERSIONS or image in self._links:
            return
        address = _function(pid, *interpreter)
        code = next((one for one in mappings(pid) if one.executable and one.start <= address < one.end), None)
        if code is None or code.file != interpreter[1].file:
            LOGGER.info(
                "freed code is not counted pid=%d reason=its tp_dealloc is not the interpreter's", pid
            )
            return
        probe = libbpf.Uprobe(program="code_dies", offset=address - code.start + code.offset)
        try:
            with code.opened(pid) as path:
                self._links[image] = self._bpf.attach_to_process(probe, str(path), pid)
        except (OSError, AttachError) as error:
            LOGGER.info("freed code is not counted pid=%d reason=%s", pid, error)
            return
        libbpf.update(self._counts, c_uint32(pid), Deaths(image=image, count=time.monotonic_ns()))

    def end(self, image: int) -> None:
        """It has ended; the kernel side has forgotten its number."""
        link = self._links.pop(image, None)
        if link is not None:
            self._bpf.detach(link)


def _function(pid: int, file: InterpreterFile, mapping: Mapping) -> int:
    """The address of `tp_dealloc` of PyCode_Type, 0 when it cannot be read."""
    kind = file.address_of(file.code_type, mapping) if file.code_type else None
    content = read_memory(pid, kind + _DEALLOC, 8) if kind else b""
    return int(struct.unpack("<Q", content)[0]) if len(content) == 8 else 0

# SPDX-License-Identifier: Apache-2.0
"""Sets the probes: on each driver and each interpreter once, by file, whoever maps it and wherever.

Knows files, not the memory of processes; of running ones it tells the kernel side where their interpreter is.
"""

import logging
from collections.abc import Callable, Sequence
from ctypes import c_uint32, c_uint64
from functools import partial
from pathlib import Path
from typing import Final

from gpuheap.stacks.elf import NotUsable

from . import libbpf
from .driver_files import driver_file, installed_drivers, looks_like_driver
from .errors import AttachError
from .interpreter_files import (
    InterpreterFile,
    Unsupported,
    installed_interpreters,
    interpreter_file,
    looks_like_interpreter,
)
from .mappings import FileId, Mapping, file_id, mappings, processes

LOGGER: Final = logging.getLogger(__name__)


class Probes:
    """The probes of one loaded object.

    A file is done when its probes are set, or when it was read and is none of ours. A file that could not be opened or
    probed, as its process was ending, stays to be tried with the next process that maps it.
    """

    def __init__(self, bpf: libbpf.BpfObject) -> None:
        self._bpf = bpf
        self._drivers: set[FileId] = set()
        self._interpreters: dict[FileId, InterpreterFile | None] = {}
        self._in_process = bpf.map_fd("interpreters")
        self._files = bpf.map_fd("interpreter_files")
        self._cookie = 0
        self.failed = 0
        """Files that should have been probed and could not be."""
        self.drivers_found_late = 0
        """Times that a driver was probed only when a process had mapped it: its first calls may have passed unseen."""
        self.unsupported: dict[FileId, str] = {}
        """Interpreters whose layout is not known, with the reason."""

    def set_initially(self, commands: tuple[str, ...] = ()) -> None:
        """On what is installed, what `commands` will run, and all that the processes of this moment have mapped."""
        for path in installed_drivers():
            self._installed(path, self._driver)
        for path in installed_interpreters(commands):
            self._installed(path, self._interpreter)
        for pid in processes():
            self._look_at(pid)

    def look_at(self, pid: int) -> None:
        """Probe what this process has mapped, and tell the kernel side where its interpreter is."""
        before = len(self._drivers)
        self._look_at(pid)
        self.drivers_found_late += len(self._drivers) - before

    def mapped(self, pid: int, file: FileId, path: str) -> None:
        """A process has just mapped this file.

        Looked at also when the interpreter is known: it may have started while the probe was being set.
        """
        if looks_like_interpreter(path) or (looks_like_driver(path) and file not in self._drivers):
            self.look_at(pid)
            if file not in self._drivers and file not in self._interpreters:
                self._left_behind(file, Path(path))

    def why_no_python(self, pid: int) -> str | None:
        """Why stacks of this process may lack Python; None for a process without Python."""
        for mapping in mappings(pid):
            if mapping.file in self.unsupported:
                return self.unsupported[mapping.file]
            if self._interpreters.get(mapping.file):
                return "Python stack missed: the interpreter was found too late"
        return None

    def _look_at(self, pid: int) -> None:
        for mapping in mappings(pid):
            if not mapping.executable:
                continue
            if looks_like_driver(mapping.path) and mapping.file not in self._drivers:
                self._opened(mapping, pid, self._driver)
            elif looks_like_interpreter(mapping.path):
                if mapping.file not in self._interpreters:
                    self._opened(mapping, pid, partial(self._interpreter, user=(mapping, pid)))
                self._place(self._interpreters.get(mapping.file), mapping, pid)

    def _place(self, file: InterpreterFile | None, mapping: Mapping, pid: int) -> None:
        here = file.in_process(mapping) if file else None
        if here is not None:
            libbpf.update(self._in_process, c_uint32(pid), here)

    def _opened(self, mapping: Mapping, pid: int, act: Callable[[FileId, Path, str], None]) -> None:
        try:
            with mapping.opened(pid) as path:
                act(mapping.file, path, mapping.path)
        except OSError as error:
            self.failed += 1
            LOGGER.warning("not probed file=%s pid=%d reason=%s", mapping.path, pid, error.strerror)

    def _left_behind(self, file: FileId, path: Path) -> None:
        """Of a process that has gone again: the file, if it is the one that has this name here too."""
        try:
            if file_id(path) != file:
                return
        except OSError:
            return
        before = len(self._drivers)
        act = self._driver if looks_like_driver(str(path)) else self._interpreter
        act(file, path, str(path))
        self.drivers_found_late += len(self._drivers) - before

    def _installed(self, path: Path, act: Callable[[FileId, Path, str], None]) -> None:
        try:
            act(file_id(path), path, str(path))
        except OSError as error:
            LOGGER.info("not probed file=%s reason=%s", path, error.strerror)

    def _driver(self, file: FileId, path: Path, name: str) -> None:
        if file in self._drivers:
            return
        try:
            found = driver_file(path)
        except NotUsable as error:
            self._drivers.add(file)
            self.failed += 1
            LOGGER.warning("not probed file=%s reason=%s", name, error)
            return
        # The return first: an entry without its return would wait for ever.
        probes = (
            [
                libbpf.Uprobe(program=f"{program}_{place}", offset=offset, on_return=place == "return")
                for program, offset in (("cu_mem_alloc", found.allocate), ("cu_mem_free", found.free))
                for place in ("return", "entry")
            ]
            if found
            else []
        )
        if self._attached(probes, path, name):
            self._drivers.add(file)

    def _interpreter(
        self, file: FileId, path: Path, name: str, user: tuple[Mapping, int] | None = None
    ) -> None:
        if file in self._interpreters:
            return
        try:
            found = interpreter_file(path)
        except (NotUsable, Unsupported) as reason:
            self._interpreters[file] = None
            if isinstance(reason, Unsupported):
                self.unsupported[file] = str(reason)
            LOGGER.warning("unsupported interpreter=%s reason=%s", name, reason)
            return
        self._interpreters[file] = found
        if found is None:
            return
        if user:  # before the probe is set: the process is in more of a hurry
            self._place(found, *user)
        self._cookie += 1
        libbpf.update(self._files, c_uint64(self._cookie), found.relative())
        probe = libbpf.Uprobe(program="interpreter_starts", offset=found.start_offset, cookie=self._cookie)
        if not self._attached([probe], path, name):
            del self._interpreters[file]

    def _attached(self, probes: Sequence[libbpf.Uprobe], path: Path, name: str) -> bool:
        try:
            self._bpf.attach_uprobes(probes, str(path))
        except AttachError as error:
            self.failed += 1
            LOGGER.error("not probed file=%s reason=%s", name, error)
            return False
        if probes:
            LOGGER.info("probed file=%s", name)
        return True

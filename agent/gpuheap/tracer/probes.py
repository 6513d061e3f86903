# SPDX-License-Identifier: Apache-2.0
"""Sets the probes: on each driver and each interpreter once, by file, whoever maps it and wherever.

Knows files, not the memory of processes; of running ones it tells the kernel side where their interpreter is.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_uint32, c_uint64
from functools import partial
from pathlib import Path
from typing import Final

from gpuheap.stacks.elf import NotUsable

from . import libbpf
from .abi import Interpreter
from .calls import Call
from .driver_files import (
    ROOTS,
    DriverFile,
    driver_file,
    has_driver_name,
    installed_drivers,
    looks_like_driver,
)
from .errors import AttachError
from .interpreter_files import (
    InterpreterFile,
    Unsupported,
    holds_interpreter,
    installed_interpreters,
    interpreter_file,
    looks_like_interpreter,
    with_code_counter,
)
from .mappings import FileId, file_id, mappings, processes
from .mappings import Mapping as MappedFile
from .new_mappings import NewMapping
from .same_file import Facts, has_breakpoints

LOGGER: Final = logging.getLogger(__name__)
MAX_OTHERS: Final = 1 << 16


class Probes:
    """The probes of one loaded object.

    A file is done when its probes are set, or when it was read and is none of ours. A file that could not be opened or
    probed, as its process was ending, stays to be tried with the next process that maps it.
    """

    def __init__(self, bpf: libbpf.BpfObject, *, cookies: bool = True) -> None:
        self._bpf = bpf
        self._cookies = cookies
        self._drivers: set[FileId] = set()
        """Done with, under each identity that they were seen under."""
        self._probed: list[tuple[Facts, tuple[int, ...]]] = []
        """Of each driver with probes, the places that have them."""
        self._rejected: dict[FileId, Facts] = {}
        """Look like drivers, and are none: read again when they have changed."""
        self._others: set[tuple[FileId, str]] = set()
        """Need no second look; with the name, as inodes are used again."""
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
        self._look_at_all()

    def look_at(self, pid: int) -> None:
        """Probe what this process has mapped, and tell the kernel side where its interpreter is."""
        before = len(self._probed)
        self._look_at(pid)
        self.drivers_found_late += len(self._probed) - before

    def look_at_all(self) -> None:
        """When it is not known who has mapped what: records of new mappings were lost."""
        before = len(self._probed)
        self._look_at_all()
        self.drivers_found_late += len(self._probed) - before

    def mapped(self, new: NewMapping) -> None:
        """A process has just mapped a file.

        Looked at also when the interpreter is known: it may have started while the probe was being set.
        """
        if looks_like_interpreter(new.path) or new.file in self._interpreters:
            self.look_at(new.pid)
            if new.file not in self._interpreters:
                self._left_behind(new.mapping, self._interpreter)
        elif self._may_be_driver(new.mapping):
            before = len(self._probed)
            self._opened(new.mapping, new.pid, partial(self._driver, user=(new.mapping, new.pid)))
            self.drivers_found_late += len(self._probed) - before

    def is_driver(self, file: FileId) -> bool:
        return file in self._drivers

    def why_no_python(self, pid: int) -> str | None:
        """Why stacks of this process may lack Python; None for a process without Python."""
        for mapping in mappings(pid):
            if mapping.file in self.unsupported:
                return self.unsupported[mapping.file]
            if self._interpreters.get(mapping.file):
                return "Python stack missed: the interpreter was found too late"
        return None

    def interpreter_of(self, pid: int) -> tuple[InterpreterFile, MappedFile] | None:
        """The interpreter that a process has mapped, and where its code is."""
        for mapping in mappings(pid):
            file = self._interpreters.get(mapping.file)
            if file and file.in_process(mapping) is not None:
                return file, mapping
        return None

    def _look_at_all(self) -> None:
        for pid in processes():
            self._look_at(pid)

    def _may_be_driver(self, mapping: MappedFile) -> bool:
        return mapping.file not in self._drivers and (mapping.file, mapping.path) not in self._others

    def _look_at(self, pid: int) -> None:
        for mapping in mappings(pid):
            if not mapping.executable:
                continue
            if looks_like_interpreter(mapping.path) or mapping.file in self._interpreters:
                if mapping.file not in self._interpreters:
                    self._opened(mapping, pid, partial(self._interpreter, user=(mapping, pid)))
                self._place(self._interpreters.get(mapping.file), mapping, pid)
            elif self._may_be_driver(mapping):
                self._opened(mapping, pid, partial(self._driver, user=(mapping, pid)))

    def _place(self, file: InterpreterFile | None, mapping: MappedFile, pid: int) -> None:
        here = file.in_process(mapping) if file else None
        if here is None:
            return
        known = libbpf.lookup(self._in_process, c_uint32(pid), Interpreter)
        if known and known.runtime == here.runtime:
            here.code_type = known.code_type  # the kernel has learnt it
        libbpf.update(self._in_process, c_uint32(pid), here)

    def _opened(self, mapping: MappedFile, pid: int, act: Callable[[FileId, Path, str], None]) -> None:
        try:
            with mapping.opened(pid) as path:
                act(mapping.file, path, mapping.path)
        except OSError as error:
            if self._left_behind(mapping, act) or not _named_for_us(mapping.path):
                return
            self.failed += 1
            LOGGER.warning("not probed file=%s pid=%d reason=%s", mapping.path, pid, error.strerror)

    def _left_behind(self, mapping: MappedFile, act: Callable[[FileId, Path, str], None]) -> bool:
        """Of a process that has gone again: the file, if it is the one that has this name here or on the machine."""
        if not _named_for_us(mapping.path):
            return False
        for root in ROOTS:
            path = root / mapping.path.lstrip("/")
            try:
                if file_id(path) == mapping.file:
                    act(mapping.file, path, mapping.path)
                    return True
            except OSError:
                continue
        return False

    def _installed(self, path: Path, act: Callable[[FileId, Path, str], None]) -> None:
        try:
            act(file_id(path), path, str(path))
        except OSError as error:
            LOGGER.info("not probed file=%s reason=%s", path, error.strerror)

    def _driver(
        self, file: FileId, path: Path, name: str, user: tuple[MappedFile, int] | None = None
    ) -> None:
        """Or an interpreter, which programs hold under any name. Raises OSError."""
        if file in self._drivers:
            return
        if not looks_like_driver(path, name):
            if holds_interpreter(path):
                self._interpreter(file, path, name, user)
                return
            if len(self._others) >= MAX_OTHERS:
                self._others.clear()
            self._others.add((file, name))
            return
        facts = Facts.of(path)
        if self._rejected.get(file) == facts:
            return
        try:
            found = driver_file(path, name)
        except NotUsable as error:
            self._rejected[file] = facts
            self.failed += 1
            LOGGER.warning("not probed file=%s reason=%s", name, error)
            return
        if found is None:
            self._rejected[file] = facts
            LOGGER.info("no driver file=%s", name)
        elif self._has_probes(found, facts):
            self._drivers.add(file)
        elif self._attached(self._calls(found.functions), path, name):
            self._drivers.add(file)
            self._probed.append((facts, tuple(found.functions.values())))

    def _has_probes(self, found: DriverFile, facts: Facts) -> bool:
        """Whether it is a file with probes that has another identity here: in another overlay."""
        return any(
            facts.may_be(other) and has_breakpoints(found.path, places) for other, places in self._probed
        )

    def _calls(self, functions: Mapping[Call, int]) -> list[libbpf.Uprobe]:
        # The returns first: an entry without its return would wait for ever.
        leave = "leave" if self._cookies else "leave_last"
        probes = [
            libbpf.Uprobe(program=leave, offset=offset, on_return=True, cookie=self._cookie_of(call))
            for call, offset in functions.items()
            if call is not Call.cuInit
        ]
        for call, offset in functions.items():
            enter = "enter" if self._cookies else f"enter_{call.name}"
            probes.append(libbpf.Uprobe(program=enter, offset=offset, cookie=self._cookie_of(call)))
        return probes

    def _cookie_of(self, call: Call) -> int:
        return call if self._cookies else 0

    def _interpreter(
        self, file: FileId, path: Path, name: str, user: tuple[MappedFile, int] | None = None
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
        if self._cookies:  # else the process is told when it first calls the driver
            self._cookie += 1
            libbpf.update(self._files, c_uint64(self._cookie), found.relative())
            probe = libbpf.Uprobe(
                program="interpreter_starts", offset=found.start_offset, cookie=self._cookie
            )
            if not self._attached([probe], path, name):
                del self._interpreters[file]
                return
        self._hasten(file, path, user)

    def _hasten(self, file: FileId, path: Path, user: tuple[MappedFile, int] | None) -> None:
        """What makes known stacks cheap comes afterwards: it takes a while to find, and nothing depends on it."""
        found = self._interpreters[file]
        assert found
        try:
            found = with_code_counter(found, path)
        except NotUsable as reason:
            LOGGER.info("no code counter file=%s reason=%s", path, reason)
            return
        self._interpreters[file] = found
        if self._cookies:
            libbpf.update(self._files, c_uint64(self._cookie), found.relative())
        if user:
            self._place(found, *user)

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


def _named_for_us(path: str) -> bool:
    """Of other files, most that cannot be opened any more are no loss."""
    return has_driver_name(path) or looks_like_interpreter(path)

# SPDX-License-Identifier: Apache-2.0
"""Which files are CPython interpreters, and what the kernel side must know to walk their stacks."""

import os
import re
import shutil
import struct
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from gpuheap.stacks.cpython import COUNTING, FIRST_EXPORTED, Unsupported, code_counter, layout
from gpuheap.stacks.cpython_layouts import Layout
from gpuheap.stacks.debug_offsets import DEBUG_OFFSETS_BYTES
from gpuheap.stacks.elf import MAX_OBJECT_BYTES, Symbol, read

from .abi import Interpreter
from .dynamic_section import dynamic
from .mappings import Mapping

NAME: Final = re.compile(r"^(lib)?python\d?")
PROGRAM: Final = re.compile(r"^python3(\.\d+)?t?$")
RUNTIME: Final = "_PyRuntime"
CODE_TYPE: Final = "PyCode_Type"
VERSION: Final = "Py_Version"
EVALUATE: Final = "PyEval_EvalFrameEx"
"""In every CPython since 2.5."""
START: Final = "Py_InitializeFromConfig"
"""Every way to start an interpreter goes through it: Py_Main, Py_Initialize, and programs that embed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterFile:
    version: tuple[int, int]
    layout: Layout
    start: Symbol
    runtime: Symbol
    code_type: Symbol | None
    """PyCode_Type"""

    @property
    def start_offset(self) -> int:
        """Where in the file the probe goes."""
        assert self.start.offset is not None
        return self.start.offset

    def relative(self) -> Interpreter:
        """With `runtime` as the distance from the probed function: for the probe, which knows where it is."""
        return Interpreter(runtime=(self.runtime.address - self.start.address) % 2**64, **asdict(self.layout))

    def in_process(self, mapping: Mapping) -> Interpreter | None:
        """For a process with this mapping of the file; None if it is not the one with the start function."""
        address = self.address_of(self.runtime, mapping)
        return None if address is None else Interpreter(runtime=address, **asdict(self.layout))

    def address_of(self, symbol: Symbol, mapping: Mapping) -> int | None:
        """The same, of any symbol of the file."""
        into = self.start_offset - mapping.offset
        if not 0 <= into < mapping.end - mapping.start:
            return None
        return mapping.start + into + symbol.address - self.start.address


def looks_like_interpreter(path: str) -> bool:
    """Whether a mapped file is worth opening."""
    return bool(NAME.match(path.rpartition("/")[2]))


def holds_interpreter(path: Path) -> bool:
    """Whether a file of any name exports an interpreter: a program that embeds one does, for extension modules.

    Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = dynamic(fd)
        return found is not None and found.exports(RUNTIME)
    finally:
        os.close(fd)


def installed_interpreters(commands: Iterable[str] = ()) -> list[Path]:
    """Interpreters that a program started from here would use: probed before anyone runs them.

    Those on PATH and those of `commands` (a program, or a script that names one in its first line), and, as most are
    small programs around a shared library, the libraries beside them.
    """
    programs = {
        program.resolve()
        for folder in os.get_exec_path()
        for program in Path(folder).glob("python3*")
        if PROGRAM.match(program.name)
    }
    programs.add(Path(sys.executable).resolve())
    programs |= {program.resolve() for command in commands if (program := _program(command)) is not None}
    libraries = {
        library.resolve()
        for program in programs
        for library in (program.parent.parent / "lib").glob("libpython3.*.so.1.0")
    }
    return sorted(path for path in programs | libraries if _is_elf(path))  # pyenv's shims are scripts


def _program(command: str) -> Path | None:
    """What runs a command: itself, or for a script what its first line names."""
    found = shutil.which(command)
    if found is None:
        return None
    try:
        with Path(found).open("rb") as stream:
            head = stream.read(256)
    except OSError:
        return None
    if not head.startswith(b"#!"):
        return Path(found)
    words = os.fsdecode(head[2:].split(b"\n", 1)[0]).split()
    if len(words) > 1 and words[0].endswith("/env"):
        words = words[1:]
    named = shutil.which(words[0]) if words else None
    return Path(named) if named else None


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except OSError:
        return False


def interpreter_file(path: Path) -> InterpreterFile | None:
    """The interpreter in this file; None if it is none. Raises NotUsable, or Unsupported for a version not known."""
    contents = {RUNTIME: DEBUG_OFFSETS_BYTES, VERSION: 8}
    elf = read(
        path, frozenset({RUNTIME, VERSION, START, EVALUATE, CODE_TYPE, *FIRST_EXPORTED.values()}), contents
    )
    if EVALUATE not in elf.symbols:
        return None
    number = elf.contents.get(VERSION, b"")
    found = layout(
        struct.unpack("<Q", number)[0] if len(number) == 8 else None,
        elf.symbols.keys(),
        elf.contents.get(RUNTIME, b""),
    )
    runtime, start = elf.symbols.get(RUNTIME), elf.symbols.get(START)
    if runtime is None or start is None or start.offset is None:
        raise Unsupported(f"a CPython without {RUNTIME if runtime is None else START} is not supported")
    return InterpreterFile(
        version=found.version,
        layout=found.layout,
        start=start,
        runtime=runtime,
        code_type=elf.symbols.get(CODE_TYPE),
    )


def with_code_counter(file: InterpreterFile, path: Path) -> InterpreterFile:
    """The same, with what makes known stacks cheap. It takes longer to find than all the rest. Raises NotUsable."""
    if file.version not in COUNTING:
        return file
    elf = read(path, frozenset({RUNTIME}), {RUNTIME: min(file.runtime.size, MAX_OBJECT_BYTES)}, RUNTIME)
    counter = code_counter(file.version, elf.contents.get(RUNTIME, b""), elf.pointers)
    return replace(file, layout=replace(file.layout, code_counter=counter))


__all__ = [
    "InterpreterFile",
    "Unsupported",
    "holds_interpreter",
    "installed_interpreters",
    "interpreter_file",
    "looks_like_interpreter",
    "with_code_counter",
]

# SPDX-License-Identifier: Apache-2.0
"""What GDB says of the programs' stacks. `python -m tests.agent.stacks.gdb_answers` writes it anew into gdb/.

Frames of libraries stand as the library's name, once for those next to each other: they differ between distributions.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .programs import PROGRAMS, Program
from .stopped import compiled, reading_thread, waiting

ANSWERS: Final = Path(__file__).resolve().parent / "gdb"
INLINED, TAIL_CALL, SIGNAL = 2, 3, 4
"""gdb.INLINE_FRAME, gdb.TAILCALL_FRAME, gdb.SIGTRAMP_FRAME"""

_SCRIPT: Final = """
set confirm off
set debuginfod enabled off
set print demangle on
set backtrace past-main on
set backtrace past-entry on
attach {pid}
python
thread = next(thread for thread in gdb.selected_inferior().threads() if thread.ptid[1] == {tid})
thread.switch()
frame = gdb.newest_frame()
while frame is not None:
    library = gdb.solib_name(frame.pc()) or ''
    print('FRAME', hex(frame.pc()), frame.type(), library or '-', frame.name() or '?')
    frame = frame.older()
end
detach
quit
"""
_VERSION: Final = re.compile(r"(?<=\.so\.\d)(\.\d+)+$")
"""What a library's file has in its name behind what programs ask for."""

_FRAME: Final = re.compile(r"^FRAME (0x[0-9a-f]+) (\d+) (\S+) (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame that is on the stack: neither inlined nor replaced by a tail call."""

    address: int
    """Of the instruction to go on at."""
    is_signal: bool
    library: str
    function: str


def gdb_frames(pid: int, tid: int) -> list[Frame]:
    """The stack of a thread, innermost frame first."""
    with tempfile.NamedTemporaryFile("w", suffix=".gdb") as script:
        script.write(_SCRIPT.format(pid=pid, tid=tid))
        script.flush()
        output = subprocess.run(
            ["gdb", "-nx", "-batch", "-x", script.name],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    found = [
        Frame(
            address=int(address, 16),
            is_signal=int(kind) == SIGNAL,
            library="" if library == "-" else library.rpartition("/")[2],
            function=function,
        )
        for address, kind, library, function in _FRAME.findall(output.stdout)
        if int(kind) not in (INLINED, TAIL_CALL)
    ]
    assert found, output.stderr
    return found


def written(program: Program, frames: Iterable[tuple[str, str]]) -> str:
    """Frames by library and function, as the answers have them.

    A static program has the C library's functions within it: of those only the source's own are told apart.
    """
    is_static = any(option.startswith("-static") for option in program.command)
    lines: list[str] = []
    for library, function in frames:
        line = f"in {_VERSION.sub('', library)}" if library else function
        if is_static and not library and function not in program.source:
            line = "in the C library"
        if not (line.startswith("in ") and lines[-1:] == [line]):
            lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    ANSWERS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, program in PROGRAMS.items():
            path = compiled(Path(folder), name, program.source, *program.command)
            with waiting(path) as process:
                frames = gdb_frames(process.pid, reading_thread(process))
            text = written(program, [(frame.library, frame.function) for frame in frames])
            (ANSWERS / f"{name}.txt").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

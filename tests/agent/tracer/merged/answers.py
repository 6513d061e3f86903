# SPDX-License-Identifier: Apache-2.0
"""What GDB and the interpreters say of whole stacks. `python -m tests.agent.tracer.merged.answers` writes it anew.

Native frames are GDB's, Python functions the interpreter's own (`sys._getframe`); which belong to which evaluation GDB
finds out. In the answers, frames of libraries stand as the library's name, once for those next to each other, the
interpreter's own not at all, and functions of Python's library without their lines: they differ between builds.
Native functions of our own have their lines.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.debian import NotObtainable
from tests.interpreters.found import command
from tests.standin.build import StandIn, build

FOLDER: Final = Path(__file__).resolve().parent
ANSWERS: Final = FOLDER / "gdb"
SITUATIONS: Final = FOLDER / "situations.py"
EVALUATION: Final = "_PyEval_EvalFrameDefault"
PYTHONS: Final = (
    *("3.8-pyenv", "3.9-pyenv", "3.10-pyenv", "3.11-pyenv", "3.12-pyenv", "3.13-pyenv"),
    "3.13t-built",
)
"""Those that have debug information."""

NAMES: Final = ("native", "embedded", "sub-interpreter", *PYTHONS)
EMBEDDED: Final = "3.12-pyenv"
OWN: Final = ("native", "embedded", "relay.so")
"""Files whose native functions stand with their names."""


_PART: Final = re.compile(r"(\.(cold|part\.\d+|isra\.\d+|constprop\.\d+))+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One frame of a whole stack. `library` is empty for a Python function. `file` and `line` are empty, and 0, for a
    native one whose source is not known."""

    function: str
    file: str
    line: int
    library: str = ""
    is_certain: bool = True
    """False: GDB guesses the function's name, by the symbol before it; or the function has several names, as the C
    library's do."""


Stacks = dict[int, tuple[str, list[Entry]]]
"""By size: the title, and the frames from the thread's root inwards."""


class Programs:
    """What is run under GDB and under the tracer, built into a folder."""

    def __init__(self, folder: Path, standin: StandIn) -> None:
        self._folder = folder
        self._standin = standin

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """With its environment. Raises NotObtainable."""
        if name == "native":
            return [str(self._built("native", "-pthread"))], {}
        if name in ("embedded", "sub-interpreter"):
            (python,) = command(EMBEDDED)
            home = Path(python).parent.parent
            flags = [f"-L{home}/lib", f"-Wl,-rpath,{home}/lib", f"-lpython{EMBEDDED.partition('-')[0]}"]
            program = self._folder / "embedded"
            if not program.exists():
                self._built("embedded", *_headers(python), *flags, source="embeds.c")
            text = f"exec(compile(open({str(SITUATIONS)!r}).read(), {str(SITUATIONS)!r}, 'exec'))"
            words = [str(program), text, *(["sub"] if name == "sub-interpreter" else [])]
            return words, self._relay(python) | {"PYTHONHOME": str(home)}
        (python,) = command(name)
        return [python, str(SITUATIONS)], self._relay(python)

    def _relay(self, python: str) -> dict[str, str]:
        folder = self._folder / python.replace("/", "_")
        folder.mkdir(exist_ok=True)
        if not (folder / "relay.so").exists():
            self._built("relay.so", "-shared", "-fPIC", *_headers(python), source="relay.c", folder=folder)
        return {"RELAY": str(folder)}

    def _built(self, name: str, *flags: str, source: str = "", folder: Path | None = None) -> Path:
        path = (folder or self._folder) / name
        text = FOLDER / (source or f"{name}.c")
        fixed = ("-g", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-ipa-icf")
        command = ["gcc", *fixed, "-o", str(path), str(text), *flags, str(self._standin.library)]
        subprocess.run(command, check=True)
        return path


@cache
def _headers(python: str) -> tuple[str, ...]:
    script = "import sysconfig; print(*{sysconfig.get_path(one) for one in ('include', 'platinclude')})"
    script += "; print(sysconfig.get_config_h_filename())"
    folders = subprocess.run(
        [python, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    found = [folder if Path(folder).is_dir() else str(Path(folder).parent) for folder in folders]
    if not any((Path(folder) / "Python.h").exists() for folder in found):
        raise NotObtainable(f"{python} has no headers")
    return tuple(f"-I{folder}" for folder in found)


def gdb_stacks(programs: Programs, name: str, standin: StandIn) -> Stacks:
    """Raises NotObtainable."""
    arguments, environment = programs.command(name)
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers"
        # A tracer that is at work on this machine would probe a driver of its own name, and GDB and it get into each
        # other's way: a call with both breakpoints is missed, and a return address in the kernel's keeping not found.
        driver = standin.library.read_bytes().replace(b"libcuda.so.1", b"libplain.so1")
        (Path(folder) / standin.library.name).write_bytes(driver)
        # Not GDB's own environment: there is a Python in it, too.
        its_own = {"LD_LIBRARY_PATH": folder, **environment}.items()
        settings = [part for name, text in its_own for part in ("-iex", f"set environment {name} {text}")]
        done = subprocess.run(
            ["gdb", "-nx", "-batch", *settings, "-x", str(FOLDER / "inside_gdb.py"), "--args", *arguments],
            env={**os.environ, "ANSWERS": str(answers)},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        printed = [line for line in done.stdout.splitlines() if line.startswith("{")]
        assert printed and answers.exists(), done.stderr
        said = json.loads(printed[0])
        seen = [json.loads(line) for line in answers.read_text().splitlines()]
    return {one["size"]: (said[str(one["size"])][0], whole(one, said[str(one["size"])][1])) for one in seen}


def whole(seen: Mapping[str, Any], functions: list[tuple[str, str, int]]) -> list[Entry]:
    """Of what GDB saw, and the interpreter's functions from the innermost outwards: one stack."""
    left = [Entry(function=name, file=file, line=line) for name, file, line in functions]
    runs = list(seen["evaluations"])
    entries: list[Entry] = []
    native = seen["native"]
    for place, frame in enumerate(native):
        if frame["function"].startswith(EVALUATION):
            count, kept = runs.pop(0)
            outer = native[place + 1]["stack"]
            assert kept is None or frame["stack"] <= kept < outer, "it is kept by another evaluation"
            entries += left[:count]
            del left[:count]
        else:
            is_of_system = frame["library"].startswith(("/lib", "/usr/lib"))
            certain = frame["has_debug_information"] and not is_of_system
            entries.append(
                Entry(
                    function=frame["function"],
                    file=os.path.normpath(frame["source"]) if frame["source"] else "",
                    line=frame["line"],
                    library=frame["library"],
                    is_certain=certain,
                )
            )
    assert not left and not runs, "there are functions without an evaluation"
    return entries[::-1]


def written(stacks: Stacks) -> str:
    """As the answers have them."""
    parts = []
    for _, (title, entries) in sorted(stacks.items()):
        lines: list[str] = []
        for line in filter(None, map(_written, entries)):
            if not (line.startswith("in ") and lines[-1:] == [line]):
                lines.append(line)
        parts.append("".join(f"{line}\n" for line in (f"# {title}", *lines)))
    return "\n".join(parts)


def without_part(function: str) -> str:
    """Without what compilers add to the name of a part of a function: debug information does not have it."""
    return _PART.sub("", function)


def _written(entry: Entry) -> str:
    """Empty: it is left out."""
    source, file = Path(entry.file), Path(entry.library)
    if not entry.library:
        line = f":{entry.line}" if entry.file == str(SITUATIONS) else ""
        return f"{entry.function} {source.name}{line}".rstrip()
    if file.name in OWN:
        line = f" {source.name}:{entry.line}" if source.parent == FOLDER else ""
        return f"{without_part(entry.function)}{line}"
    if file.name.startswith(("python", "libpython")) and ".cpython-" not in file.name:
        return ""
    name, _, rest = file.name.partition(".so")
    return f"in {name.partition('.cpython-')[0]}.so{'.'.join(rest.split('.')[:2])}"


def main() -> int:
    ANSWERS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        standin = build(Path(folder) / "driver")
        programs = Programs(Path(folder), standin)
        for name in NAMES:
            try:
                (ANSWERS / f"{name}.txt").write_text(written(gdb_stacks(programs, name, standin)))
            except NotObtainable as reason:
                print(f"{name}: left as it is: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

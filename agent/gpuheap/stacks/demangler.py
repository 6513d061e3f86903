# SPDX-License-Identifier: Apache-2.0
"""C++ and Rust names as their authors wrote them.

The C++ runtime's demangler was not made for names that somebody chose to harm it: a short one can expand without end,
or overflow the stack. So it runs in a process of its own, with little memory, few rights and a deadline for each name.
"""

import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

MAX_NAME_CHARACTERS: Final = 4096
"""Longer names, and what names become beyond it, are cut."""

PATIENCE_SECONDS: Final = 1.0
"""For one name, which takes some microseconds."""

START_SECONDS: Final = 10.0
CUT: Final = "…"
_MANGLED: Final = re.compile(r"_Z[!-~]+")
_RUST_HASH: Final = re.compile(r"::h[0-9a-f]{16}$")
_RUST_ESCAPE: Final = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$|(\.\.)")
_RUST_WORDS: Final = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}
_WORKER: Final = Path(__file__).with_name("demangling_process.py")


class Demangler:
    """Close it, or let it go: its process ends with it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._ready = False
        self.failures = 0
        """Names for which the process had to be ended, or ended itself."""
        self._start()

    def close(self) -> None:
        """Ends the process. Names stay as they are from then on."""
        self._closed = True
        self._stop()

    def __del__(self) -> None:
        self._stop()

    def readable(self, name: str) -> str:
        """The name as written in the source; the name itself if it is not C++'s or Rust's, or cannot be had."""
        if len(name) > MAX_NAME_CHARACTERS:
            return name[:MAX_NAME_CHARACTERS] + CUT
        if not _MANGLED.fullmatch(name):
            return name
        found = self._ask(name)
        if found is None or not found.isprintable():
            return name
        if _RUST_HASH.search(found):
            found = _RUST_ESCAPE.sub(_rust_character, _RUST_HASH.sub("", found).replace("_$", "$"))
        return found if len(found) <= MAX_NAME_CHARACTERS else found[:MAX_NAME_CHARACTERS] + CUT

    def _ask(self, name: str) -> str | None:
        if self._process is None or self._process.poll() is not None:
            self._stop()
            self._start()
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            return None
        try:
            fd = self._process.stdout.fileno()
            self._ready = self._ready or self._answer(fd, START_SECONDS) is not None
            if not self._ready:  # there is no C++ runtime here
                self.close()
                return None
            self._process.stdin.write(name.encode() + b"\n")
            answer = self._answer(fd, PATIENCE_SECONDS)
        except OSError:
            answer = None
        if answer is None:
            self.failures += 1
            self._stop()
        return answer

    def _answer(self, fd: int, seconds: float) -> str | None:
        """One line; None if it does not come in time."""
        pieces: list[bytes] = []
        deadline = time.monotonic() + seconds
        waiting = select.poll()  # select(2) takes no descriptor above 1,023
        waiting.register(fd, select.POLLIN)
        while not (pieces and pieces[-1].endswith(b"\n")):
            if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return None
            piece = os.read(fd, 1 << 16)
            if not piece:
                return None
            pieces.append(piece)
        return b"".join(pieces)[:-1].decode(errors="replace")

    def _start(self) -> None:
        if self._closed or not sys.executable:
            return
        self._ready = False
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError:
            self._closed = True

    def _stop(self) -> None:
        process, self._process = getattr(self, "_process", None), None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _rust_character(match: re.Match[str]) -> str:
    word = match[1]
    if word is None:
        return "::"
    if word in _RUST_WORDS:
        return _RUST_WORDS[word]
    number = int(word[1:], 16)
    return chr(number) if number < sys.maxunicode and chr(number).isprintable() else match[0]

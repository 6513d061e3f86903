# SPDX-License-Identifier: Apache-2.0
"""A root filesystem for a kernel: files at the paths that they have on this machine, in one cpio archive.

The format is the kernel's "newc" (Documentation/driver-api/early-userspace/buffer-format.rst). Libraries that a program
needs are asked of the dynamic loader.
"""

import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

MAGIC: Final = b"070701"
CONSOLE: Final = (5, 1)


class Initramfs:
    """Collects paths; `write` makes the archive. Links keep being links, and what they lead to comes along."""

    def __init__(self) -> None:
        self._paths: set[Path] = set()

    def add(self, path: Path) -> None:
        """One file, folder (without its content) or link, and the folders above it."""
        path = Path(os.path.normpath(path))
        if path in self._paths:
            return
        if path != Path("/"):
            self.add(path.parent)
        if (folder := path.parent.resolve()) != path.parent:  # /lib64 and others are links
            self.add(folder / path.name)
            return
        self._paths.add(path)
        if path.is_symlink():
            self.add(path.parent / path.readlink())

    def add_tree(self, folder: Path, wanted: Callable[[Path], bool] = lambda path: True) -> None:
        """A folder with what is below it; a folder that is not wanted is not entered."""
        self.add(folder)
        for entry in sorted(folder.iterdir()):
            if not wanted(entry):
                continue
            if entry.is_dir() and not entry.is_symlink():
                self.add_tree(entry, wanted)
            else:
                self.add(entry)

    def add_program(self, *files: Path) -> None:
        """Programs or libraries, each with the libraries it needs."""
        for file in files:
            self.add(file)
        for library in libraries_of(files):
            self.add(library)

    def write(self, into: Path, folders: Iterable[str], texts: Mapping[str, str]) -> None:
        """`folders` are made empty, for what is mounted there; `texts` become files. /dev/console is always made."""
        empty = {Path("/dev"), *map(Path, folders)} - self._paths
        with into.open("wb") as out:
            for number, path in enumerate(sorted((self._paths | empty) - {Path("/")}), 1):
                if path in empty:
                    _entry(out, number, path, stat.S_IFDIR | 0o755)
                else:
                    status = path.lstat()
                    _entry(out, number, path, status.st_mode, int(status.st_mtime), _content(path, status))
            extra = 1 + len(self._paths | empty)
            _entry(out, extra, Path("/dev/console"), stat.S_IFCHR | 0o600, device=CONSOLE)
            for number, (name, text) in enumerate(texts.items(), extra + 1):
                _entry(out, number, Path(name), stat.S_IFREG | 0o644, content=text.encode())
            _entry(out, 0, Path("/TRAILER!!!"), 0)


def libraries_of(files: Iterable[Path]) -> list[Path]:
    """The loader, and the shared libraries that it would load for these files."""
    listed = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False)
    return [Path(path) for path in dict.fromkeys(re.findall(r"(/\S+) \(0x", listed.stdout))]


def _content(path: Path, status: os.stat_result) -> bytes:
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(path.readlink())
    return path.read_bytes() if stat.S_ISREG(status.st_mode) else b""


def _entry(
    out: BinaryIO,
    number: int,
    path: Path,
    mode: int,
    modified: int = 0,
    content: bytes = b"",
    device: tuple[int, int] = (0, 0),
) -> None:
    name = os.fsencode(path).lstrip(b"/") + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    # inode, mode, uid, gid, links, mtime, size, major, minor, device major, device minor, name's size, checksum
    fields = (number, mode, 0, 0, links, modified, len(content), 0, 0, *device, len(name), 0)
    out.write(MAGIC + b"".join(b"%08x" % field for field in fields))
    for part in (name, content):
        out.write(part)
        out.write(b"\0" * (-out.tell() % 4))

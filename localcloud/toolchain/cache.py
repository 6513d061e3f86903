# SPDX-License-Identifier: Apache-2.0
"""The one folder per user that holds what set-up makes: entries named by content, never changed once there."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/gpuheap`, or `~/.cache/gpuheap`."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification: a relative path is invalid and must be ignored.
    return (base if base.is_absolute() else Path.home() / ".cache") / "gpuheap"


def content_hash(files: Iterable[Path], *more: str) -> str:
    """Twelve hex digits that change with the name or the content of a file, or with a text in `more`."""
    digest = hashlib.sha256()
    for text in more:
        digest.update(f"{len(text)}:{text}".encode())
    for file in sorted(files, key=lambda path: path.name):
        content = file.read_bytes()
        digest.update(f"{file.name}:{len(content)}:".encode() + content)
    return digest.hexdigest()[:12]


def provide(folder: Path, fill: Callable[[Path], None]) -> Path:
    """`folder`, made by `fill` if it is not there: under another name first, so that it is either absent or complete.

    The caller holds `lock`.
    """
    if folder.exists():
        return folder
    unfinished = folder.with_name(f".unfinished-{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)  # left by a set-up that was killed
    unfinished.mkdir(parents=True)
    try:
        fill(unfinished)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    unfinished.rename(folder)
    return folder


@contextmanager
def lock(waiting: Callable[[], object]) -> Iterator[None]:
    """One set-up at a time for this user; calls `waiting` once if another one runs."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield

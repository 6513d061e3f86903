# SPDX-License-Identifier: Apache-2.0
"""Profiles and pages on disk: reading with a size limit, writing whole files or none."""

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gpuheap.profile.decode import MAX_UNPACKED_BYTES, decode
from gpuheap.profile.model import Profile, ProfileError

_EVERYBODY: Final = 0o666


def read_profile(path: Path) -> Profile:
    """The profile in a file. Raises `ProfileError` with the path and what is wrong."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_UNPACKED_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    return decode(data, name=str(path))


class OutputFile:
    """A file that appears under its name when it is complete. Made at once, so that a bad path is known early.

    Leaving the context without `commit` removes what was begun; a file that had the name before stays as it was.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            raise ProfileError(f"{path}: cannot be written: it is a folder; name a file with -o")
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        except OSError as error:
            raise ProfileError(
                f"{path}: cannot be written: {error.strerror}; name another file with -o"
            ) from error
        self._file = os.fdopen(handle, "wb")
        self._temporary = Path(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def commit(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
            # mkstemp makes files for the owner only; a profile has the rights that any new file gets.
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(self._file.fileno(), _EVERYBODY & ~mask)
            self._temporary.replace(self.path)
        except OSError as error:
            raise ProfileError(f"{self.path}: cannot be written: {error.strerror}") from error

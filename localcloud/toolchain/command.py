# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of set-up: all that they print goes to a log file, and the end of it into the error."""

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from localcloud.toolchain.cache import cache_folder
from localcloud.toolchain.errors import SetupFailed

LINES_SHOWN: Final = 15


def run(
    command: Sequence[str],
    *,
    log: str,
    hint: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], object] = lambda line: None,
) -> list[str]:
    """The lines of standard output and error, as they came; `on_line` sees each at once.

    `environment` is added to this process's. Raises SetupFailed with the last lines, the log file (`log`, in the
    cache) and `hint`: what to try.
    """
    log_file = cache_folder() / "logs" / f"{log}.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    with log_file.open("a") as out:
        out.write(f"$ {shlex.join(command)}\n")
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise SetupFailed(f"cannot run {command[0]}: {error.strerror or error}\n  {hint}") from error
        with process:
            assert process.stdout
            try:
                for line in process.stdout:
                    out.write(line)
                    lines.append(line.rstrip("\n"))
                    on_line(lines[-1])
            except BaseException:
                process.terminate()
                raise
        code = process.returncode
    if code:
        last = "\n".join(f"    {line}" for line in lines[-LINES_SHOWN:])
        raise SetupFailed(
            f"{shlex.join(command[:4])} … ended with {code}:\n{last}\n  all of it: {log_file}\n  {hint}"
        )
    return lines

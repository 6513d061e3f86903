# SPDX-License-Identifier: Apache-2.0
"""PyTorch as its CUDA wheel comes, in an environment of its own in the per-user cache; and the headers of CUDA.

`python -m tests.torch.installation` installs it: about 550 MB to fetch, 1.4 GB on disk, a few minutes once.
"""

import fcntl
import os
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from localcloud.toolchain import command
from localcloud.toolchain.cache import cache_folder, content_hash, provide
from localcloud.toolchain.errors import ToolchainError
from localcloud.toolchain.progress import Step, step
from localcloud.toolchain.python_environment import BASE_PYTHON, PYTHON_VERSION, dependencies

PACKAGES: Final = Path(__file__).with_name("requirements.txt")
HEADERS: Final = Path(__file__).with_name("requirements-headers.txt")
LAYOUT: Final = "1"
"""Raised when what is put into the folder changes."""

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
"""PyTorch's wheel is there for these."""

HINT: Final = (
    "the wheel comes from the index that `pip config list` shows, and takes 1.4 GB of disk: check both"
)
INSTALLS: Final = "`make test-torch` installs it: about 550 MB to fetch, 1.4 GB on disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "environment" / "bin" / "python"

    @property
    def packages(self) -> Path:
        return self.folder / "environment" / "lib" / f"python{PYTHON_VERSION}" / "site-packages"

    @property
    def libraries(self) -> Path:
        return self.packages / "torch" / "lib"

    @property
    def headers(self) -> Path:
        """The folder of cuda.h."""
        return next((self.folder / "headers").rglob("cuda_runtime_api.h")).parent


def installed() -> Installation:
    """Where it is, or would be."""
    key = content_hash([PACKAGES, HEADERS], LAYOUT, sys.version, BASE_PYTHON)
    return Installation(folder=cache_folder() / f"torch-{PYTHON_VERSION}-{key}")


def install() -> Installation:
    """Installs what is not there. Raises SetupFailed."""
    wanted = installed()
    if not wanted.folder.exists():
        cache_folder().mkdir(parents=True, exist_ok=True)
        # Not set-up's lock: that one may be held for half an hour.
        with (cache_folder() / "torch-lock").open("w") as file, step("PyTorch, without a GPU") as running:
            fcntl.flock(file, fcntl.LOCK_EX)
            provide(wanted.folder, partial(_fill, running))
    return wanted


def lacks() -> str | None:
    """Why no test can use PyTorch here."""
    if os.uname().machine != "x86_64":
        return f"needs PyTorch's CUDA wheel on x86-64, this is {os.uname().machine}"
    if PYTHON_VERSION not in PYTHONS:
        return (
            f"needs PyTorch's wheel, which is there for Python {', '.join(PYTHONS)}; this is {PYTHON_VERSION}"
        )
    missing = [tool for tool in ("gcc", "nm", "readelf") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)} to build the stand-in runtime (packages gcc and binutils)"
    if not installed().folder.exists():
        return f"needs PyTorch: {INSTALLS}"
    return None


def _fill(running: Step, folder: Path) -> None:
    environment = folder / "environment"
    command.run([BASE_PYTHON, "-m", "venv", "--without-pip", str(environment)], log="torch", hint=HINT)
    into = ["--python", str(environment / "bin" / "python")]
    _pip(running, [*into, "install", "--no-compile", "-r", str(PACKAGES)])
    headers = folder / "headers"
    _pip(running, ["install", "--no-compile", "--target", str(headers), "-r", str(HEADERS)])
    for libraries in headers.glob("nvidia/*/lib"):
        shutil.rmtree(libraries)


def _pip(running: Step, arguments: list[str]) -> None:
    # The checkout's pip: the system's Python may have none.
    pip = [str(dependencies() / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-cache-dir", "--progress-bar=off"]
    command.run(
        [*pip, *arguments, *options],
        log="torch",
        hint=HINT,
        on_line=lambda line: running.says(line.strip()[:80]),
    )


def main() -> int:
    try:
        print(install().folder)
    except ToolchainError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

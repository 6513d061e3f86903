# SPDX-License-Identifier: Apache-2.0
"""Builds the pinned Go programs into the cache.

Downloads go where the user's Go keeps modules. The compiler's cache, 9 GB for all of them, is the user's own
where most of a program is in it already, and a private one, deleted when all is built, otherwise.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from localcloud.toolchain import command
from localcloud.toolchain.cache import cache_folder, provide
from localcloud.toolchain.errors import SetupFailed
from localcloud.toolchain.programs import Program
from localcloud.toolchain.progress import Step, step

OLDEST_GO: Final = (1, 21)
"""From here on `go` fetches the newer toolchain that a go.mod asks for, if the user lets it."""

DISK_BYTES: Final = 15 * 10**9
NETWORK_HINT: Final = (
    "modules come from the proxy that `go env GOPROXY` names: check the network, then run it again"
)
BUILD_HINT: Final = "run it again: what is compiled is kept"
ENVIRONMENT: Final = {"CGO_ENABLED": "0", "GOWORK": "off", "GOGC": "400", "GOMEMLIMIT": "3GiB"}
"""The compiler takes a quarter less time when it collects its garbage more seldom, as long as it is small."""


def build(programs: Iterable[Program]) -> None:
    """Build those that are not there. The caller holds the cache's lock."""
    missing = [program for program in programs if not program.path.exists()]
    if missing:
        _check_go()
        _check_disk()
        for program in missing:
            with step(f"{program.title}, from source") as running:
                provide(program.folder, partial(_build_one, program, running))
    shutil.rmtree(_private_cache(), ignore_errors=True)


def _build_one(program: Program, running: Step, folder: Path) -> None:
    sources = folder / "sources"
    shutil.copytree(program.sources, sources)
    compiler = _Compiler(program=program, sources=sources)
    compiler.download(running)
    if program.before:
        program.before(sources, compiler.module_folder)
    cache, to_compile = compiler.choose_cache()
    compiler.compile(folder / program.executable, cache, to_compile, running)
    if program.after:
        program.after(folder, compiler.module_folder)
    shutil.rmtree(sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiler:
    """The `go` command for one program, in a copy of its module folder."""

    program: Program
    sources: Path

    @property
    def _flags(self) -> list[str]:
        variables = " ".join(f"-X {name}={value}" for name, value in self.program.variables)
        # -trimpath is part of what the compiler's cache is keyed by, and keeps this user's paths out of the executable.
        # What debuggers need is not even made.
        return ["-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", f"-s -w {variables}"]

    def download(self, running: Step) -> None:
        """Fetch the modules that the program is built from, and no others."""

        def show(line: str) -> None:
            if line.startswith("go: downloading "):
                running.says(f"downloading {' '.join(line.split()[2:])}")

        # `-e`: the package of the provider is not complete before its embedded files are made.
        self._go(["list", "-e", "-deps", "-f", "", self.program.package], NETWORK_HINT, on_line=show)

    def module_folder(self, module: str) -> Path:
        lines = self._go(["list", "-m", "-f", "{{.Dir}}", module], NETWORK_HINT)
        return Path(lines[-1])

    def choose_cache(self) -> tuple[Path | None, int]:
        """The compiler's cache to use (None: the user's own), and how many packages it lacks."""
        lacking, total = self._lacking(None)
        if lacking * 2 <= total:
            return None, lacking
        private = _private_cache()
        return private, self._lacking(private)[0]

    def compile(self, executable: Path, cache: Path | None, to_compile: int, running: Step) -> None:
        compiled = 0

        def show(_: str) -> None:
            nonlocal compiled
            compiled += 1
            running.says(f"{min(compiled, to_compile)} of {to_compile} packages compiled")

        arguments = ["build", "-v", *self._flags, "-o", str(executable), self.program.package]
        self._go(arguments, BUILD_HINT, cache=cache, on_line=show)

    def _lacking(self, cache: Path | None) -> tuple[int, int]:
        stale = self._go(
            ["list", *self._flags, "-deps", "-f", "{{.Stale}}", self.program.package],
            NETWORK_HINT,
            cache=cache,
        )
        return stale.count("true"), len(stale)

    def _go(
        self,
        arguments: list[str],
        hint: str,
        *,
        cache: Path | None = None,
        on_line: Callable[[str], object] = lambda line: None,
    ) -> list[str]:
        environment = {**ENVIRONMENT, "GOCACHE": str(cache)} if cache else ENVIRONMENT
        return command.run(
            ["go", *arguments],
            log=self.program.module,
            hint=hint,
            folder=self.sources,
            environment=environment,
            on_line=on_line,
        )


def _private_cache() -> Path:
    return cache_folder() / "go-build"


def _check_go() -> None:
    try:
        printed = subprocess.run(
            ["go", "env", "-json", "GOVERSION"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupFailed(
            "Go is not on PATH. The local cloud's engine and control plane are built with it:\n"
            f"  install Go {'.'.join(map(str, OLDEST_GO))} or newer (https://go.dev/dl), or install what you can of the"
            " official `pulumi` with its Kubernetes plugin; then run it again"
        ) from error
    version = json.loads(printed)["GOVERSION"]
    if _numbers(version) < OLDEST_GO:
        oldest = ".".join(map(str, OLDEST_GO))
        raise SetupFailed(
            f"Go {oldest} or newer is needed, {version} is on PATH: install it from https://go.dev/dl"
        )


def _numbers(version: str) -> tuple[int, ...]:
    """(1, 26) of go1.26.8; experimental builds say more behind it."""
    return tuple(int(part) for part in version.removeprefix("go").split(".")[:2] if part.isdigit())


def _check_disk() -> None:
    free = shutil.disk_usage(cache_folder()).free
    if free < DISK_BYTES:
        raise SetupFailed(
            f"{cache_folder()} has {free / 1e9:.0f} GB free, the builds need {DISK_BYTES / 1e9:.0f} GB for a while"
            " (1 GB stays): make room, or point XDG_CACHE_HOME to another disk"
        )

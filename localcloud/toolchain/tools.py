# SPDX-License-Identifier: Apache-2.0
"""Finds the engine, its plugins and the control plane: the user's own where they fit, what set-up built otherwise."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcloud.toolchain import programs
from localcloud.toolchain.errors import NotSetUp
from localcloud.toolchain.pins import OLDEST_PULUMI, provider_version

HOME_MARKER: Final = ".made-by-gpuheap"
"""A file in the Pulumi homes that `home.py` lays out: their plugins are ours, not the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Executables, as absolute paths.

    `language_scripts` is the folder of the SDK's two Python scripts where our own language host is needed, None
    where `pulumi` has the official one beside it. `random_provider` and `docker_build_provider` are the user's
    official plugins; None means our stand-ins.
    """

    pulumi: Path
    language_scripts: Path | None
    kubernetes_provider: Path
    control_plane: Path
    random_provider: Path | None
    docker_build_provider: Path | None


def resolve() -> Tools:
    """All tools. Raises NotSetUp, naming what is missing, before the first set-up."""
    engine = own_pulumi()
    missing = [program.title for program in needed(engine) if not program.path.exists()]
    if missing:
        raise NotSetUp(
            f"missing: {', '.join(missing)}. Run `make setup`, which finds or builds them once per user."
        )
    return Tools(
        pulumi=engine or programs.pulumi().path,
        language_scripts=None if _has_language_host(engine) else programs.pulumi().folder,
        kubernetes_provider=own_plugin("kubernetes") or programs.kubernetes_provider().path,
        control_plane=programs.control_plane().path,
        random_provider=own_plugin("random"),
        docker_build_provider=own_plugin("docker-build"),
    )


def needed(engine: Path | None) -> list[programs.Program]:
    """What this user needs built, whether or not it is already; their own `engine` and plugins need no twin."""
    wanted = [programs.control_plane()]
    # An engine without the language host beside it still needs the SDK's two scripts, which come with our build.
    if not _has_language_host(engine):
        wanted.insert(0, programs.pulumi())
    if own_plugin("kubernetes") is None:
        wanted.append(programs.kubernetes_provider())
    return wanted


def own_pulumi() -> Path | None:
    """The user's own `pulumi` on PATH, if it is new enough."""
    for folder in os.get_exec_path():
        found = shutil.which("pulumi", path=folder)
        if found is None or Path(found).resolve() == programs.pulumi().path.resolve():
            continue
        return Path(found).absolute() if _version_of(found) >= OLDEST_PULUMI else None
    return None


def own_plugin(name: str) -> Path | None:
    """The user's official resource plugin in exactly the version that the SDK asks for."""
    version = provider_version(name)
    for home in _user_homes():
        path = home / "plugins" / f"resource-{name}-v{version}" / f"pulumi-resource-{name}"
        if os.access(path, os.X_OK):
            return path
    return None


def _has_language_host(engine: Path | None) -> bool:
    """Whether the official language host is where the engine looks for it: beside itself, links followed."""
    return engine is not None and engine.resolve().with_name("pulumi-language-python").exists()


def _user_homes() -> list[Path]:
    homes = [Path.home() / ".pulumi"]
    if named := os.environ.get("PULUMI_HOME"):
        homes.insert(0, Path(named))
    return [home.absolute() for home in homes if not (home / HOME_MARKER).exists()]


def _version_of(pulumi: str) -> tuple[int, ...]:
    """(major, minor) of an engine; (0,) if it does not say."""
    environment = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        done = subprocess.run(
            [pulumi, "version"], capture_output=True, text=True, check=False, env=environment, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    match = re.match(r"v?(\d+)\.(\d+)\.", done.stdout.strip())
    return (int(match[1]), int(match[2])) if match else (0,)

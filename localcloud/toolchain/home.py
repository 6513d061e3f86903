# SPDX-License-Identifier: Apache-2.0
"""Lays out a Pulumi home: where the engine looks for plugins, in exactly the versions that the SDKs ask for.

`azure-native` is always the simulated one. Run the engine with PULUMI_IGNORE_AMBIENT_PLUGINS=true: it would prefer a
provider that it finds on PATH.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from localcloud.plugin.language.prepared import VARIABLE
from localcloud.toolchain import programs
from localcloud.toolchain.pins import CHECKOUT, provider_version
from localcloud.toolchain.tools import HOME_MARKER, Tools

RUN_MODULE: Final = (
    "import runpy, sys; sys.path.insert(0, {path!r}); runpy.run_module({module!r}, None, '__main__', True)"
)
"""Not `-m`: that would look for modules in the program's folder first, and need this checkout on the search path."""

LAUNCHER: Final = """#!/bin/sh
if [ -n "${variable}" ]; then
    exec {copied} "$@"
fi
exec {command} "$@"
"""
"""What becomes a plugin: of the prepared Python (`plugin/language/prepared.py`), where there is one, or by itself."""


def pulumi_home(state: Path, tools: Tools, *, python: Path = Path(sys.executable)) -> Path:
    """`<state>/pulumi-home`, laid out for `tools`; `python` runs the plugins that are written in Python."""
    home = state.absolute() / "pulumi-home"
    plugins = home / "plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    (home / HOME_MARKER).touch()
    kept = {
        _resource(plugins, "kubernetes", _link(tools.kubernetes_provider)),
        _resource(plugins, "azure-native", _module(python, "localcloud.azure.native")),
        _resource(plugins, "random", _official_or_ours("random", tools.random_provider, python)),
        _resource(
            plugins, "docker-build", _official_or_ours("docker-build", tools.docker_build_provider, python)
        ),
    }
    if tools.language_scripts:
        kept |= _language_host(plugins, tools.language_scripts, python)
    for folder in set(plugins.iterdir()) - kept:  # of versions that are pinned no longer
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    return home


def _language_host(plugins: Path, scripts: Path, python: Path) -> set[Path]:
    version = programs.pulumi().version
    executor = scripts / "pulumi-language-python-exec"
    launcher = _module(
        python, "localcloud.plugin", "language", "--version", version, "--executor", str(executor)
    )
    host = plugins / f"language-python-v{version}"
    dynamic = plugins / f"resource-pulumi-python-v{version}"
    _place(host / "pulumi-language-python", launcher)
    _place(dynamic / "pulumi-resource-pulumi-python", _link(scripts / "pulumi-resource-pulumi-python"))
    return {host, dynamic}


def _resource(plugins: Path, name: str, content: str | Path) -> Path:
    folder = plugins / f"resource-{name}-v{provider_version(name)}"
    _place(folder / f"pulumi-resource-{name}", content)
    return folder


def _official_or_ours(name: str, official: Path | None, python: Path) -> str | Path:
    if official:
        return _link(official)
    return _module(python, "localcloud.plugin", name, "--version", provider_version(name))


def _link(target: Path) -> Path:
    return target.absolute()


def _module(python: Path, module: str, *arguments: str) -> str:
    """A launcher that becomes a Python module of this checkout."""
    start = RUN_MODULE.format(path=str(CHECKOUT), module=module)
    copy = RUN_MODULE.format(path=str(CHECKOUT), module="localcloud.plugin.copied")
    return LAUNCHER.format(
        variable=VARIABLE,
        command=shlex.join([str(python), "-P", "-c", start, *arguments]),
        copied=shlex.join([str(python), "-S", "-P", "-c", copy, str(CHECKOUT), module, *arguments]),
    )


def _place(path: Path, content: str | Path) -> None:
    """Write a launcher (text) or a link (path), never leaving half of one for an engine that starts meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    if isinstance(content, Path):
        unfinished.symlink_to(content)
    else:
        unfinished.write_text(content)
        unfinished.chmod(0o755)
    unfinished.replace(path)

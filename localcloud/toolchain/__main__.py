# SPDX-License-Identifier: Apache-2.0
"""`python3 -m localcloud.toolchain [setup|resolve|clean]`: all that the checkout needs, found or made."""

import argparse
import dataclasses
import shutil
import sys
import time

from localcloud.toolchain import (
    cache,
    go_build,
    node_packages,
    packages,
    programs,
    python_environment,
    web,
)
from localcloud.toolchain.errors import SetupFailed, ToolchainError
from localcloud.toolchain.tools import needed, own_pulumi, resolve

OLDEST_PYTHON = (3, 11)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m localcloud.toolchain", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["setup", "resolve", "clean"], default="setup")
    command = {"setup": setup, "resolve": show, "clean": clean}[parser.parse_args().command]
    try:
        command()
    except ToolchainError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; what was finished is kept", file=sys.stderr)
        return 130
    return 0


def setup() -> None:
    """Find or make everything; what is there already costs no time and no line."""
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise SetupFailed(
            f"Python {oldest} or newer is needed, this is {sys.version.split()[0]} ({sys.executable})"
        )
    started = time.monotonic()
    with cache.lock(lambda: print("another set-up is running: waiting for it", flush=True)):
        missing = packages.provide()
        installed = python_environment.dependencies()
        assets = web.assets(installed / "bin" / "python")
        no_node = node_packages.provide()
        go_build.build([*needed(own_pulumi()), programs.rule_engine()])
    python_environment.checkout_environment(installed)
    web.copy_assets(assets)
    without_node = [f"no real Kubernetes node, its tests are skipped: {no_node}"] if no_node else []
    print(*packages.report(missing), *without_node, f"set up in {time.monotonic() - started:.1f} s", sep="\n")


def show() -> None:
    """Print where each tool is."""
    for name, path in dataclasses.asdict(resolve()).items():
        print(f"{name:24} {path or 'our stand-in' if name != 'language_scripts' else path or 'not needed'}")


def clean() -> None:
    """Remove all that set-up put into the cache; the next set-up makes it anew."""
    with cache.lock(lambda: print("a set-up is running: waiting for it", flush=True)):
        for entry in cache.cache_folder().iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
    print(f"removed what was in {cache.cache_folder()}")


if __name__ == "__main__":
    sys.exit(main())

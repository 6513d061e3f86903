# SPDX-License-Identifier: Apache-2.0
"""Builds of CPython that this machine does not have installed, kept in the per-user cache and run from there.

- The newest versions of Debian's unstable release, with its C library beside them; their headers, also of the
  interpreter's inside, apart.
- python-build-standalone's build as uv installs it (static, stripped), from the Go module that packs it.
- Free-threaded builds, made from Debian's source packages. That takes minutes each, so only
  `python -m tests.interpreters.archive` makes them; it fetches all the others, too.
"""

import fcntl
import gzip
import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from localcloud.toolchain.cache import cache_folder, provide
from tests.debian import Archive, NotObtainable, run, sites

UNSTABLE: Final = "sid"
UNSTABLE_VERSIONS: Final = ("3.13", "3.14", "3.15")
C_LIBRARY: Final = ("libc6", "libexpat1", "zlib1g", "libffi8")
LIBRARIES: Final = Path("usr/lib/x86_64-linux-gnu")

STANDALONE: Final = "github.com/kluctl/go-embed-python@v0.0.0-3.14.6-20260610-1"
"""Packs python-build-standalone's `install_only_stripped` archives."""

FREE_THREADED: Final = {"3.13": "trixie", "3.14": UNSTABLE, "3.15": UNSTABLE}
"""The suite whose source is built, by version."""

BUILD_SECONDS: Final = 3600
COMPILED: Final = (
    "asyncio",
    "collections",
    "concurrent/futures",
    "ctypes",
    "encodings",
    "importlib",
    "json",
    "re",
)


def unstable() -> Path:
    """The root folder of Debian's unstable Pythons. Raises NotObtainable."""
    return _kept(f"{UNSTABLE}-{'-'.join(UNSTABLE_VERSIONS)}", _fetch_unstable)


def unstable_headers() -> Path:
    """The root folder of the headers of Debian's unstable Pythons. Raises NotObtainable."""
    return _kept(f"{UNSTABLE}-headers-{'-'.join(UNSTABLE_VERSIONS)}", _fetch_unstable_headers)


def standalone() -> Path:
    """The folder of python-build-standalone's build. Raises NotObtainable."""
    return _kept(f"standalone-{STANDALONE.partition('@v0.0.0-')[2]}", _fetch_standalone)


def free_threaded(version: str, *, build: bool = False) -> Path:
    """The free-threaded interpreter. Raises NotObtainable, also when it would have to be built first."""
    name = f"free-threaded-{FREE_THREADED[version]}-python{version}"
    if not build and not (_folder() / name).exists():
        raise NotObtainable(
            f"neither python{version}t on PATH nor pyenv's nor uv's, and not built yet: "
            "`python -m tests.interpreters.archive` builds it where Debian's archive has the source"
        )
    return _kept(name, partial(_build_free_threaded, version)) / "python"


def _folder() -> Path:
    return cache_folder() / "interpreters"


def _kept(name: str, fetch: Callable[[Path], None]) -> Path:
    folder = _folder() / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            provide(folder, fetch)
    return folder


def _site() -> str:
    site = sites().get("main")
    if site is None:
        raise NotObtainable("apt has no sources of Debian here")
    return site


def _fetch_unstable(into: Path) -> None:
    archive = Archive(into / "apt", _site(), UNSTABLE)
    for version in UNSTABLE_VERSIONS:
        archive.download(
            f"python{version}-minimal", f"libpython{version}-minimal", f"libpython{version}-stdlib"
        )
    archive.download(*C_LIBRARY)
    archive.unpack(into)
    shutil.rmtree(archive.work)
    loader = into / LIBRARIES / "ld-linux-x86-64.so.2"
    for version in UNSTABLE_VERSIONS:
        python = into / "usr" / "bin" / f"python{version}"
        start = ["env", f"PYTHONHOME={into}/usr", str(loader), "--library-path", str(into / LIBRARIES)]
        _compile([*start, str(python)], into / "usr" / "lib" / f"python{version}")


def _fetch_unstable_headers(into: Path) -> None:
    archive = Archive(into / "apt", _site(), UNSTABLE)
    archive.download(*(f"libpython{version}-dev" for version in UNSTABLE_VERSIONS))
    archive.unpack(archive.work / "unpacked")
    (archive.work / "unpacked" / "usr" / "include").rename(into / "include")
    shutil.rmtree(archive.work)


def _fetch_standalone(into: Path) -> None:
    if (go := shutil.which("go")) is None:
        raise NotObtainable("needs go, which fetches the module that packs it")
    modules = into / "modules"
    environment = ["env", f"GOMODCACHE={modules}", "GOFLAGS=-modcacherw"]
    said = run([*environment, go, "mod", "download", "-json", STANDALONE], folder=into)
    packed = Path(json.loads(said)["Dir"]) / "python" / "internal" / "data" / "linux-amd64"
    for entry in json.loads((packed / "files.json").read_text())["files"]:
        _unpack(entry, packed, into)
    shutil.rmtree(modules)
    _compile([str(into / "bin" / "python3.14")], into / "lib" / "python3.14")


def _compile(python: list[str], library: Path) -> None:
    """What programs import, once: not at each start, and never into the cache while tests run."""
    for folder in (library, *(library / name for name in COMPILED)):
        run([*python, "-m", "compileall", "-q", "-l", "--invalidation-mode", "unchecked-hash", str(folder)])


def _unpack(entry: dict[str, Any], packed: Path, into: Path) -> None:
    """Modes are Go's: the highest bit is a folder's."""
    target = into / entry["name"]
    if entry["perm"] & 1 << 31:
        target.mkdir(parents=True, exist_ok=True)
    elif link := entry.get("symlink"):
        target.symlink_to(link)
    else:
        if entry.get("compressed"):
            target.write_bytes(gzip.decompress((packed / f"{entry['name']}.gz").read_bytes()))
        else:
            shutil.copyfile(packed / entry["name"], target)
        target.chmod(entry["perm"] & 0o777)


def _build_free_threaded(version: str, into: Path) -> None:
    """In its build folder, from which CPython runs without being installed."""
    archive = Archive(into / "apt", _site(), FREE_THREADED[version], sources=True)
    archive.source(f"python{version}")
    source = next(archive.work.glob("*.orig.tar.*z"))
    run(["tar", "-xf", str(source), "--strip-components=1", "-C", str(into)])
    shutil.rmtree(archive.work)
    options = ["--disable-gil", "--without-ensurepip", "--disable-test-modules", "CFLAGS=-O1"]
    run(["./configure", "-q", *options], folder=into, seconds=BUILD_SECONDS)
    run(["make", "-s", "-j2"], folder=into, seconds=BUILD_SECONDS)


def main() -> int:
    makes: dict[str, Callable[[], Path]] = {
        "Debian's unstable Pythons": unstable,
        "their headers": unstable_headers,
        "python-build-standalone": standalone,
        **{f"free-threaded {text}": partial(free_threaded, text, build=True) for text in FREE_THREADED},
    }
    missing = 0
    for name, make in makes.items():
        try:
            print(f"{name}: {make()}")
        except NotObtainable as error:
            print(f"{name}: {error}", file=sys.stderr)
            missing += 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

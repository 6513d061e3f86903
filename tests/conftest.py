# SPDX-License-Identifier: Apache-2.0
"""Which tests this machine can run: one whose need is not met is skipped, with what is missing as the reason."""

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from localcloud.cloud import LocalCloud
from localcloud.node import needs
from localcloud.plugin.language.prepared import VARIABLE, prepared_python
from localcloud.toolchain import NotSetUp, programs, resolve
from tests.kernels import archive
from tests.torch import installation

BPF_MAP_CREATE: Final = 0
BPF_MAP_TYPE_ARRAY: Final = 2
BPF_SYSCALL: Final = {"x86_64": 321, "aarch64": 280}
settings.register_profile("gpuheap", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpuheap")
"""How long an example takes says how busy the machine is."""

CHECKOUT: Final = Path(__file__).resolve().parent.parent
TRACER: Final = CHECKOUT / "agent" / "gpuheap" / "tracer"
Choice = TypeVar("Choice")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _turn(item.nodeid.partition("::")[0]))
    for item in items:
        for marker, lacks in NEEDS.items():
            if item.get_closest_marker(marker) and (reason := lacks()):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes may differ from lane to lane, as those of gzip hold the time; the names of tests must not."""
    return f"{argname} of {len(val)} bytes" if isinstance(val, bytes) and len(val) > 8 else None


class Lanes(LoadScopeScheduling):
    """Tests side by side (`make test`); what is in one lane runs one after the other.

    The tests of a file share their fixtures, those of the real node one node, those of placement one API server. A
    tracer sees the whole machine, so two of them would count what the other's programs do.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _lane(nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes:
    config.option.loadscopereorder = False  # by the number of tests
    return Lanes(config, log)


@cache
def _turn(file: str) -> int:
    """Files that take long begin first, so that none is left alone at the end."""
    return _by_marker(file, TURNS, otherwise=len(TURNS))


@cache
def _lane(file: str) -> str:
    by_marker = _by_marker(file, LANES, otherwise=file)
    return next((folder for folder in SHARING if file.startswith(f"{folder}/")), by_marker)


def _by_marker(file: str, choices: Mapping[str, Choice], *, otherwise: Choice) -> Choice:
    """Of the first marker that the file mentions: whoever deals out the tests knows the names of files only."""
    text = (CHECKOUT / file).read_text()
    return next((choice for marker, choice in choices.items() if f"mark.{marker}" in text), otherwise)


@pytest.fixture(scope="module")
def local_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A running cloud for the tests of one module, empty at first. Mark what uses it `cluster`."""
    with LocalCloud(tmp_path_factory.mktemp("cloud")) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def python_with_sdks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    address = tmp_path_factory.mktemp("python") / "socket"
    with prepared_python(address):
        yield address


@pytest.fixture(scope="module")
def prepared(python_with_sdks: Path) -> Iterator[None]:
    """For modules that run large programs with the engine, again and again: the SDKs are imported once."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(VARIABLE, str(python_with_sdks))
        yield


@cache
def _lacks_bpf() -> str | None:
    if os.geteuid() != 0:
        return "needs root to load eBPF programs"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "needs a kernel with BTF: there is no /sys/kernel/btf/vmlinux"
    if lack := _lacks_object():
        return lack
    try:
        ctypes.CDLL("libbpf.so.1")
    except OSError:
        return "needs libbpf.so.1 (package libbpf1)"
    return _bpf_refusal()


def _lacks_object() -> str | None:
    if (TRACER / "gpuheap.bpf.o").exists():
        return None
    return "needs the eBPF object: `make bpf` builds it, with clang and libbpf-dev"


def _bpf_refusal() -> str | None:
    """What the kernel says to the smallest request of bpf(2); containers are often refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = (ctypes.c_uint32 * 18)(BPF_MAP_TYPE_ARRAY, 4, 4, 1)  # type, key and value size, entries
    number = BPF_SYSCALL.get(os.uname().machine)
    if number is None:
        return f"needs x86-64 or arm64, this is {os.uname().machine}"
    descriptor = libc.syscall(number, BPF_MAP_CREATE, ctypes.byref(attributes), ctypes.sizeof(attributes))
    if descriptor < 0:
        return f"needs eBPF, which the kernel refuses here: {os.strerror(ctypes.get_errno())}"
    os.close(descriptor)
    return None


@cache
def _lacks_tools() -> str | None:
    try:
        resolve()
    except NotSetUp as error:
        return str(error)
    return None


def _lacks_rule_engine() -> str | None:
    engine = programs.rule_engine()
    return None if engine.path.exists() else f"missing: {engine.title}. Run `make setup`, which builds it"


@cache
def _lacks_gpu() -> str | None:
    if not Path("/dev/nvidiactl").exists():
        return "needs an NVIDIA GPU with its driver: there is no /dev/nvidiactl"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "needs the NVIDIA driver's libcuda.so.1"
    return None


@cache
def _lacks_gdb() -> str | None:
    if shutil.which("gdb") is None:
        return "needs GDB: there is no gdb on PATH"
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if os.geteuid() and scope.exists() and scope.read_text().strip() != "0":
        return f"needs the right to attach to processes, which {scope} limits"
    return None


@cache
def _lacks_node() -> str | None:
    return _lacks_tools() or needs.lacks()


LANES: Final = {"bpf": "tracer"}
TURNS: Final = {"bpf": 1, "kernels": 0, "engine": 2, "node": 3, "cluster": 4}
"""Other kernels go before what is traced here, which compares their answers."""

SHARING: Final = ("tests/localcloud/node", "tests/placement")
"""Folders whose files share what is dear to start."""

NEEDS: Final[dict[str, Callable[[], str | None]]] = {
    "bpf": _lacks_bpf,
    "cluster": _lacks_tools,
    "engine": _lacks_tools,
    "gdb": _lacks_gdb,
    "gpu": _lacks_gpu,
    "kernels": lambda: _lacks_object() or archive.lacks(),
    "node": _lacks_node,
    "torch": installation.lacks,
    "rules": _lacks_rule_engine,
}

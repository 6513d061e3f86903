# SPDX-License-Identifier: Apache-2.0
"""BPF programs as the kernel sees them: what each of ours cost, without the trap around it; and those of others."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from bench.figures import BadMeasurement

ENABLED: Final = Path("/proc/sys/kernel/bpf_stats_enabled")
RUN_TIME: Final = 0
"""BPF_STATS_RUN_TIME of enum bpf_stats_type."""

INFO_BYTES: Final = 232
NAME_OFFSET: Final = 64
"""Of `name[16]` in struct bpf_prog_info, include/uapi/linux/bpf.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Of one program since it was loaded. The kernel keeps the first 15 characters of a name."""

    name: str
    runs: int
    ns: int


@contextmanager
def statistics() -> Iterator[None]:
    """Let the kernel keep them meanwhile. Raises BadMeasurement when it does not (before Linux 5.8)."""
    descriptor = _libbpf().bpf_enable_stats(RUN_TIME)  # for as long as it is open, so not beyond this process
    if descriptor < 0:
        raise BadMeasurement(f"no statistics of BPF programs: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        os.close(descriptor)


def kept_for_all() -> bool:
    """Whether the kernel keeps them anyway, which makes each run of a program dearer."""
    return ENABLED.read_text().strip() != "0"


def runs() -> dict[int, Run]:
    """By the kernel's number of the program."""
    return dict(_runs())


def between(before: dict[int, Run], after: dict[int, Run]) -> list[Run]:
    """What ran in the meantime, the most expensive first."""
    differences = [
        Run(
            name=run.name,
            runs=run.runs - before[number].runs if number in before else run.runs,
            ns=run.ns - before[number].ns if number in before else run.ns,
        )
        for number, run in after.items()
    ]
    return sorted((run for run in differences if run.runs > 0), key=lambda run: -run.ns)


def foreign() -> set[int]:
    """Programs of other processes that have names of ours: another tracer, whose probes are on our files, too."""
    ours = runs()
    names = {run.name for run in ours.values()}
    return {number for number in _loaded() if number not in ours and _name_of(number) in names}


def _runs() -> Iterator[tuple[int, Run]]:
    for link in Path("/proc/self/fd").iterdir():
        try:
            if str(link.readlink()) != "anon_inode:bpf-prog":
                continue
            lines = Path(f"/proc/self/fdinfo/{link.name}").read_text().splitlines()
        except OSError:  # the folder's own descriptor, closed by now
            continue
        fields = dict(line.split(":", 1) for line in lines)
        yield (
            int(fields["prog_id"]),
            Run(name=_name(int(link.name)), runs=int(fields["run_cnt"]), ns=int(fields["run_time_ns"])),
        )


def _loaded() -> Iterator[int]:
    number = ctypes.c_uint32(0)
    while not _libbpf().bpf_prog_get_next_id(number, ctypes.byref(number)):
        yield number.value


def _name_of(number: int) -> str | None:
    descriptor = _libbpf().bpf_prog_get_fd_by_id(ctypes.c_uint32(number))
    if descriptor < 0:  # unloaded by now
        return None
    try:
        return _name(descriptor)
    finally:
        os.close(descriptor)


def _name(descriptor: int) -> str:
    info = ctypes.create_string_buffer(INFO_BYTES)
    size = ctypes.c_uint32(INFO_BYTES)
    if _libbpf().bpf_obj_get_info_by_fd(descriptor, info, ctypes.byref(size)):
        return f"fd {descriptor}: {os.strerror(ctypes.get_errno())}"
    name: bytes = struct.unpack_from("16s", info, NAME_OFFSET)[0]
    return name.rstrip(b"\0").decode(errors="replace")


@cache
def _libbpf() -> ctypes.CDLL:
    return ctypes.CDLL("libbpf.so.1", use_errno=True)

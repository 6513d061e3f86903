# SPDX-License-Identifier: Apache-2.0
"""The part of libbpf.so.1 that is used, through ctypes: load an object, attach its programs, read its maps.

libbpf does the loading (CO-RE, map creation) and the attaching. Errors carry the log that libbpf wrote meanwhile.
"""

import ctypes as c
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from .errors import AttachError, LoadError, TracerUnavailable

K = TypeVar("K", bound=c.Structure)
V = TypeVar("V", bound=c.Structure)
N = TypeVar("N", bound=c.Structure)

BATCH: Final = 1024
LOG_BYTES: Final = 1 << 14

_PRINT = c.CFUNCTYPE(c.c_int, c.c_int, c.c_char_p, c.c_void_p)
_SAMPLE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_size_t)


class _UprobeOptions(c.Structure):
    """struct bpf_uprobe_opts of libbpf 1.0; `sz` tells a newer one how much of it is there."""

    _fields_ = [
        ("sz", c.c_size_t),
        ("ref_ctr_offset", c.c_size_t),
        ("bpf_cookie", c.c_uint64),
        ("retprobe", c.c_bool),
        ("func_name", c.c_char_p),
        ("attach_mode", c.c_uint32),
    ]


_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "libbpf_set_print": (c.c_void_p, [_PRINT]),
    "bpf_object__open_file": (c.c_void_p, [c.c_char_p, c.c_void_p]),
    "bpf_object__load": (c.c_int, [c.c_void_p]),
    "bpf_object__close": (None, [c.c_void_p]),
    "bpf_object__find_program_by_name": (c.c_void_p, [c.c_void_p, c.c_char_p]),
    "bpf_object__find_map_by_name": (c.c_void_p, [c.c_void_p, c.c_char_p]),
    "bpf_map__fd": (c.c_int, [c.c_void_p]),
    "bpf_map__set_max_entries": (c.c_int, [c.c_void_p, c.c_uint32]),
    "bpf_program__attach": (c.c_void_p, [c.c_void_p]),
    "bpf_program__attach_uprobe_opts": (
        c.c_void_p,
        [c.c_void_p, c.c_int, c.c_char_p, c.c_size_t, c.POINTER(_UprobeOptions)],
    ),
    "bpf_link__destroy": (c.c_int, [c.c_void_p]),
    "bpf_map_lookup_elem": (c.c_int, [c.c_int, c.c_void_p, c.c_void_p]),
    "bpf_map_update_elem": (c.c_int, [c.c_int, c.c_void_p, c.c_void_p, c.c_uint64]),
    "bpf_map_delete_elem": (c.c_int, [c.c_int, c.c_void_p]),
    "bpf_map_lookup_batch": (
        c.c_int,
        [c.c_int, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.POINTER(c.c_uint32), c.c_void_p],
    ),
    "libbpf_num_possible_cpus": (c.c_int, []),
    "ring_buffer__new": (c.c_void_p, [c.c_int, _SAMPLE, c.c_void_p, c.c_void_p]),
    "ring_buffer__consume": (c.c_int, [c.c_void_p]),
    "ring_buffer__epoll_fd": (c.c_int, [c.c_void_p]),
    "ring_buffer__free": (None, [c.c_void_p]),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Uprobe:
    """A program, and where in a file it goes."""

    program: str
    offset: int
    on_return: bool = False
    cookie: int = 0


class _Library:
    """libbpf with its functions typed, and what it logged since last asked."""

    def __init__(self) -> None:
        try:
            self._library = c.CDLL("libbpf.so.1", use_errno=True)
        except OSError as error:
            raise TracerUnavailable(
                f"libbpf.so.1 cannot be loaded ({error}): install libbpf1, 1.0 or newer"
            ) from error
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self._log: list[str] = []
        self._format = c.CDLL(None).vsnprintf
        self._format.argtypes = [c.c_char_p, c.c_size_t, c.c_char_p, c.c_void_p]
        self._print = _PRINT(self._keep)  # libbpf calls it as long as it is loaded
        self.libbpf_set_print(self._print)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def _keep(self, level: int, template: bytes, arguments: int) -> int:
        if level == 0:  # LIBBPF_WARN
            buffer = c.create_string_buffer(LOG_BYTES)
            self._format(buffer, LOG_BYTES, template, arguments)
            self._log.append(buffer.value.decode(errors="replace").strip())
        return 0

    def taken_log(self) -> str:
        text, self._log = "\n".join(self._log[-40:]), []
        return text


_loaded: _Library | None = None


def _library() -> _Library:
    global _loaded  # noqa: PLW0603 - one library a process, and it holds a pointer to our callback
    _loaded = _loaded or _Library()
    return _loaded


class BpfObject:
    """A loaded BPF object: its programs attached one by one, all detached and unloaded by `close`."""

    def __init__(self, path: Path, max_entries: dict[str, int] | None = None) -> None:
        """Raises TracerUnavailable for missing rights or files, LoadError when the kernel refuses the object."""
        self._lib = _library()
        self._links: list[int] = []
        if not path.exists():
            raise TracerUnavailable(f"{path} is missing: run `make bpf`")
        self._object = self._lib.bpf_object__open_file(str(path).encode(), None)
        if not self._object:
            raise LoadError(f"{path.name} is no BPF object: {self._lib.taken_log()}")
        for name, entries in (max_entries or {}).items():
            self._lib.bpf_map__set_max_entries(self._map(name), entries)
        if self._lib.bpf_object__load(self._object):
            code = c.get_errno()
            self._lib.bpf_object__close(self._object)
            if code == errno.EPERM:
                raise TracerUnavailable(
                    "the kernel does not let this user load BPF programs: run as root, or with CAP_BPF and CAP_PERFMON"
                )
            raise LoadError(
                f"kernel {os.uname().release} refused {path.name} ({os.strerror(code)}); "
                f"it must be 5.15 or newer:\n{self._lib.taken_log()}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for link in self._links:
            self._lib.bpf_link__destroy(link)
        self._links.clear()
        if self._object:
            self._lib.bpf_object__close(self._object)
            self._object = None

    def attach(self, program: str) -> None:
        """Attach a program to what its section names. Raises AttachError."""
        self._keep_link(self._lib.bpf_program__attach(self._program(program)), program)

    def attach_uprobe(
        self, program: str, path: str, offset: int, *, on_return: bool = False, cookie: int = 0
    ) -> None:
        """Attach to `offset` in a file, for every process that maps it, now or later. Raises AttachError."""
        options = _UprobeOptions(sz=c.sizeof(_UprobeOptions), bpf_cookie=cookie, retprobe=on_return)
        link = self._lib.bpf_program__attach_uprobe_opts(
            self._program(program), -1, path.encode(), offset, c.byref(options)
        )
        self._keep_link(link, f"{program} at {path}+{offset:#x}")

    def attach_uprobes(self, probes: Sequence[Uprobe], path: str) -> None:
        """Attach all of them to one file, or none. Raises AttachError."""
        before = len(self._links)
        try:
            for probe in probes:
                self.attach_uprobe(
                    probe.program, path, probe.offset, on_return=probe.on_return, cookie=probe.cookie
                )
        except AttachError:
            while len(self._links) > before:
                self._lib.bpf_link__destroy(self._links.pop())
            raise

    def map_fd(self, name: str) -> int:
        fd: int = self._lib.bpf_map__fd(self._map(name))
        return fd

    def _keep_link(self, link: int | None, what: str) -> None:
        if not link:
            reason = os.strerror(c.get_errno())
            raise AttachError(
                f"{what}: {reason} (setting uprobes needs CAP_SYS_ADMIN): {self._lib.taken_log()}"
            )
        self._links.append(link)

    def _program(self, name: str) -> int:
        return self._found(self._lib.bpf_object__find_program_by_name(self._object, name.encode()), name)

    def _map(self, name: str) -> int:
        return self._found(self._lib.bpf_object__find_map_by_name(self._object, name.encode()), name)

    @staticmethod
    def _found(pointer: int | None, name: str) -> int:
        if not pointer:
            raise LoadError(
                f"the BPF object has no {name!r}: it was built from another version, run `make bpf`"
            )
        return pointer


def update(fd: int, key: c.Structure | c.c_uint32 | c.c_uint64, value: c.Structure) -> None:
    """Raises OSError."""
    if _library().bpf_map_update_elem(fd, c.byref(key), c.byref(value), 0):
        code = c.get_errno()
        raise OSError(code, os.strerror(code))


def lookup(fd: int, key: c.Structure | c.c_uint32 | c.c_uint64, kind: type[N]) -> N | None:
    value = kind()
    return None if _library().bpf_map_lookup_elem(fd, c.byref(key), c.byref(value)) else value


def delete(fd: int, key: c.Structure | c.c_uint32 | c.c_uint64) -> None:
    """Deleting what is not there is fine."""
    _library().bpf_map_delete_elem(fd, c.byref(key))


def per_cpu_sum(fd: int, index: int) -> int:
    """The sum of one entry of a per-CPU array of 64-bit counters."""
    values = (c.c_uint64 * _library().libbpf_num_possible_cpus())()
    key = c.c_uint32(index)
    return 0 if _library().bpf_map_lookup_elem(fd, c.byref(key), values) else sum(values)


def items(fd: int, key_type: type[K], value_type: type[V]) -> Iterator[tuple[K, V]]:
    """All entries of a hash map, read in batches; entries changed meanwhile may be old or new. Raises OSError."""
    library, batch = _library(), BATCH
    token, following = c.create_string_buffer(64), c.create_string_buffer(64)
    first = True
    while True:
        keys, values, count = (key_type * batch)(), (value_type * batch)(), c.c_uint32(batch)
        failed = library.bpf_map_lookup_batch(
            fd, None if first else token, following, keys, values, c.byref(count), None
        )
        code = c.get_errno() if failed else 0
        if code == errno.ENOSPC:  # a bucket holds more than the batch
            batch *= 2
            continue
        if code not in (0, errno.ENOENT):
            raise OSError(code, os.strerror(code))
        yield from zip(keys[: count.value], values[: count.value], strict=True)
        if code == errno.ENOENT:  # that was the last batch
            return
        token, following, first = following, token, False


class RingBuffer:
    """Calls `receive` with the bytes of each event, when `consume` is called."""

    def __init__(self, fd: int, receive: Callable[[bytes], None]) -> None:
        self._lib = _library()
        self._failure: BaseException | None = None
        self._receive = receive
        self._callback = _SAMPLE(self._on_sample)
        self._ring = self._lib.ring_buffer__new(fd, self._callback, None, None)
        if not self._ring:
            raise LoadError(f"no ring buffer: {os.strerror(c.get_errno())}")

    @property
    def fileno(self) -> int:
        fd: int = self._lib.ring_buffer__epoll_fd(self._ring)
        return fd

    def consume(self) -> None:
        """Handle all events that are there. An exception of `receive` is raised here."""
        self._lib.ring_buffer__consume(self._ring)
        if self._failure:
            failure, self._failure = self._failure, None
            raise failure

    def close(self) -> None:
        if self._ring:
            self._lib.ring_buffer__free(self._ring)
            self._ring = None

    def _on_sample(self, _context: int | None, data: int, size: int) -> int:
        try:
            self._receive(c.string_at(data, size))
        except BaseException as error:  # must not unwind through C: consume() raises it
            self._failure = error
            return -1
        return 0

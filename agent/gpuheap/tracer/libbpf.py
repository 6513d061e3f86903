# SPDX-License-Identifier: Apache-2.0
"""The part of libbpf.so.1 that is used, through ctypes: load an object, attach its programs, read its maps.

libbpf does the loading (CO-RE, map creation) and the attaching. Errors carry the log that libbpf wrote meanwhile.
"""

import ctypes as c
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from .detaching import closed_elsewhere
from .errors import AttachError, LoadError, TracerUnavailable

K = TypeVar("K", bound=c.Structure)
V = TypeVar("V", bound=c.Structure)
N = TypeVar("N", bound=c.Structure)

BATCH: Final = 1024
LOG_BYTES: Final = 1 << 14
DETACHERS: Final = 64
"""Threads that close links of many probes: each waits for the kernel to be done with it, and they wait together."""

_SYS_BPF: Final = {"x86_64": 321, "aarch64": 280}
_LINK_CREATE: Final = 28
_ARRAY: Final = 2  # enum bpf_map_type
_UPROBE_MULTI: Final = 48  # enum bpf_attach_type
_ON_RETURN: Final = 1

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


class _MultiLink(c.Structure):
    """The part of union bpf_attr for BPF_LINK_CREATE of an uprobe_multi link (linux/bpf.h of 6.6)."""

    _fields_ = [
        ("prog_fd", c.c_uint32),
        ("target_fd", c.c_uint32),
        ("attach_type", c.c_uint32),
        ("flags", c.c_uint32),
        ("path", c.c_char_p),
        ("offsets", c.c_void_p),
        ("ref_ctr_offsets", c.c_void_p),
        ("cookies", c.c_void_p),
        ("cnt", c.c_uint32),
        ("multi_flags", c.c_uint32),
        ("pid", c.c_uint32),
        ("pad", c.c_uint32),
    ]


_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "libbpf_set_print": (c.c_void_p, [_PRINT]),
    "bpf_object__open_file": (c.c_void_p, [c.c_char_p, c.c_void_p]),
    "bpf_object__load": (c.c_int, [c.c_void_p]),
    "bpf_object__close": (None, [c.c_void_p]),
    "bpf_object__find_program_by_name": (c.c_void_p, [c.c_void_p, c.c_char_p]),
    "bpf_object__find_map_by_name": (c.c_void_p, [c.c_void_p, c.c_char_p]),
    "bpf_map__fd": (c.c_int, [c.c_void_p]),
    "bpf_map__key_size": (c.c_uint32, [c.c_void_p]),
    "bpf_map__value_size": (c.c_uint32, [c.c_void_p]),
    "bpf_map__set_max_entries": (c.c_int, [c.c_void_p, c.c_uint32]),
    "bpf_object__next_program": (c.c_void_p, [c.c_void_p, c.c_void_p]),
    "bpf_program__name": (c.c_char_p, [c.c_void_p]),
    "bpf_program__section_name": (c.c_char_p, [c.c_void_p]),
    "bpf_program__fd": (c.c_int, [c.c_void_p]),
    "bpf_program__set_autoload": (c.c_int, [c.c_void_p, c.c_bool]),
    "bpf_program__set_expected_attach_type": (c.c_int, [c.c_void_p, c.c_int]),
    "bpf_program__attach": (c.c_void_p, [c.c_void_p]),
    "bpf_program__attach_uprobe_opts": (
        c.c_void_p,
        [c.c_void_p, c.c_int, c.c_char_p, c.c_size_t, c.POINTER(_UprobeOptions)],
    ),
    "bpf_link__fd": (c.c_int, [c.c_void_p]),
    "bpf_link__destroy": (c.c_int, [c.c_void_p]),
    "bpf_map_lookup_elem": (c.c_int, [c.c_int, c.c_void_p, c.c_void_p]),
    "bpf_map_update_elem": (c.c_int, [c.c_int, c.c_void_p, c.c_void_p, c.c_uint64]),
    "bpf_map_delete_elem": (c.c_int, [c.c_int, c.c_void_p]),
    "bpf_map_create": (
        c.c_int,
        [c.c_uint32, c.c_char_p, c.c_uint32, c.c_uint32, c.c_uint32, c.c_void_p],
    ),
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
    """A loaded BPF object: its programs attached one by one, all detached and unloaded by `close`.

    `programs` are the ones to load, by name; None: all. With `multi`, uprobes of one file and one program are one link
    (uprobe_multi, Linux 6.6), else each is a perf event of its own.
    """

    def __init__(
        self,
        path: Path,
        max_entries: dict[str, int] | None = None,
        *,
        programs: frozenset[str] | None = None,
        multi: bool = False,
    ) -> None:
        """Raises TracerUnavailable for missing rights or files, LoadError when the kernel refuses the object."""
        self._lib = _library()
        self._links: list[int] = []
        self._multi_links: list[int] = []
        self.multi = multi
        if not path.exists():
            raise TracerUnavailable(f"{path} is missing: run `make bpf`")
        self._object = self._lib.bpf_object__open_file(str(path).encode(), None)
        if not self._object:
            raise LoadError(f"{path.name} is no BPF object: {self._lib.taken_log()}")
        for name, entries in (max_entries or {}).items():
            self._lib.bpf_map__set_max_entries(self._map(name), entries)
        self._choose(programs)
        if self._lib.bpf_object__load(self._object):
            code = c.get_errno()
            self._lib.bpf_object__close(self._object)
            if code == errno.EPERM:
                raise TracerUnavailable(
                    "the kernel does not let this user load BPF programs: run as root, or with CAP_BPF and CAP_PERFMON"
                )
            raise LoadError(
                f"kernel {os.uname().release} refused {path.name} ({os.strerror(code)}):\n{self._lib.taken_log()}"
            )

    def _choose(self, programs: frozenset[str] | None) -> None:
        """Which programs are loaded, and for which kind of uprobe."""
        program = None
        while program := self._lib.bpf_object__next_program(self._object, program):
            if programs is not None and self._lib.bpf_program__name(program).decode() not in programs:
                self._lib.bpf_program__set_autoload(program, False)
            elif self.multi and self._lib.bpf_program__section_name(program) in (b"uprobe", b"uretprobe"):
                self._lib.bpf_program__set_expected_attach_type(program, _UPROBE_MULTI)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._detach()
        if self._object:
            self._lib.bpf_object__close(self._object)
            self._object = None

    def attach(self, program: str) -> None:
        """Attach a program to what its section names. Raises AttachError."""
        self._keep_link(self._lib.bpf_program__attach(self._program(program)), program)

    def attach_uprobes(self, probes: Sequence[Uprobe], path: str) -> None:
        """Attach all of them to one file, for every process that maps it, now or later; or none. Raises AttachError.

        In the order of their programs' first mention.
        """
        links, multi_links = len(self._links), len(self._multi_links)
        try:
            for program, on_return in dict.fromkeys((probe.program, probe.on_return) for probe in probes):
                same = [probe for probe in probes if (probe.program, probe.on_return) == (program, on_return)]
                if self.multi:
                    self._attach_multi(program, on_return, same, path)
                else:
                    for probe in same:
                        self._attach_one(probe, path)
        except AttachError:
            self._detach(links, multi_links)
            raise

    def attach_to_process(self, probe: Uprobe, path: str, pid: int) -> int:
        """Attach to a file as far as this process has it mapped; for `detach`. Raises AttachError."""
        return self._attach_one(probe, path, pid)

    def detach(self, link: int) -> None:
        """What `attach_to_process` has given, before `close`."""
        self._links.remove(link)
        self._lib.bpf_link__destroy(link)

    def _attach_one(self, probe: Uprobe, path: str, pid: int = -1) -> int:
        options = _UprobeOptions(
            sz=c.sizeof(_UprobeOptions), bpf_cookie=probe.cookie, retprobe=probe.on_return
        )
        link = self._lib.bpf_program__attach_uprobe_opts(
            self._program(probe.program), pid, path.encode(), probe.offset, c.byref(options)
        )
        return self._keep_link(link, f"{probe.program} at {path}+{probe.offset:#x}")

    def _attach_multi(self, program: str, on_return: bool, probes: Sequence[Uprobe], path: str) -> None:
        count = len(probes)
        offsets = (c.c_ulong * count)(*(probe.offset for probe in probes))
        cookies = (c.c_uint64 * count)(*(probe.cookie for probe in probes))
        attributes = _MultiLink(
            prog_fd=self._lib.bpf_program__fd(self._program(program)),
            attach_type=_UPROBE_MULTI,
            path=path.encode(),
            offsets=c.addressof(offsets),
            cookies=c.addressof(cookies),
            cnt=count,
            multi_flags=_ON_RETURN if on_return else 0,
        )
        libc = c.CDLL(None, use_errno=True)
        number = _SYS_BPF[os.uname().machine]
        fd = libc.syscall(number, _LINK_CREATE, c.byref(attributes), c.c_size_t(c.sizeof(attributes)))
        if fd < 0:
            raise AttachError(
                f"{program} at {count} places of {path}: {os.strerror(c.get_errno())} "
                "(setting uprobes needs CAP_BPF and CAP_PERFMON)"
            )
        self._multi_links.append(fd)

    def _detach(self, links: int = 0, multi_links: int = 0) -> None:
        """All links but the first so many of each kind."""
        gone, self._links = self._links[links:], self._links[:links]
        closed, self._multi_links = self._multi_links[multi_links:], self._multi_links[:multi_links]
        if gone:
            with closed_elsewhere([self._lib.bpf_link__fd(link) for link in gone]):
                for link in gone:
                    self._lib.bpf_link__destroy(link)
        if closed:
            with ThreadPoolExecutor(DETACHERS) as threads:
                list(threads.map(os.close, closed))

    def check_map(self, name: str, key_bytes: int, value_bytes: int) -> None:
        """Raises LoadError when the map holds something else: its entries would be written past our buffers."""
        found = self._map(name)
        sizes = (self._lib.bpf_map__key_size(found), self._lib.bpf_map__value_size(found))
        if sizes != (key_bytes, value_bytes):
            raise LoadError(
                f"map {name!r} of the BPF object has entries of {sizes} bytes instead of {(key_bytes, value_bytes)}: "
                "it was built from another version, run `make bpf`"
            )

    def map_fd(self, name: str) -> int:
        fd: int = self._lib.bpf_map__fd(self._map(name))
        return fd

    def _keep_link(self, link: int | None, what: str) -> int:
        if not link:
            reason = os.strerror(c.get_errno())
            raise AttachError(
                f"{what}: {reason} (setting uprobes needs CAP_SYS_ADMIN): {self._lib.taken_log()}"
            )
        self._links.append(link)
        return link

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


def update_number(fd: int, key: int, value: int) -> None:
    """Where both are of 64 bits. Raises OSError."""
    if _library().bpf_map_update_elem(fd, c.byref(c.c_uint64(key)), c.byref(c.c_uint64(value)), 0):
        code = c.get_errno()
        raise OSError(code, os.strerror(code))


def update_inner(fd: int, key: int, value: c.Structure) -> None:
    """The entry of a map of maps becomes a new array with this one value. Raises OSError."""
    library = _library()
    inner = library.bpf_map_create(_ARRAY, b"inner", 4, c.sizeof(value), 1, None)
    if inner < 0:
        raise OSError(-inner, os.strerror(-inner))
    try:
        update(inner, c.c_uint32(0), value)
        number = c.c_uint32(inner)
        if library.bpf_map_update_elem(fd, c.byref(c.c_uint64(key)), c.byref(number), 0):
            code = c.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(inner)  # the outer map holds it


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

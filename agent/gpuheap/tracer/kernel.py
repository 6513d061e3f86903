# SPDX-License-Identifier: Apache-2.0
"""What the running kernel can do, by the names in its own type information (BTF).

Its version would lie: distributions bring features to older ones.
"""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from .errors import TracerUnavailable

BTF: Final = Path("/sys/kernel/btf/vmlinux")

REQUIRED: Final = {
    "BPF_MAP_TYPE_RINGBUF": "the BPF ring buffer (Linux 5.8)",
    "BPF_MAP_LOOKUP_BATCH": "reading BPF maps in batches (Linux 5.6)",
    "BPF_FUNC_probe_read_user": "reading user memory from BPF (Linux 5.5)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """`cookies`: probes tell their program which one they are (5.15). `uprobe_multi`: one link for many (6.6)."""

    release: str
    cookies: bool
    uprobe_multi: bool

    @classmethod
    def running(cls, btf: Path = BTF, release: str = os.uname().release) -> Self:
        """Raises TracerUnavailable, with the feature that is missing."""
        try:
            with btf.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as names:
                return cls._with(names, release)
        except (OSError, ValueError):  # before 6.16 the file cannot be mapped; an empty one never
            pass
        try:
            return cls._with(btf.read_bytes(), release)
        except OSError as error:
            raise TracerUnavailable(
                f"kernel {release} has no type information ({btf}: {error.strerror}): it must be 5.10 or newer, "
                "built with CONFIG_DEBUG_INFO_BTF"
            ) from error

    @classmethod
    def _with(cls, names: bytes | mmap.mmap, release: str) -> Self:
        def has(name: str) -> bool:
            return names.find(b"\0" + name.encode() + b"\0") >= 0

        for name, feature in REQUIRED.items():
            if not has(name):
                raise TracerUnavailable(f"kernel {release} lacks {feature}: it must be 5.10 or newer")
        return cls(
            release=release,
            cookies=has("BPF_FUNC_get_attach_cookie"),
            uprobe_multi=has("bpf_uprobe_multi_link"),
        )

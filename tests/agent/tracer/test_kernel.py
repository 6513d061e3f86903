# SPDX-License-Identifier: Apache-2.0
"""What a kernel can do, by the names in its type information: on files made up here, and on the running kernel."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from gpuheap.tracer.errors import TracerUnavailable
from gpuheap.tracer.kernel import BTF, Kernel

OLDEST = ("BPF_MAP_TYPE_RINGBUF", "BPF_MAP_LOOKUP_BATCH", "BPF_FUNC_probe_read_user")
COOKIES, MULTI = "BPF_FUNC_get_attach_cookie", "bpf_uprobe_multi_link"


def btf(folder: Path, *names: str) -> Path:
    """A file with such a table of strings: each ended by a zero, the first one empty."""
    path = folder / "vmlinux"
    path.write_bytes(b"\x9f\xeb\x01\x00" + b"\0".join([b"", *(name.encode() for name in names), b""]))
    return path


@pytest.mark.parametrize(
    ("names", "cookies", "uprobe_multi"),
    [
        (OLDEST, False, False),
        ((*OLDEST, COOKIES), True, False),
        ((*OLDEST, COOKIES, MULTI), True, True),
        ((*OLDEST, COOKIES + "_of_another", "a_" + MULTI), False, False),
    ],
)
def test_a_kernel_can_do_what_its_type_information_names(
    tmp_path: Path, names: tuple[str, ...], cookies: bool, uprobe_multi: bool
) -> None:
    kernel = Kernel.running(btf(tmp_path, *names), "5.10.0-made-up")
    assert kernel == Kernel(release="5.10.0-made-up", cookies=cookies, uprobe_multi=uprobe_multi)


@pytest.mark.parametrize(
    ("missing", "feature"),
    [
        ("BPF_MAP_TYPE_RINGBUF", "ring buffer"),
        ("BPF_MAP_LOOKUP_BATCH", "batches"),
        ("BPF_FUNC_probe_read_user", "user memory"),
    ],
)
def test_a_kernel_that_is_too_old_is_refused_with_its_name_and_what_it_lacks(
    tmp_path: Path, missing: str, feature: str
) -> None:
    path = btf(tmp_path, *(name for name in OLDEST if name != missing))
    with pytest.raises(TracerUnavailable, match=rf"5\.4\.0-made-up.*{feature}.*5\.10"):
        Kernel.running(path, "5.4.0-made-up")


def test_a_kernel_without_type_information_is_refused_with_the_file_and_the_option(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    expected = rf"5\.10\.0-made-up.*{re.escape(str(path))}: No such file.*CONFIG_DEBUG_INFO_BTF"
    with pytest.raises(TracerUnavailable, match=expected):
        Kernel.running(path, "5.10.0-made-up")


def test_type_information_that_may_not_be_read_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13), str(path))

    path = btf(tmp_path, *OLDEST)
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(TracerUnavailable, match=r"5\.10\.0-made-up.*vmlinux: Permission denied"):
        Kernel.running(path, "5.10.0-made-up")


def test_an_empty_file_is_no_type_information(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(b"")
    with pytest.raises(TracerUnavailable, match=r"5\.10\.0-made-up"):
        Kernel.running(path, "5.10.0-made-up")


@pytest.mark.skipif(not BTF.exists(), reason=f"{BTF} is not there")
def test_the_running_kernel_has_what_bpftool_or_its_symbols_say() -> None:
    kernel = Kernel.running()
    assert kernel.release == subprocess.run(["uname", "-r"], capture_output=True, text=True).stdout.strip()
    symbols = Path("/proc/kallsyms").read_text()
    assert kernel.uprobe_multi == (" bpf_uprobe_multi_link_attach" in symbols)

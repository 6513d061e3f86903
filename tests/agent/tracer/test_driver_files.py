# SPDX-License-Identifier: Apache-2.0
"""What a driver is, by its content. Expected places are those that binutils and the kernel give."""

import os
import random
import struct
import subprocess
from pathlib import Path

import pytest

from gpuheap.stacks.elf import NotUsable
from gpuheap.tracer.calls import Call
from gpuheap.tracer.driver_files import driver_file, looks_like_driver
from gpuheap.tracer.dynamic_section import soname
from gpuheap.tracer.mappings import file_id
from tests.standin.build import StandIn

EXPORTS = ("cuInit", "cuMemAlloc_v2", "cuMemFree_v2")
STUB = "int {name}(void *first, unsigned long second) {{ return 34; }}\n"
WORKING = "int {name}(long *first, long second) {{ static long last; *first = last; return (last = second) < 0; }}\n"


def compiled(library: Path, code: str, *flags: str, exports: tuple[str, ...] = EXPORTS) -> Path:
    source = "".join(code.format(name=name) for name in exports)
    flags = flags or ("-O2", "-Wl,-soname,libcuda.so.1")
    subprocess.run(
        ["gcc", "-w", "-shared", "-fPIC", "-x", "c", "-o", library, "-", *flags],
        input=source,
        text=True,
        check=True,
    )
    return library


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return tmp_path / "libcuda.so.1"


def test_the_functions_of_the_stand_in_are_where_nm_and_objdump_find_them(standin: StandIn) -> None:
    found = driver_file(standin.library)
    assert found is not None
    names = subprocess.run(["nm", "-D", standin.library], capture_output=True, text=True, check=True).stdout
    addresses = {name: int(address, 16) for address, _, name in map(str.split, _defined(names))}
    sections = subprocess.run(["objdump", "-h", standin.library], capture_output=True, text=True, check=True)
    text = next(line.split() for line in sections.stdout.splitlines() if " .text " in line)
    moved = int(text[3], 16) - int(text[5], 16)  # address and place in the file of the code
    expected = {call: addresses[call.name] - moved for call in Call if call.name in addresses}
    assert dict(found.functions) == expected
    assert {Call[name] for name in EXPORTS} <= found.functions.keys()


def _defined(names: str) -> list[str]:
    return [line for line in names.splitlines() if len(line.split()) == 3]


@pytest.mark.parametrize(
    "flags", [("-O2",), ("-O0",), ("-O0", "-fcf-protection=full"), ("-O2", "-fcf-protection=full"), ("-Os",)]
)
def test_a_library_whose_functions_return_a_constant_is_a_stub(library: Path, flags: tuple[str, ...]) -> None:
    compiled(library, STUB, *flags, "-Wl,-soname,libcuda.so.1")
    assert looks_like_driver(library, str(library)), "the name is that of the driver"
    assert driver_file(library) is None


def test_a_stub_that_says_success_is_a_stub(library: Path) -> None:
    assert driver_file(compiled(library, STUB.replace("34", "0"))) is None


@pytest.mark.parametrize("flags", [("-O2",), ("-O0",), ("-O2", "-fcf-protection=full")])
def test_a_small_library_that_does_something_is_a_driver(library: Path, flags: tuple[str, ...]) -> None:
    assert driver_file(compiled(library, WORKING, *flags, "-Wl,-soname,libcuda.so.1")) is not None


def test_exports_that_jump_elsewhere_like_those_of_the_real_driver_are_no_stub(library: Path) -> None:
    jump = """
    int (*slot_{name})(void); extern int state;
    __asm__(".globl {name}; .type {name}, @function; {name}: cmpl $0x321cba00, state(%rip); je 1f; "
            "jmp *slot_{name}(%rip); 1: mov $4, %eax; ret");
    """
    compiled(library, jump, "-O2", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,--defsym=state=0")
    assert driver_file(library) is not None


def test_a_driver_under_another_file_name_is_told_by_its_own(tmp_path: Path) -> None:
    library = compiled(tmp_path / "libgpu-backend.so", WORKING)
    assert looks_like_driver(library, str(library))
    found = driver_file(library)
    assert found is not None and found.functions.keys() == {Call[name] for name in EXPORTS}


def test_a_driver_without_a_name_of_its_own_is_told_by_the_files(library: Path, tmp_path: Path) -> None:
    compiled(library, WORKING, "-O2")
    assert soname(os.open(library, os.O_RDONLY)) is None
    assert driver_file(library) is not None
    renamed = library.rename(tmp_path / "libother.so")
    assert driver_file(renamed) is None
    assert driver_file(renamed, "/usr/lib/libcuda.so.535.261.03") is not None


def test_a_library_of_another_name_that_forwards_the_calls_is_no_driver(library: Path) -> None:
    compiled(library, WORKING, "-O2", "-Wl,-soname,libtensorflow_cc.so.2")
    assert driver_file(library) is None


def test_a_library_that_lacks_a_necessary_function_is_no_driver(library: Path) -> None:
    compiled(library, WORKING, exports=("cuInit", "cuMemAlloc_v2"))
    assert driver_file(library) is None


def test_a_place_with_two_names_is_probed_once(library: Path) -> None:
    alias = '__attribute__((alias("cuMemAlloc_v2"))) int cuMemAlloc();'
    code = "".join(WORKING.format(name=name) for name in EXPORTS) + alias
    compiled(library, "{name}", exports=(code,))
    found = driver_file(library)
    assert found is not None
    assert found.functions.keys() == {Call[name] for name in EXPORTS}


def test_versioned_functions_are_found(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "versions"
    script.write_text("CUDA_12 { global: cu*; local: *; };")
    compiled(library, WORKING, "-O2", "-Wl,-soname,libcuda.so.1", f"-Wl,--version-script={script}")
    found = driver_file(library)
    assert found is not None and found.functions.keys() == {Call[name] for name in EXPORTS}


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", bytes(5000), b"\x7fELF\x02\x01" * 900])
def test_what_is_no_elf_file_is_neither_a_candidate_nor_a_driver(tmp_path: Path, content: bytes) -> None:
    other = tmp_path / "other"
    other.write_bytes(content)
    assert not looks_like_driver(other, str(other))
    named = other.rename(tmp_path / "libcuda.so.1")
    with pytest.raises(NotUsable):
        driver_file(named)


def test_damaged_files_are_refused_and_never_crash(library: Path) -> None:
    whole = compiled(library, WORKING).read_bytes()
    chance = random.Random(7)
    for _ in range(300):
        data = bytearray(whole[: chance.choice([len(whole), chance.randrange(len(whole))])])
        for _ in range(chance.randrange(1, 30)):
            if data:
                data[chance.randrange(min(len(data), 1 << chance.randrange(5, 15)))] = chance.randrange(256)
        library.write_bytes(data)
        looks_like_driver(library, "/lib/other.so")
        try:
            driver_file(library)
        except NotUsable:
            continue


def test_a_dynamic_section_that_claims_to_be_endless_is_read_in_part(library: Path) -> None:
    data = bytearray(compiled(library, WORKING).read_bytes())
    table, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for at in range(table, table + 56 * count, 56):
        if struct.unpack_from("<I", data, at)[0] == 2:  # PT_DYNAMIC
            struct.pack_into("<Q", data, at + 40, 1 << 62)  # p_memsz
            struct.pack_into("<Q", data, at + 32, 1 << 62)  # p_filesz
    library.write_bytes(data)
    assert soname(os.open(library, os.O_RDONLY)) == "libcuda.so.1"


def test_an_open_file_that_is_not_mapped_is_identified_as_the_kernel_shows_it(standin: StandIn) -> None:
    program = subprocess.Popen(
        ["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE, env={"LD_PRELOAD": str(standin.library)}
    )
    try:
        end = 1000
        shown = ""
        while "libcuda.so.1" not in shown and (end := end - 1):
            shown = Path(f"/proc/{program.pid}/maps").read_text()
        line = next(line.split() for line in shown.splitlines() if line.endswith("libcuda.so.1"))
        assert file_id(standin.library) == (line[3], int(line[4]))
    finally:
        program.kill()
        program.wait()

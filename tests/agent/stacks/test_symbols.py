# SPDX-License-Identifier: Apache-2.0
"""Names of native functions, against what binutils say of the same files."""

import importlib
import lzma
import os
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Final
from weakref import ref

import pytest

from gpuheap.stacks.elf_image import OpenFile
from gpuheap.stacks.mapped_files import MappedFile
from gpuheap.stacks.memory_map import MemoryMap, NoFile
from gpuheap.stacks.symbols import Symbol, Symbols

from .stopped import compiled, waiting

PROGRAM: Final = """
STOP
__attribute__((noinline)) static int hidden(int n) { return stop() + n; }
__attribute__((noinline)) int visible(int n) { return hidden(n) * 3; }
int main(int count, char **arguments) { (void)arguments; return visible(count); }
"""


class Addressed:
    """A file by addresses as linked: a memory map that has it alone, at those."""

    def __init__(self, path: Path, root: Path | None = None, name: str | None = None) -> None:
        folder = OpenFile(os.open(root, os.O_PATH)) if root else None
        self.file = MappedFile(OpenFile(os.open(path, os.O_RDONLY)), name or str(path), folder)
        self.path = self.file.path

    def find(self, address: int) -> "Addressed":
        return self

    def address_as_linked(self, address: int) -> int:
        return address

    def name(self, symbols: Symbols, address: int) -> Symbol:
        return symbols.name(address, self)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def symbols() -> Symbols:
    return Symbols()


def functions(path: Path, *options: str) -> dict[int, tuple[int, set[str]]]:
    """What nm says: size and names of each function by address."""
    lines = subprocess.run(
        ["nm", "--defined-only", "--print-size", *options, path], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found: dict[int, tuple[int, set[str]]] = {}
    for fields in (line.split() for line in lines):
        if len(fields) == 4 and fields[2] in "tTwWi" and int(fields[1], 16):
            address, size = int(fields[0], 16), int(fields[1], 16)
            found.setdefault(address, (size, set()))[1].add(fields[3].partition("@")[0])
    return found


def library(name: str) -> Path:
    """One that this process has mapped."""
    importlib.import_module("ssl")
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split()[-1]) for line in lines if f"/{name}" in line)


def undisputed(known: dict[int, tuple[int, set[str]]]) -> dict[int, tuple[int, set[str]]]:
    """Without functions that hold another one, and without those of two sizes."""
    holders: defaultdict[int, int] = defaultdict(int)
    end = 0
    for address, (size, _) in sorted(known.items()):
        holders[address] += address < end
        end = max(end, address + size)
    return {address: known[address] for address in known if not holders[address]}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(library("libc.so"), id="the C library"),
        pytest.param(library("libcrypto.so"), id="a library with exported names only"),
    ],
)
def test_every_function_has_a_name_that_nm_knows(path: Path, symbols: Symbols) -> None:
    known = functions(path) or functions(path, "--dynamic")
    assert len(known) > 1000
    file = Addressed(path)
    wrong = [
        (hex(address), names, found.function)
        for address, (size, names) in list(undisputed(known).items())[::7]
        for found in (file.name(symbols, address), file.name(symbols, address + size - 1))
        if found.function not in names
    ]
    assert wrong == []


def test_names_of_cxx_are_those_of_cxxfilt(symbols: Symbols, tmp_path: Path) -> None:
    source = (
        "#include <vector>\n#include <string>\nSTOP\nnamespace a { template <class T> struct B { operator T() const; "
        "~B(); T f(std::vector<std::string> &&); }; template <class T> B<T>::operator T() const { return {}; } "
        "template <class T> T B<T>::f(std::vector<std::string> &&) { return {}; } template <class T> B<T>::~B() {} "
        "template struct B<int>; template struct B<std::string>; }\nint main() { return stop(); }\n"
    ).replace("\\\n", "\n")
    program = compiled(tmp_path, "names", source, "g++", "-O1")
    known = functions(program)
    file = Addressed(program)
    for address, (_, names) in known.items():
        expected = subprocess.run(["c++filt", *names], capture_output=True, text=True, check=True).stdout
        assert file.name(symbols, address).function in expected.splitlines()


def test_exported_names_go_before_internal_ones(symbols: Symbols) -> None:
    path = library("libc.so")
    addresses = {name: at for at, (_, names) in functions(path, "--dynamic").items() for name in names}
    assert Addressed(path).name(symbols, addresses["__libc_malloc"]).function == "malloc"


def test_without_a_symbol_the_library_and_the_address_as_linked_are_shown(
    symbols: Symbols, tmp_path: Path
) -> None:
    program = compiled(tmp_path, "bare", PROGRAM, "gcc", "-O2", "-s")
    with waiting(program) as process:
        memory_map = MemoryMap(process.pid)
        region = next(region for region in memory_map.regions if region.executable)
        found = symbols.name(region.begin + 0x123, memory_map)
    notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    assert found == Symbol(
        f"bare+{region.offset + 0x123:#x}",
        str(program),
        region.offset + 0x123,
        named=False,
        build_id=notes.partition("Build ID: ")[2].split()[0],
    )


def stripped(tmp_path: Path) -> tuple[Path, Path, int]:
    """A program without its symbols, a file with them, and where `hidden` is."""
    whole = compiled(tmp_path, "whole", PROGRAM, "gcc", "-O2", "-g", "-Wl,--build-id")
    address = next(at for at, (_, names) in functions(whole).items() if "hidden" in names)
    debug, bare = tmp_path / "whole.debug", tmp_path / "bare"
    subprocess.run(["objcopy", "--only-keep-debug", whole, debug], check=True)
    subprocess.run(["objcopy", "--strip-all", whole, bare], check=True)
    return bare, debug, address


def build_id(path: Path) -> str:
    notes = subprocess.run(["readelf", "--notes", path], capture_output=True, text=True, check=True).stdout
    return next(line.split()[-1] for line in notes.splitlines() if "Build ID:" in line)


def test_a_debug_file_of_the_same_build_gives_names(symbols: Symbols, tmp_path: Path) -> None:
    """Found in the process's own root folder; a link in it that is absolute stays within it."""
    bare, debug, address = stripped(tmp_path)
    digits = build_id(bare)
    root = tmp_path / "root"
    folder = root / "usr/lib/debug/.build-id" / digits[:2]
    folder.mkdir(parents=True)
    (root / "elsewhere").mkdir()
    debug.rename(root / "elsewhere" / "kept.debug")
    (folder / f"{digits[2:]}.debug").symlink_to("/elsewhere/kept.debug")
    assert Addressed(bare, root).name(symbols, address).function == "hidden"


def test_a_debug_file_of_another_build_gives_none(symbols: Symbols, tmp_path: Path) -> None:
    bare, _, address = stripped(tmp_path)
    other = compiled(tmp_path, "other", PROGRAM, "gcc", "-O1", "-Wl,--build-id")
    digits = build_id(bare)
    folder = tmp_path / "root/usr/lib/debug/.build-id" / digits[:2]
    folder.mkdir(parents=True)
    other.rename(folder / f"{digits[2:]}.debug")
    assert not Addressed(bare, tmp_path / "root").name(symbols, address).named


def test_a_debug_link_gives_names(symbols: Symbols, tmp_path: Path) -> None:
    whole = compiled(tmp_path, "whole", PROGRAM, "gcc", "-O2", "-Wl,--build-id=none")
    address = next(at for at, (_, names) in functions(whole).items() if "hidden" in names)
    folder = tmp_path / "root/opt/.debug"
    folder.mkdir(parents=True)
    debug, bare = folder / "whole.debug", tmp_path / "root/opt/bare"
    subprocess.run(["objcopy", "--only-keep-debug", whole, debug], check=True)
    subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", whole, bare], check=True)
    assert Addressed(bare, tmp_path / "root", "/opt/bare").name(symbols, address).function == "hidden"
    debug.write_bytes(debug.read_bytes() + b"more")
    assert not Addressed(bare, tmp_path / "root", "/opt/bare").name(symbols, address).named, (
        "the checksum is wrong"
    )


def test_symbols_embedded_in_compressed_form_give_names(symbols: Symbols, tmp_path: Path) -> None:
    bare, debug, address = stripped(tmp_path)
    (tmp_path / "packed").write_bytes(lzma.compress(debug.read_bytes()))
    subprocess.run(["objcopy", f"--add-section=.gnu_debugdata={tmp_path / 'packed'}", bare], check=True)
    assert Addressed(bare).name(symbols, address).function == "hidden"


def test_embedded_symbols_that_expand_without_end_are_left_alone(symbols: Symbols, tmp_path: Path) -> None:
    bare, _, address = stripped(tmp_path)
    (tmp_path / "packed").write_bytes(lzma.compress(bytes(33 << 20), preset=0))
    subprocess.run(["objcopy", f"--add-section=.gnu_debugdata={tmp_path / 'packed'}", bare], check=True)
    assert not Addressed(bare).name(symbols, address).named


def test_the_kernels_own_code_has_names(symbols: Symbols) -> None:
    memory_map = MemoryMap(os.getpid())
    vdso = next(region for region in memory_map.regions if region.path == "[vdso]")
    assert not isinstance(vdso.file, NoFile)
    names = {symbols.name(address, memory_map).function for address in range(vdso.begin, vdso.end, 16)}
    assert names >= {"clock_gettime", "getcpu", "time"}


def test_memory_without_a_file_has_no_address_in_its_name(symbols: Symbols) -> None:
    memory_map = MemoryMap(os.getpid())
    stack = next(region for region in memory_map.regions if region.path == "[stack]")
    assert symbols.name(stack.begin, memory_map) == Symbol("[stack]", "", 0, named=False)
    assert symbols.name(0x10, memory_map) == Symbol("[not mapped]", "", 0, named=False)


def test_a_file_that_nobody_has_mapped_any_more_is_not_kept_open(symbols: Symbols) -> None:
    addressed = Addressed(library("libc.so"))
    address = next(iter(functions(library("libc.so"), "--dynamic")))
    assert addressed.name(symbols, address).named
    file = ref(addressed.file)
    del addressed
    assert file() is None

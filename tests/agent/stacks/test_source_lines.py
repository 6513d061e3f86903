# SPDX-License-Identifier: Apache-2.0
"""Source file and line of native code, against what LLVM's reader of debug information says of the same files."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from gpuheap.stacks.elf_image import OpenFile
from gpuheap.stacks.mapped_files import MappedFile
from gpuheap.stacks.source_lines import SourceLines, lines_of
from gpuheap.stacks.symbols import Symbols

SOURCES: Final = {
    "ask.h": """
static inline int twice(int n)
{
    extern int ask(int);
    return ask(n) +
           ask(n + 1);
}
""",
    "first.c": """
#include "ask.h"
static inline int thrice(int n)
{
    return twice(n) +
           twice(n * 2);
}
__attribute__((cold, noinline)) static int seldom(int n) { return thrice(n) - 1; }
int never(int n) { return thrice(n) * 7; }
int outer(int n)
{
    if (n > 1000)
        return seldom(n);
    for (int i = 0; i < n; i++) {
        int m = thrice(i);
        if (m > 3)
            return twice(m) +
                   thrice(m);
    }
    return 0;
}
""",
    "folder/second.c": """
int ask(int n);
int outer(int n);
int (*volatile chosen)(int) = outer;
int main(int count, char **words)
{
    (void)words;
    return chosen(count) +
#line 77 "made.y"
           ask(count - 1);
}
""",
    "third.c": "int ask(int n) { return n ^ 5; }\n",
    "shop.cpp": """
#include <vector>
namespace shop { namespace {
struct Cart {
    std::vector<int> items;
    int add(int n)
    {
        items.push_back(n);
        auto each = [&](int m) { items.push_back(m); return m; };
        return each(n) + each(n + 1);
    }
};
}
template <class T> T total(const std::vector<T> &all)
{
    std::vector<T> sums;
    for (auto &one : all)
        sums.push_back(one);
    return sums.back();
}
int run(int n)
{
    Cart cart;
    for (int i = 0; i < n; i++)
        cart.add(i);
    return total(cart.items) + total(std::vector<double>{1, 2});
}
}
int main(int count, char **) { try { return shop::run(count); } catch (...) { return 1; } }
""",
}
C: Final = ("first.c", "folder/second.c", "third.c")
CXX: Final = ("shop.cpp",)
OPTIONS: Final = {
    **{f"DWARF {version}": f"-O2 -gdwarf-{version}" for version in (2, 3, 4, 5)},
    "not optimised": "-g -O0",
    "64-bit DWARF": "-O2 -gdwarf-5 -gdwarf64",
    "a section each function, some left out": "-g -O2 -ffunction-sections -Wl,--gc-sections",
    "lines only": "-g1 -O2",
}
OF_CLANG: Final = ("DWARF 2", "DWARF 4", "DWARF 5", "a section each function, some left out")
BUILDS: Final = {
    **{f"gcc, {name}": ("gcc", *options.split(), *C) for name, options in OPTIONS.items()},
    **{f"clang, {name}": ("clang", *OPTIONS[name].split(), *C) for name in OF_CLANG},
    "gcc, optimised as a whole": ("gcc", "-g", "-O2", "-flto", *C),
    "g++, compressed": ("g++", "-g", "-O2", "-gz=zlib", *CXX),
    "clang++, compressed": ("clang++", "-g", "-O2", "-gz=zlib", *CXX),
    "g++, DWARF 4": ("g++", "-gdwarf-4", "-O2", *CXX),
}

Built = Callable[..., Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "folder").mkdir()
    for name, text in SOURCES.items():
        (folder / name).write_text(text)

    @cache
    def built(*command: str) -> Path:
        if shutil.which(command[0]) is None:
            pytest.skip(f"needs {command[0]}")
        program = folder / f"program{len(list(folder.iterdir()))}"
        subprocess.run([*command, "-fno-optimize-sibling-calls", "-o", program], check=True, cwd=folder)
        return program

    return built


def calls(program: Path) -> list[int]:
    """Where the program calls something: one byte before the call's return address, as objdump says."""
    printed = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", program], capture_output=True, text=True, check=True
    ).stdout
    found = re.findall(r"\tcall.*\n\s+([0-9a-f]+):", printed)
    assert found
    return [int(address, 16) - 1 for address in found]


def expected(program: Path, addresses: list[int]) -> list[tuple[str, int] | None]:
    """Of the function itself, below what is inlined into it: the last that is said of an address."""
    if shutil.which("llvm-addr2line") is None:
        pytest.skip("needs llvm-addr2line")
    printed = subprocess.run(
        ["llvm-addr2line", "-a", "-i", "-e", program, *map(hex, addresses)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    answers = [part.splitlines()[-1] for part in re.split(r"^0x[0-9a-f]+\n", printed, flags=re.MULTILINE)[1:]]
    return [place(re.sub(r" \(discriminator \d+\)", "", answer)) for answer in answers]


def place(text: str) -> tuple[str, int] | None:
    file, _, line = text.rpartition(":")
    return (os.path.normpath(file), int(line)) if not file.startswith("?") else None


def opened(program: Path, root: Path | None = None, path: str | None = None) -> MappedFile:
    folder = OpenFile(os.open(root, os.O_PATH)) if root is not None else None
    return MappedFile(OpenFile(os.open(program, os.O_RDONLY)), path or str(program), folder)


def lines(program: Path) -> SourceLines:
    found = lines_of(opened(program))
    assert found is not None
    return found


def found(lines: SourceLines, addresses: list[int]) -> list[tuple[str, int] | None]:
    answers = map(lines.find, addresses)
    return [(os.fsdecode(answer.file), answer.number) if answer is not None else None for answer in answers]


@pytest.mark.parametrize("name", BUILDS)
def test_every_call_has_the_line_that_llvm_says(name: str, built: Built) -> None:
    program = built(*BUILDS[name])
    addresses = calls(program)
    reader = lines(program)
    assert found(reader, addresses) == expected(program, addresses)
    assert not reader.is_unread


def test_a_function_has_the_line_of_its_own_call_where_others_are_inlined(built: Built) -> None:
    """Counted in the text above: `outer` calls in these lines, whatever was inlined there."""
    program = built("gcc", "-g", "-O2", *C)
    printed = subprocess.run(
        ["nm", "--print-size", program], capture_output=True, text=True, check=True
    ).stdout
    begin, size = (int(number, 16) for number in re.findall(r"(\w+) (\w+) T outer", printed)[0])
    own = [address for address in calls(program) if begin <= address < begin + size]
    assert {(Path(file).name, line) for file, line in filter(None, found(lines(program), own))} == {
        *(("first.c", 15), ("first.c", 17), ("first.c", 18))
    }


@pytest.mark.parametrize("by", ["build id", "name"])
def test_a_stripped_program_has_the_lines_of_its_debug_file(by: str, built: Built, tmp_path: Path) -> None:
    program = built("gcc", "-g", "-O2", f"-Wl,--build-id={'sha1' if by == 'build id' else 'none'}", *C)
    stripped, separate = tmp_path / "stripped", tmp_path / "stripped.debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, separate], check=True)
    subprocess.run(
        ["objcopy", "--strip-all", f"--add-gnu-debuglink={separate}", program, stripped], check=True
    )
    if by == "build id":
        notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
        digits = re.findall(r"Build ID: (\w+)", notes)[0]
        folder = tmp_path / "usr/lib/debug/.build-id" / digits[:2]
        folder.mkdir(parents=True)
        separate.rename(folder / f"{digits[2:]}.debug")
    addresses = calls(program)
    reader = lines_of(opened(stripped, tmp_path, "/stripped"))
    assert reader is not None
    assert found(reader, addresses) == expected(program, addresses)


def test_units_of_several_compilers_are_found_also_where_only_some_are_in_the_list_of_addresses(
    built: Built,
) -> None:
    """GCC and the assembler write .debug_aranges, Clang does not."""
    objects = [
        built("gcc", "-g", "-O2", "-c", "first.c"),
        built("clang", "-g", "-O1", "-gdwarf-4", "-c", "folder/second.c"),
        built("clang", "-g", "-O2", "-c", "third.c"),
    ]
    program = built("gcc", *map(str, objects))
    addresses = calls(program)
    assert found(lines(program), addresses) == expected(program, addresses)
    names = {Path(place[0]).name for place in filter(None, found(lines(program), addresses))}
    assert names == {"first.c", "second.c", "made.y"}


def test_a_file_without_debug_information_has_no_lines(built: Built) -> None:
    program = built("gcc", "-O2", *C)
    assert lines_of(opened(program)) is None


def test_what_is_compressed_in_a_way_that_cannot_be_read_is_noted(built: Built, tmp_path: Path) -> None:
    """The first word of a compressed section says how: 1 is zlib, 2 zstd."""
    program = built("g++", "-g", "-O2", "-gz=zlib", *CXX)
    content = bytearray(program.read_bytes())
    begin = section(program, ".debug_line")
    assert content[begin : begin + 4] == b"\1\0\0\0"
    content[begin] = 2
    (tmp_path / "program").write_bytes(content)
    reader = lines(tmp_path / "program")
    assert found(reader, calls(program)[-1:]) == [None]
    assert reader.is_unread


def test_the_memory_that_is_in_use_is_known(built: Built) -> None:
    """By it, files make room for others: what is decompressed counts as well."""
    in_use = {}
    for options in ("-gz=none", "-gz=zlib"):
        program = built("g++", "-g", "-O2", options, *CXX)
        reader = lines(program)
        assert reader.kept_bytes < 4096
        found(reader, calls(program))
        in_use[options] = reader.kept_bytes
    printed = subprocess.run(
        ["readelf", "-SW", built("g++", "-g", "-O2", "-gz=none", *CXX)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    info = int(re.findall(r"\.debug_info +\w+ +\w+ \w+ (\w+)", printed)[0], 16)
    assert in_use["-gz=zlib"] > in_use["-gz=none"] + info


def test_symbols_have_their_lines_and_count_files_whose_lines_cannot_be_read(
    built: Built, tmp_path: Path
) -> None:
    program = built("gcc", "-g", "-O2", *C)
    content = program.read_bytes()
    (tmp_path / "program").write_bytes(content)
    symbols = Symbols()
    address = calls(program)[-1]
    good = symbols.name_in(opened(program), "/program", address)
    assert expected(program, [address]) == [(good.file, good.line)]
    assert symbols.unread_lines == 0
    with (tmp_path / "program").open("r+b") as file:
        file.seek(section(program, ".debug_line") + 4)
        file.write(b"\x09")  # there is no version 9
    bad_file = opened(tmp_path / "program")
    for place in (address, address + 1):
        bad = symbols.name_in(bad_file, "/program", place)
        assert (bad.function, bad.file, bad.line) == (good.function, "", 0)
    assert symbols.unread_lines == 1
    symbols.close()


def section(program: Path, name: str) -> int:
    """Where it begins in the file."""
    printed = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True).stdout
    return int(re.findall(rf"{re.escape(name)} +\w+ +\w+ (\w+)", printed)[0], 16)

# SPDX-License-Identifier: Apache-2.0
"""Debug information that somebody made to do harm: whatever it says, there is an answer, and it costs little.

As in test_hostile_files.py, `GPUHEAP_FUZZ_ROUNDS` makes the random part longer.
"""

import random
import re
import struct
import subprocess
import tracemalloc
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from gpuheap.stacks.debug_entries import Attribute, Value
from gpuheap.stacks.debug_sections import MAX_WORK_AT_ONCE, WORK_A_SECOND, Allowance, DebugSections, Work
from gpuheap.stacks.debug_units import Unit, header_at
from gpuheap.stacks.elf_image import ElfImage, Section
from gpuheap.stacks.frame_rules import Exhausted
from gpuheap.stacks.inlined_calls import call
from gpuheap.stacks.line_programs import MAX_ROWS, ROW_BYTES, LineTable
from gpuheap.stacks.mapped_files import MappedFile
from gpuheap.stacks.source_lines import SourceLines, lines_of
from gpuheap.stacks.unit_index import UnitIndex

from .test_hostile_files import EXTREMES, MAX_MEMORY_BYTES, ROUNDS, of_bytes
from .test_source_lines import CXX, SOURCES, C

KNOWN: Final[tuple[int, ...]] = ()
BUILDS: Final = (
    ("gcc", "-g", "-O2", *C),
    ("gcc", "-gdwarf-3", "-O2", *C),
    ("clang", "-g", "-O2", *C),
    ("g++", "-g", "-O2", "-gz=zlib", *CXX),
)
SECTIONS: Final = re.compile(r"(\.debug_\w+) +\w+ +\w+ (\w+) (\w+)")

Original = tuple[bytes, list[tuple[int, int]], list[int]]
"""A file, where its debug information is, and addresses of its code."""


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Original]:
    folder = tmp_path_factory.mktemp("debug")
    (folder / "folder").mkdir()
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    return [original(folder, command) for command in BUILDS]


def original(folder: Path, command: tuple[str, ...]) -> Original:
    subprocess.run([*command, "-o", "program"], check=True, cwd=folder)
    program = folder / "program"
    said = [
        subprocess.run([*question, program], capture_output=True, text=True, check=True).stdout
        for question in (["readelf", "-SW"], ["nm", "--defined-only"])
    ]
    sections = [(int(at, 16), int(size, 16)) for _, at, size in SECTIONS.findall(said[0])]
    functions = [int(address, 16) for address in re.findall(r"(\w+) [tTW] ", said[1])]
    return program.read_bytes(), sections, functions


def changed(content: bytes, sections: list[tuple[int, int]], chance: random.Random) -> bytes:
    """With some bytes of its debug information changed; often at a section's beginning, where lengths are."""
    found = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        at, size = chance.choice(sections)
        place = at + chance.randrange(min(size, 64) if chance.random() < 0.4 else size)
        if chance.random() < 0.6:
            found[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        else:
            length = chance.choice((1, 2, 4, 8))
            found[place : place + length] = (chance.choice(EXTREMES) % (1 << 8 * length)).to_bytes(
                length, "little"
            )
    return bytes(found)


@pytest.mark.parametrize("part", range(4))
def test_changed_debug_information_has_answers(part: int, originals: list[Original]) -> None:
    for seed in (*KNOWN, *range(part * 1_000_000, part * 1_000_000 + ROUNDS // 4)):
        chance = random.Random(seed)
        content, sections, functions = chance.choice(originals)
        file = MappedFile(of_bytes(changed(content, sections, chance)), "/hostile")
        try:
            reader = lines_of(file)
            for address in (*chance.sample(functions, 5), 0, 1 << 63, (1 << 64) - 1):
                line = reader.find(address) if reader is not None else None
                assert line is None or (len(line.file) <= 4096 and 0 <= line.number < 1 << 32)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def program_of(instructions: bytes) -> bytes:
    """A line program of version 4 with one file (DWARF 4, 6.2.4)."""
    lengths = bytes((0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1))
    header = bytes((1, 1, 1, 0xFB, 14, 13)) + lengths + b"\0" + b"a.c\0\0\0\0" + b"\0"
    body = (4).to_bytes(2, "little") + len(header).to_bytes(4, "little") + header + instructions
    return len(body).to_bytes(4, "little") + body


def test_a_line_program_may_have_so_many_rows_and_no_more() -> None:
    begin = b"\0\x09\x02" + (0x1000).to_bytes(8, "little")
    with pytest.raises(Exhausted):
        LineTable(program_of(begin + b"\x22" * (MAX_ROWS + 2) + b"\0\1\1"))
    assert MAX_ROWS * ROW_BYTES < MAX_MEMORY_BYTES


def test_a_sequence_without_an_end_has_no_lines() -> None:
    begin = b"\0\x09\x02" + (0x1000).to_bytes(8, "little")
    whole, cut = begin + b"\x22" * 8 + b"\x02\x01" + b"\0\1\1", begin + b"\x22" * 8
    assert LineTable(program_of(whole)).find(0x1001) is not None
    assert LineTable(program_of(cut)).find(0x1001) is None


def test_what_is_looked_at_of_a_file_is_bounded(originals: list[Original]) -> None:
    content, _, functions = originals[0]
    sections = DebugSections(ElfImage(of_bytes(content)), Work(limit=100_000))
    reader = SourceLines(sections)
    found = [reader.find(address) is not None for _ in range(100) for address in functions]
    assert any(found)
    assert reader.is_unread
    assert not found[-1], "it is read without end"


def test_what_is_looked_at_of_all_files_is_bounded_and_there_is_more_later() -> None:
    seconds = [0.0]
    allowance = Allowance(lambda: seconds[0])
    works = [Work(allowance=allowance) for _ in range(3)]
    half = MAX_WORK_AT_ONCE // 2
    works[0].spend(half)
    works[1].spend(half)
    with pytest.raises(Exhausted):
        works[2].spend(1)
    seconds[0] += 1
    works[2].spend(WORK_A_SECOND)
    with pytest.raises(Exhausted):
        works[2].spend(1)
    seconds[0] += 1e6
    works[0].spend(half // 4)
    works[1].spend(half // 4)
    with pytest.raises(Exhausted):
        works[2].spend(MAX_WORK_AT_ONCE)


@pytest.mark.parametrize("line", [-1, 1 << 32, (1 << 64) - 1])
def test_a_call_at_a_line_that_cannot_be_has_no_line(line: int) -> None:
    """What is written as a profile has room for 63 bits."""
    assert call({Attribute.CALL_FILE: (0x0F, 1), Attribute.CALL_LINE: (0x0D, line)}) is None


def test_code_that_ends_beyond_all_addresses_is_none(originals: list[Original]) -> None:
    sections = DebugSections(ElfImage(of_bytes(originals[0][0])))
    unit = Unit(sections, header_at(sections, 0))
    for length, ranges in ((0x10, [(1 << 63, (1 << 63) + 0x10)]), ((1 << 64) - 1, [])):
        attributes: dict[int, Value] = {Attribute.LOW: (0x01, 1 << 63), Attribute.HIGH: (0x07, length)}
        assert list(unit.ranges_of(attributes)) == ranges


def test_ranges_that_cover_much_again_and_again_are_work() -> None:
    """Fifty thousand in a list of addresses, each of 256 MiB and of the same unit (DWARF 5, 6.1.2)."""
    ranges = struct.pack("<QQ", 1 << 28, 1 << 28) * 50_000
    listed = struct.pack("<IHIBBI", 12 + len(ranges), 2, 0, 8, 0, 0) + ranges
    addresses = Section(kind=1, address=0, offset=0, size=len(listed), link=0, entry_size=0)
    image = SimpleNamespace(source=of_bytes(listed), sections={".debug_aranges": addresses})
    index = UnitIndex(DebugSections(image, Work(limit=1 << 22)))  # type: ignore[arg-type]
    with pytest.raises(Exhausted):
        next(index.units((1 << 28) + 1))


def test_what_is_decompressed_is_bounded() -> None:
    """A section of zeros, a thousandth of its size when compressed, that is read backwards."""
    size = 64 << 20
    packed = struct.pack("<IIQQ", 1, 0, size, 1) + zlib.compress(bytes(size), 9)
    compressed = Section(kind=1, address=0, offset=0, size=len(packed), link=0, entry_size=0, compressed=True)
    image = SimpleNamespace(source=of_bytes(packed), sections={".debug_info": compressed})
    sections = DebugSections(image, Work(limit=1 << 20))  # type: ignore[arg-type]

    def read_backwards() -> int:
        return sum(
            any(sections.read(".debug_info", place, 4096)) for place in range(size - 4096, 0, -1 << 20)
        )

    tracemalloc.start()
    with pytest.raises(Exhausted):
        read_backwards()
    assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY_BYTES
    tracemalloc.stop()

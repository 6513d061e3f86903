# SPDX-License-Identifier: Apache-2.0
"""Files and stacks that somebody made to do harm: whatever they hold, there is an answer, and it costs little.

`GPUHEAP_FUZZ_ROUNDS` makes the random part longer. A seed that once found something stands in `KNOWN`.
"""

import os
import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuheap.stacks.debug_files import embedded
from gpuheap.stacks.dwarf import Malformed
from gpuheap.stacks.elf_image import Source
from gpuheap.stacks.expressions import NotKnown, evaluate
from gpuheap.stacks.frame_entries import CommonEntry, Entry
from gpuheap.stacks.frame_rules import MAX_INSTRUCTIONS, Budget, Exhausted, rules_at
from gpuheap.stacks.mapped_files import MAX_KEPT_BYTES, MappedFile
from gpuheap.stacks.memory_map import MemoryMap
from gpuheap.stacks.snapshot import Registers, Snapshot
from gpuheap.stacks.symbol_tables import table_in
from gpuheap.stacks.unwinder import MAX_FRAMES, Unwinder

from .programs import PROGRAMS
from .stopped import compiled

ROUNDS: Final = int(os.environ.get("GPUHEAP_FUZZ_ROUNDS", "250"))
KNOWN: Final[tuple[int, ...]] = ()
MAX_BYTES_READ: Final = 256 << 20
MAX_MEMORY_BYTES: Final = 64 << 20
EXTREMES: Final = (0, 1, 7, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, 1 << 63, (1 << 64) - 1)


class Counted:
    """A source that counts what is read of it."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self.bytes_read = 0

    def read(self, offset: int, size: int) -> bytes:
        found = self._read(offset, size)
        self.bytes_read += len(found)
        assert self.bytes_read < MAX_BYTES_READ, "it reads without end"
        return found


def of_bytes(content: bytes) -> Counted:
    return Counted(lambda offset, size: content[offset : offset + size])


def asked_everything(source: Source, addresses: list[int]) -> None:
    """All questions there are; only the exceptions that are part of the answer may come."""
    file = MappedFile(source, "/hostile")
    if file.image is None:
        return
    assert len(file.image.build_id) <= 64
    for address in addresses:
        file.image.address_at(address)
        with suppress(Malformed, Exhausted):
            file.rules(address, Budget())
    for image in (file.image, embedded(file.image)):
        for name in (".symtab", ".dynsym"):
            table = table_in(image, name) if image is not None else None
            for address in addresses if table is not None else ():
                assert table is not None
                table.find(address)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("originals")
    names = ("callback", "deep", "callback_without_header")
    return [
        compiled(folder, name, PROGRAMS[name].source, *PROGRAMS[name].command).read_bytes() for name in names
    ]


def changed(original: bytes, chance: random.Random) -> bytes:
    """The file with some bytes changed, most of them where they matter."""
    content = bytearray(original)
    headers = [0, 64 + 56 * 12, len(content) - 64 * 40]
    for _ in range(chance.randint(1, 8)):
        if chance.random() < 0.5:
            start = chance.choice(headers)
            place = min(max(0, start + chance.randrange(64 * 40)), len(content) - 8)
        else:
            place = chance.randrange(len(content) - 8)
        if chance.random() < 0.5:
            content[place] = chance.randrange(256)
        else:
            size = chance.choice((1, 2, 4, 8))
            content[place : place + size] = (chance.choice(EXTREMES) % (1 << 8 * size)).to_bytes(
                size, "little"
            )
    if chance.random() < 0.1:
        del content[chance.randrange(len(content)) :]
    return bytes(content)


@pytest.mark.parametrize("part", range(5))
def test_changed_files_have_answers(part: int, originals: list[bytes]) -> None:
    for seed in (*KNOWN, *range(part * 1_000_000, part * 1_000_000 + ROUNDS // 5)):
        chance = random.Random(seed)
        content = changed(chance.choice(originals), chance)
        addresses = [chance.randrange(0x1000, 0x3000) for _ in range(10)] + [0, 1 << 63, (1 << 64) - 1]
        try:
            asked_everything(of_bytes(content), addresses)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@given(initial=st.binary(max_size=40), instructions=st.binary(max_size=200), alignment=st.integers(-64, 64))
@example(initial=b"", instructions=b"", alignment=0)
@settings(max_examples=300)
def test_any_call_frame_instructions_have_an_answer(
    initial: bytes, instructions: bytes, alignment: int
) -> None:
    common = CommonEntry(abs(alignment), alignment, 16, 0x1B, True, False, initial)
    with suppress(Malformed, Exhausted):
        rules_at(Entry(common, 0x1000, 0x2000, instructions), 0x1800, Budget())


@given(code=st.binary(max_size=100), initial=st.none() | st.integers(0, 2**64 - 1))
@settings(max_examples=500)
def test_any_expression_has_an_answer(code: bytes, initial: int | None) -> None:
    with suppress(Malformed, NotKnown):
        found = evaluate(code, {7: 2**64 - 8, 6: 0x10}, lambda address, size: bytes(size), initial)
        assert 0 <= found < 2**64


def test_any_stack_has_an_answer() -> None:
    """Words that lead into code, to the stack, and nowhere."""
    memory_map = MemoryMap(os.getpid())
    code = [region for region in memory_map.regions if region.executable]
    for seed in range(ROUNDS // 2):
        chance = random.Random(seed)
        base = 0x7FFF_0000_0000

        def word(chance: random.Random = chance, base: int = base) -> int:
            region = chance.choice(code)
            return chance.choice(
                (
                    chance.randrange(region.begin, region.end),
                    base + chance.randrange(8192),
                    chance.getrandbits(64),
                )
            )

        registers = {name: word() for name in Registers.__dataclass_fields__} | {"rsp": base}
        registers["rip"] = chance.randrange(code[0].begin, code[0].end)
        stack = struct.pack("<1024Q", *(word() for _ in range(1024)))
        found = Unwinder().unwind(Snapshot(registers=Registers(**registers), stack=stack), memory_map)
        assert 1 <= len(found.addresses) <= MAX_FRAMES, f"seed {seed}"


# Files that claim to be huge.

SEGMENT: Final = 0x40
TABLE: Final = 0x400
BODY: Final = 0x10000
NAMES: Final = b"\0.symtab\0.strtab\0.eh_frame\0"


def claiming(
    sections: list[tuple[str, int, int, int]], pattern: bytes, frame_header: bool = False
) -> Counted:
    """An ELF file of 1 << 40 bytes: sections as (name, offset, size, entry size), and the pattern from BODY on."""
    size = 1 << 40
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 0x1000)
    if frame_header:
        segments += struct.pack("<IIQQQQQQ", 0x6474E550, 4, BODY, BODY, BODY, size, size, 4)
    table = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    for name, offset, length, entry in sections:
        place = NAMES.index(b"\0" + name.encode() + b"\0") + 1
        table += struct.pack(
            "<IIQQQQIIQQ", place, 1, 0, offset, offset, length, len(sections) + 1, 0, 8, entry
        )
    table += struct.pack("<IIQQQQIIQQ", NAMES.index(b".strtab"), 3, 0, 0, 0x300, len(NAMES), 0, 0, 1, 0)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        *(3, 62, 1, 0, SEGMENT, TABLE, 0, 64, 56, 1 + frame_header, 64, len(sections) + 2, len(sections) + 1),
    )
    front = bytearray(BODY)
    for place, piece in ((0, header), (SEGMENT, segments), (0x300, NAMES), (TABLE, table)):
        front[place : place + len(piece)] = piece

    def read(offset: int, length: int) -> bytes:
        if offset < BODY:
            return bytes(front[offset : offset + length])
        shift = (offset - BODY) % len(pattern)
        return (pattern * ((length + shift) // len(pattern) + 1))[shift : shift + length]

    return Counted(read)


FUNCTION: Final = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0x12345, 0)
LONG_ENTRY: Final = struct.pack("<II", 250 << 10, 4) + b"\x41" * (250 << 10)
COMMON: Final = struct.pack("<II", 16, 0) + b"\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08"
ENTRY: Final = struct.pack("<IIiI", 20, 28, 0, 1 << 30) + b"\0" + b"\x41" * 7

CLAIMS: Final = {
    "symbols without end at one address": (lambda: claiming([(".symtab", BODY, 1 << 39, 24)], FUNCTION)),
    "entries without end": (lambda: claiming([(".eh_frame", BODY, 63 << 20, 0)], COMMON + ENTRY)),
    "a search table without end": (
        lambda: claiming([], b"\x01\x1b\x03\x3b" + b"\xff" * 8 + b"\0\0\0\0\x10\0\0\0" * 8, frame_header=True)
    ),
    "zeros": (
        lambda: claiming([(".eh_frame", BODY, 63 << 20, 0), (".symtab", BODY, 1 << 39, 24)], bytes(4096))
    ),
    "entries of the largest size": (
        lambda: claiming([(".eh_frame", BODY, 63 << 20, 0)], COMMON + LONG_ENTRY)
    ),
}


@pytest.fixture
def memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MAX_MEMORY_BYTES


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_file_that_claims_to_be_huge_costs_little(claim: str, memory: None) -> None:
    asked_everything(CLAIMS[claim](), [0x12345, BODY + 0x100, 1 << 33])


def test_a_stack_may_cost_so_many_instructions_and_no_more() -> None:
    common = CommonEntry(1, -8, 16, 0x1B, True, False, b"\x0c\x07\x08")
    entry = Entry(common, 0, 1 << 60, b"\x0a\x0b" * (MAX_INSTRUCTIONS // 2))
    budget = Budget()
    with pytest.raises(Exhausted):
        rules_at(entry, 1 << 50, budget)
    assert budget.left < 0


def test_what_is_kept_of_all_rules_is_bounded(tmp_path: Path, memory: None) -> None:
    """Rules with long expressions, at as many places as there are."""
    expression = b"\x0f\xff\x7f" + b"\x96" * 0x3FFF
    body = b"\0" * 8 + struct.pack("<Q", 1 << 40) + b"\0" + expression
    content = COMMON.replace(b"\x1b", b"\x00") + struct.pack("<II", len(body) + 4, 24) + body
    file = MappedFile(claiming([(".eh_frame", BODY, len(content), 0)], content), "/hostile")
    for address in range(2 * MAX_KEPT_BYTES // len(expression)):
        assert file.rules(address, Budget()) is not None

# SPDX-License-Identifier: Apache-2.0
"""What an entry of .eh_frame says of one place in the code: where the caller's registers are (DWARF 5, 6.4)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from .dwarf import MISREAD, Malformed, pointer, signed_leb, unsigned_leb
from .frame_entries import Entry

MAX_INSTRUCTIONS: Final = 100_000
"""For one stack, if nothing of it was known before. A real one takes some thousands."""

MAX_TRIAL_FRAMES: Final = 4096
MAX_REMEMBERED: Final = 64
MAX_REGISTER: Final = 127
"""Beyond those of x86-64; what is said of vector registers is read and not used."""


class Exhausted(Exception):
    """A stack has cost more than it may."""


@dataclass(slots=True)
class Budget:
    """What may still be done for one stack."""

    left: int = MAX_INSTRUCTIONS
    trial_frames: int = MAX_TRIAL_FRAMES
    """Of ways on that were tried where code does not describe its frames."""

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Exhausted(f"more than {MAX_INSTRUCTIONS} call frame instructions")


class Kind(Enum):
    """How to get a register's value in the caller."""

    AT_OFFSET = auto()
    """In memory, so many bytes from the CFA."""
    IS_OFFSET = auto()
    """It is that address itself."""
    IN_REGISTER = auto()
    AT_EXPRESSION = auto()
    IS_EXPRESSION = auto()
    UNDEFINED = auto()
    """It is lost; of the return address: there is no caller."""


@dataclass(frozen=True, slots=True)
class Rules:
    """For one place in the code. A register without a rule has the same value in the caller."""

    cfa_register: int
    cfa_offset: int
    cfa_expression: bytes | None
    saved: tuple[tuple[int, int], ...]
    """Registers in memory, by their distance from the CFA: nearly all of them."""
    others: tuple[tuple[int, Kind, int, bytes], ...]
    return_register: int
    is_signal_frame: bool


@dataclass(slots=True)
class _Row:
    cfa_register: int = -1
    cfa_offset: int = 0
    cfa_expression: bytes | None = None
    registers: dict[int, tuple[Kind, int, bytes]] = field(default_factory=dict)

    def copy(self) -> "_Row":
        return _Row(self.cfa_register, self.cfa_offset, self.cfa_expression, dict(self.registers))


def rules_at(entry: Entry, address: int, budget: Budget) -> Rules:
    """The rules that hold before the instruction at this address. Raises Malformed, Exhausted."""
    common = entry.common
    program = _Program(entry, address, budget)
    try:
        program.run(common.instructions)
        program.initial = program.row.copy()
        if not program.is_over:
            program.run(entry.instructions)
    except MISREAD as error:
        raise Malformed(f"the rules for {address:#x}: {error}") from error
    row = program.row
    if row.cfa_register < 0 and row.cfa_expression is None:
        raise Malformed(f"the rules for {address:#x} do not say where the frame is")
    return Rules(
        row.cfa_register,
        row.cfa_offset,
        row.cfa_expression,
        tuple((number, rule[1]) for number, rule in row.registers.items() if rule[0] is Kind.AT_OFFSET),
        tuple((number, *rule) for number, rule in row.registers.items() if rule[0] is not Kind.AT_OFFSET),
        common.return_register,
        common.is_signal_frame,
    )


class _Program:
    """Call frame instructions, run until they speak of places behind the address that is asked about."""

    def __init__(self, entry: Entry, address: int, budget: Budget) -> None:
        self.row = _Row()
        self.initial = _Row()
        self.is_over = False
        self._entry = entry
        self._code_alignment = entry.common.code_alignment
        self._data_alignment = entry.common.data_alignment
        self._location = entry.begin
        self._address = address
        self._remembered: list[_Row] = []
        self._budget = budget
        self._data = b""
        self._at = 0

    def run(self, instructions: bytes) -> None:
        self._data, self._at = instructions, 0
        while self._at < len(instructions) and not self.is_over:
            self._budget.spend()
            instruction = instructions[self._at]
            self._at += 1
            operand = instruction & 0x3F
            if instruction >= 0xC0:  # DW_CFA_restore
                self._restore(operand)
            elif instruction >= 0x80:  # DW_CFA_offset
                self._set(operand, Kind.AT_OFFSET, self._unsigned() * self._data_alignment)
            elif instruction >= 0x40:  # DW_CFA_advance_loc
                self._advance(operand)
            else:
                handler = _INSTRUCTIONS.get(instruction)
                if handler is None:
                    raise Malformed(f"call frame instruction {instruction:#x} is not known")
                handler(self)

    def _unsigned(self) -> int:
        value, self._at = unsigned_leb(self._data, self._at)
        return value

    def _signed(self) -> int:
        value, self._at = signed_leb(self._data, self._at)
        return value

    def _block(self) -> bytes:
        size = self._unsigned()
        block = self._data[self._at : self._at + size]
        if len(block) < size:
            raise Malformed("an expression goes beyond its entry")
        self._at += size
        return block

    def _set(self, register: int, kind: Kind, value: int = 0, expression: bytes = b"") -> None:
        if register > MAX_REGISTER:
            raise Malformed(f"register {register} is beyond those of the machine")
        self.row.registers[register] = (kind, value, expression)

    def _restore(self, register: int) -> None:
        rule = self.initial.registers.get(register)
        if rule is None:
            self.row.registers.pop(register, None)
        else:
            self.row.registers[register] = rule

    def _advance(self, by: int) -> None:
        self._location += by * self._code_alignment
        self.is_over = self._location > self._address

    def _advance_by(self, size: int) -> None:
        by = self._data[self._at : self._at + size]
        if len(by) < size:
            raise Malformed("it ends within an instruction")
        self._at += size
        self._advance(int.from_bytes(by, "little"))

    def _set_location(self) -> None:
        """An encoded address. Relative ones would need to know where this instruction is; no compiler writes them."""
        encoding = self._entry.common.encoding
        if encoding & 0x70:
            raise Malformed("DW_CFA_set_loc with a relative address")
        self._location, self._at = pointer(self._data, self._at, encoding)
        self.is_over = self._location > self._address

    def _remember(self) -> None:
        if len(self._remembered) >= MAX_REMEMBERED:
            raise Malformed(f"more than {MAX_REMEMBERED} states are remembered")
        self._remembered.append(self.row.copy())

    def _recall(self) -> None:
        if not self._remembered:
            raise Malformed("a state is restored that was not remembered")
        self.row = self._remembered.pop()

    def _define_cfa(self, offset_factor: int = 0) -> None:
        self.row.cfa_register = min(self._unsigned(), MAX_REGISTER)
        self.row.cfa_expression = None
        self._define_cfa_offset(offset_factor)

    def _define_cfa_register(self) -> None:
        self.row.cfa_register = min(self._unsigned(), MAX_REGISTER)
        self.row.cfa_expression = None

    def _define_cfa_offset(self, offset_factor: int = 0) -> None:
        self.row.cfa_offset = self._signed() * offset_factor if offset_factor else self._unsigned()

    def _define_cfa_expression(self) -> None:
        self.row.cfa_expression = self._block()

    def _offset_extended(self) -> None:
        self._set(self._unsigned(), Kind.AT_OFFSET, self._unsigned() * self._data_alignment)

    def _offset_extended_signed(self) -> None:
        self._set(self._unsigned(), Kind.AT_OFFSET, self._signed() * self._data_alignment)

    def _negative_offset_extended(self) -> None:
        self._set(self._unsigned(), Kind.AT_OFFSET, -self._unsigned() * self._data_alignment)

    def _is_offset(self) -> None:
        self._set(self._unsigned(), Kind.IS_OFFSET, self._unsigned() * self._data_alignment)

    def _is_offset_signed(self) -> None:
        self._set(self._unsigned(), Kind.IS_OFFSET, self._signed() * self._data_alignment)

    def _in_register(self) -> None:
        self._set(self._unsigned(), Kind.IN_REGISTER, self._unsigned())

    def _at_expression(self) -> None:
        self._set(self._unsigned(), Kind.AT_EXPRESSION, 0, self._block())

    def _is_expression(self) -> None:
        self._set(self._unsigned(), Kind.IS_EXPRESSION, 0, self._block())

    def _same_value(self) -> None:
        self.row.registers.pop(self._unsigned(), None)


_INSTRUCTIONS: Final[dict[int, Callable[[_Program], object]]] = {
    0x00: lambda program: None,  # DW_CFA_nop
    0x01: _Program._set_location,
    0x02: lambda program: program._advance_by(1),
    0x03: lambda program: program._advance_by(2),
    0x04: lambda program: program._advance_by(4),
    0x05: _Program._offset_extended,
    0x06: lambda program: program._restore(program._unsigned()),
    0x07: lambda program: program._set(program._unsigned(), Kind.UNDEFINED),
    0x08: _Program._same_value,
    0x09: _Program._in_register,
    0x0A: _Program._remember,
    0x0B: _Program._recall,
    0x0C: _Program._define_cfa,
    0x0D: _Program._define_cfa_register,
    0x0E: _Program._define_cfa_offset,
    0x0F: _Program._define_cfa_expression,
    0x10: _Program._at_expression,
    0x11: _Program._offset_extended_signed,
    0x12: lambda program: program._define_cfa(program._data_alignment),
    0x13: lambda program: program._define_cfa_offset(program._data_alignment),
    0x14: _Program._is_offset,
    0x15: _Program._is_offset_signed,
    0x16: _Program._is_expression,
    0x2E: _Program._unsigned,  # DW_CFA_GNU_args_size: nothing that unwinding needs
    0x2F: _Program._negative_offset_extended,
}

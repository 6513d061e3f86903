# SPDX-License-Identifier: Apache-2.0
"""From a snapshot of a thread to its calls: frame by frame, by what the files in memory say of their code.

For x86-64. Where the code says nothing of its frames, unreported_frames.py looks for the next one that does.
"""

import platform
import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .dwarf import MISREAD
from .elf_image import X86_64
from .epilogues import CODE_BYTES, left
from .expressions import NotKnown, evaluate
from .frame_rules import Budget, Exhausted, Kind, Rules
from .mapped_files import MappedFile
from .memory_map import UPROBES, MemoryMap, NoFile, Region
from .signal_frames import SIGNAL_RETURN_BYTES, interrupted, returns_from_signal
from .snapshot import Snapshot
from .unreported_frames import candidates, is_behind_call

MAX_FRAMES: Final = 512
MAX_GUESSES: Final = 64
"""Frames of a stack that are looked for because nothing describes the code before them."""

_START_BYTES: Final = 32
"""A program's first function is shorter; where it does not describe itself (musl), it is known by its address."""

_STACK_POINTER: Final = 7
_INSTRUCTION_POINTER: Final = 16
_MASK: Final = (1 << 64) - 1
_WORD: Final = struct.Struct("<Q").unpack_from

Registers = dict[int, int]


class Ended(StrEnum):
    """Why a stack ends before the thread's root."""

    COPY_ENDS = "the stack is larger than its copy"
    OTHER_STACK = "the rest is on another stack, which was not copied"
    UNMAPPED = "a return address lies in no mapping"
    NO_CODE = "a return address leads to memory that is not code"
    NO_FILE = "the file of the code could not be opened"
    NO_INFORMATION = "the code does not describe its frames"
    MALFORMED = "the file describes its frames in a wrong way"
    NOT_KNOWN = "a register that is needed was not recorded"
    NO_PROGRESS = "a frame lies below the one that it called"
    TOO_DEEP = f"there are more than {MAX_FRAMES} frames"
    TOO_COSTLY = "the code describes its frames in too many steps"
    MACHINE = "stacks of this machine's architecture cannot be unwound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwound:
    """A stack, innermost frame first."""

    addresses: tuple[int, ...]
    """Of each call: one byte before the return address. Of the innermost frame, of a signal's own frame and of the
    code that it interrupted: the instruction itself."""
    reason: Ended | None
    """None when the thread's root was reached."""
    stack_pointers: tuple[int, ...] = ()
    """Of each frame: it reaches from there to the next one. There may be one more than frames, where the last ends."""
    guesses: int = 0
    """How many frames were found by looking for a return address, as the code before them does not describe itself."""


_AS_GOOD_AS_THE_ROOT: Final = {Ended.NO_INFORMATION: 2, Ended.COPY_ENDS: 4, Ended.TOO_DEEP: 4}
"""How the rest of a stack may end, and how many frames it must have, if it is to be believed that it is the rest."""


class _Stop(Exception):
    def __init__(self, reason: Ended) -> None:
        super().__init__(reason)
        self.reason = reason


class Unwinder:
    """Has no state of its own: what was learnt about a file is kept with it."""

    def __init__(self, machine: str | None = None) -> None:
        self._supported = (machine or platform.machine()) == "x86_64"

    def unwind(self, snapshot: Snapshot, memory_map: MemoryMap) -> Unwound:
        """Always the frames that were found, and why it stops there."""
        registers = snapshot.registers.by_number()
        if not self._supported:
            return Unwound(addresses=(snapshot.registers.rip,), reason=Ended.MACHINE)
        return _Walk(snapshot, memory_map, registers).unwound()


class _Walk:
    """The way up one stack."""

    def __init__(
        self,
        snapshot: Snapshot,
        memory_map: MemoryMap,
        registers: Registers,
        trial_for: "_Walk | None" = None,
    ) -> None:
        """A trial is how the walk would go on if these registers were those of a caller."""
        self._snapshot = snapshot
        self._stack, self._begin, self._last = snapshot.stack, snapshot.begin, len(snapshot.stack) - 8
        self._map = memory_map
        self._registers = registers
        self._returns: list[int] = list(
            trial_for._returns if trial_for else reversed(snapshot.original_returns)
        )
        self._budget: Budget = trial_for._budget if trial_for else Budget()
        self._exact = trial_for is None  # the address is that of an instruction, not behind a call
        self._may_guess = trial_for is None
        self._looked_anew = trial_for is not None
        self._addresses = [registers[_INSTRUCTION_POINTER]]
        self._stack_pointers = [registers[_STACK_POINTER]]
        self._guesses = 0

    def unwound(self) -> Unwound:
        reason: Ended | None = None
        try:
            while self._step():
                if len(self._addresses) >= MAX_FRAMES:
                    raise _Stop(Ended.TOO_DEEP)
                address = self._registers[_INSTRUCTION_POINTER]
                self._addresses.append(address if self._exact else address - 1)
                self._stack_pointers.append(self._registers[_STACK_POINTER])
        except _Stop as stop:
            reason = stop.reason
            if reason in (Ended.UNMAPPED, Ended.NO_CODE) and len(self._addresses) > 1:
                self._addresses.pop()  # a number that leads to no code is no frame
        except MISREAD:
            reason = Ended.MALFORMED
        except Exhausted:
            reason = Ended.TOO_COSTLY
        return Unwound(
            addresses=tuple(self._addresses),
            reason=reason,
            stack_pointers=tuple(self._stack_pointers),
            guesses=self._guesses,
        )

    def _step(self) -> bool:
        """One frame up; False at the root."""
        address = self._registers[_INSTRUCTION_POINTER]
        asked = address if self._exact else address - 1
        rules = self._map.rules.get(asked)
        if rules is not None:
            return self._follow(rules)
        region = self._region(asked)
        if not self._exact and (region is None or isinstance(region.file, NoFile)):
            # The kernel's trampoline is at the very beginning of its page.
            behind = self._map.find(address)
            region = behind if behind is not None and behind.path == UPROBES else region
        if region is None:
            raise _Stop(Ended.UNMAPPED)
        if not region.executable:
            raise _Stop(Ended.NO_CODE)
        if isinstance(region.file, NoFile):
            if region.file is not NoFile.ANONYMOUS:
                raise _Stop(Ended.NO_FILE)
            return self._without_information(region, None)
        return self._in_file(region, region.file, address, asked)

    def _in_file(self, region: Region, file: MappedFile, address: int, asked: int) -> bool:
        if file.image is not None and file.image.machine != X86_64:
            raise _Stop(Ended.MACHINE)
        place = region.address_as_linked(address)
        if place is None:
            return self._without_information(region, None)
        rules = file.rules(place - (address - asked), self._budget)
        if rules is not None and not rules.is_signal_frame:
            self._map.keep(asked, rules)
        if rules is None and not self._exact:
            # Hand-written code makes frames that return to the first instruction of a function.
            rules = file.rules(place, self._budget)
        if rules is None:
            return self._without_information(region, place)
        if rules.is_signal_frame and not self._exact:
            self._addresses[-1] = address
        return self._follow(rules)

    def _region(self, address: int) -> Region | None:
        """Looks for new mappings once a stack at most: garbage on a stack must not cost more."""
        region = self._map.find(address)
        if region is None and not self._looked_anew:
            self._looked_anew = True
            region = self._map.find_anew(address)
        return region

    def _follow(self, rules: Rules) -> bool:
        registers = self._registers
        below = registers[_STACK_POINTER]
        if rules.cfa_expression is not None:
            cfa = self._evaluated(rules.cfa_expression, None)
        elif (base := registers.get(rules.cfa_register)) is not None:
            cfa = base + rules.cfa_offset & _MASK
        else:
            raise _Stop(Ended.NOT_KNOWN)
        caller = registers.copy()
        del caller[_INSTRUCTION_POINTER]
        stack, begin, last = self._stack, self._begin, self._last
        for number, offset in rules.saved:
            place = cfa + offset - begin
            value = _WORD(stack, place)[0] if 0 <= place <= last else self._snapshot.word(cfa + offset)
            if value is not None:
                caller[number] = value
            elif cfa + offset >= below or number == rules.return_register:
                caller.pop(number, None)
            # Below the stack pointer it was popped: compilers do not say that the register has its value again.
        caller[_STACK_POINTER] = cfa  # a signal frame has it saved, and says so below
        if rules.others and not self._others(rules, cfa, caller):
            return False
        back = caller.get(rules.return_register)
        if back is None:
            raise _Stop(self._missing(cfa))
        if not back and self._may_guess:
            return False
        if cfa <= below and not rules.is_signal_frame:
            raise _Stop(Ended.NO_PROGRESS)
        if not (self._may_guess or rules.is_signal_frame or is_behind_call(back, self._map)):
            raise _Stop(Ended.NO_CODE)
        caller[_INSTRUCTION_POINTER] = back
        self._registers = caller
        self._exact = rules.is_signal_frame
        return True

    def _others(self, rules: Rules, cfa: int, caller: Registers) -> bool:
        """Rules that are not just a place on the stack; False if one says that there is no caller."""
        for number, kind, value, expression in rules.others:
            found: int | None = None
            if kind is Kind.UNDEFINED:
                if number == rules.return_register:
                    return False
            elif kind is Kind.IN_REGISTER:
                found = self._registers.get(value)
            elif kind is Kind.IS_OFFSET:
                found = cfa + value & _MASK
            elif kind is Kind.IS_EXPRESSION:
                found = self._evaluated(expression, cfa)
            else:
                found = self._snapshot.word(self._evaluated(expression, cfa))
            if found is None:
                caller.pop(number, None)
            else:
                caller[number] = found
        return True

    def _evaluated(self, expression: bytes, initial: int | None) -> int:
        try:
            return evaluate(expression, self._registers, self._snapshot.read, initial)
        except NotKnown:
            raise _Stop(self._missing(self._registers[_STACK_POINTER])) from None

    def _missing(self, cfa: int) -> Ended:
        """Why a return address cannot be had. Copies are of one stack, from the stack pointer to where they end."""
        end = self._snapshot.begin + len(self._snapshot.stack)
        return Ended.COPY_ENDS if self._snapshot.begin <= cfa and cfa - end < 1 << 20 else Ended.OTHER_STACK

    def _without_information(self, region: Region, place: int | None) -> bool:
        """A return probe's trampoline, a signal's return, the program's start, or code without any description."""
        address = self._registers[_INSTRUCTION_POINTER]
        if region.path == UPROBES:
            self._addresses[-1] = address
        if region.path == UPROBES and self._returns:
            self._registers[_INSTRUCTION_POINTER] = original = self._returns.pop()
            self._addresses[-1] = original - 1
            return self._step()
        if place is not None and not isinstance(region.file, NoFile) and region.file.image is not None:
            image = region.file.image
            if returns_from_signal(image.read(place, SIGNAL_RETURN_BYTES)):
                return self._interrupted(address)
            if 0 <= place - image.entry < _START_BYTES:
                return False
        if not self._exact:
            caller = left(self._map.code(address, CODE_BYTES), self._snapshot, self._registers)
            if caller is not None and is_behind_call(caller[_INSTRUCTION_POINTER], self._map):
                self._registers = caller
                return True
        return self._guess()

    def _interrupted(self, address: int) -> bool:
        registers = interrupted(self._snapshot, self._registers[_STACK_POINTER])
        if registers is None:
            raise _Stop(self._missing(self._registers[_STACK_POINTER]))
        self._addresses[-1] = address
        self._registers, self._exact = registers, True
        return True

    def _guess(self) -> bool:
        """The nearest return address from which the rest of the stack unwinds: a stale one leads nowhere."""
        if not self._may_guess or self._guesses >= MAX_GUESSES:
            raise _Stop(Ended.NO_INFORMATION)
        for registers in candidates(self._snapshot, self._map, self._registers, exact=self._exact):
            if self._budget.trial_frames <= 0:
                raise _Stop(Ended.TOO_COSTLY)
            rest = _Walk(self._snapshot, self._map, dict(registers), self).unwound()
            self._budget.trial_frames -= len(rest.addresses)
            # One frame alone says little: any number that looks like a return address has it.
            enough = _AS_GOOD_AS_THE_ROOT.get(rest.reason) if rest.reason is not None else 1
            if enough is not None and len(rest.addresses) >= enough:
                self._guesses += 1
                self._registers, self._exact = registers, False
                return True
        raise _Stop(Ended.NO_INFORMATION)

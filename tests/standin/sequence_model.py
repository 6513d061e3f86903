# SPDX-License-Identifier: Apache-2.0
"""What the program of a sequence holds: its contexts, each thread's stack of them, and what it can free."""

from dataclasses import dataclass, field
from random import Random
from typing import ClassVar


@dataclass(slots=True, eq=False)
class Context:
    register: int
    device: int
    alive: bool = True
    references: int = 0
    """Of a primary context."""
    lender: "Context | None" = None
    """Of a green context: the primary one that has its memory."""
    green: int = 0
    """The register of the green context's own handle."""

    @property
    def home(self) -> "Context":
        """The context whose end frees what is allocated in this one."""
        return self.lender or self


@dataclass(slots=True, eq=False)
class Held:
    register: int
    free: str
    owner: Context | None
    """None for what outlives contexts."""
    made_by: str = ""
    """The name of the call, where it matters."""


@dataclass(slots=True, eq=False)
class Model:
    THREADS: ClassVar = 4
    FREED: ClassVar = 50

    random: Random
    lines: list[str] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    freed: list[Held] = field(default_factory=list)
    """The last few, to be freed again."""
    contexts: list[Context] = field(default_factory=list)
    greens: list[Context] = field(default_factory=list)
    primaries: tuple[Context, Context] = field(
        default_factory=lambda: (Context(1, 0, alive=False), Context(2, 1, alive=False))
    )
    default_pools: tuple[int, int] = (3, 4)
    pools: list[int] = field(default_factory=list)
    stacks: list[list[Context]] = field(default_factory=lambda: [[] for _ in range(Model.THREADS)])
    _next_register: int = 99

    def say(self, thread: int, call: str) -> None:
        self.lines.append(f"{thread} {call}")

    def register(self) -> int:
        """One that nothing uses that is held now; registers below 100 have fixed uses."""
        used = {held.register for held in self.held}.union(self.pools)
        used.update(context.register for context in (*self.contexts, *self.greens))
        used.update(context.green for context in self.greens)
        while True:
            self._next_register = self._next_register + 1 if self._next_register < 8999 else 100
            if self._next_register not in used:
                return self._next_register

    def current(self, thread: int) -> Context | None:
        """The context that a call of this thread works on, None where it is refused."""
        stack = self.stacks[thread]
        return stack[-1] if stack and stack[-1].alive and stack[-1].home.alive else None

    def any_thread(self) -> int:
        return self.random.randrange(self.THREADS)

    def thread(self) -> int:
        """Mostly one with a context."""
        usable = [thread for thread in range(self.THREADS) if self.current(thread)]
        return self.random.choice(usable) if usable and self.random.random() < 0.97 else self.any_thread()

    def hold(self, register: int, free: str, owner: Context | None) -> Held:
        self.held.append(Held(register, free, owner))
        return self.held[-1]

    def forget(self, held: Held) -> None:
        self.held.remove(held)
        self.freed = [*self.freed, held][-self.FREED :]

    def free(self, held: Held) -> None:
        thread = self.thread()
        self.say(thread, held.free)
        if self.current(thread) or held.free.startswith("cuGraphDestroy"):
            self.forget(held)

    def _end(self, context: Context) -> None:
        """Frees all that belongs to it."""
        for held in [one for one in self.held if one.owner is context]:
            self.forget(held)

    def create_context(self, thread: int, device: int) -> None:
        register = self.register()
        call = self.random.choice(
            ("cuCtxCreate_v2 r{} 0 {}", "cuCtxCreate_v3 r{} 0 0 {}", "cuCtxCreate_v4 r{} 0 {}")
        )
        self.say(thread, call.format(register, device))
        self.contexts.append(Context(register, device))
        self.stacks[thread].append(self.contexts[-1])

    def destroy_context(self, thread: int, context: Context) -> None:
        self.say(thread, f"cuCtxDestroy_v2 r{context.register}")
        self.contexts.remove(context)
        context.alive = False
        if self.stacks[thread] and self.stacks[thread][-1] is context:
            self.stacks[thread].pop()
        self._end(context)

    def set_current(self, thread: int, context: Context | None) -> None:
        self.say(thread, f"cuCtxSetCurrent {f'r{context.register}' if context else 0}")
        if context and not (context.alive and context.home.alive):
            return
        if self.stacks[thread]:
            self.stacks[thread].pop()
        if context:
            self.stacks[thread].append(context)

    def push(self, thread: int, context: Context) -> None:
        if len(self.stacks[thread]) > 20:
            return
        self.say(thread, f"cuCtxPushCurrent_v2 r{context.register}")
        if context.alive and context.home.alive:
            self.stacks[thread].append(context)

    def pop(self, thread: int) -> None:
        self.say(thread, "cuCtxPopCurrent_v2 r95")
        if self.stacks[thread]:
            self.stacks[thread].pop()

    def respawn(self, thread: int) -> None:
        self.say(thread, "respawn")
        self.stacks[thread].clear()

    def retain_primary(self, thread: int, device: int) -> None:
        primary = self.primaries[device]
        self.say(thread, f"cuDevicePrimaryCtxRetain r{primary.register} {device}")
        primary.references += 1
        primary.alive = True

    def _unreference(self, primary: Context) -> None:
        primary.references -= 1
        primary.alive = primary.references > 0
        if not primary.alive:
            self._end(primary)

    def release_primary(self, thread: int, device: int) -> None:
        self.say(thread, f"cuDevicePrimaryCtxRelease_v2 {device}")
        self._unreference(self.primaries[device])

    def reset_primary(self, thread: int, device: int) -> None:
        self.say(thread, f"cuDevicePrimaryCtxReset_v2 {device}")
        self._end(self.primaries[device])

    def create_green(self, thread: int, device: int) -> None:
        primary = self.primaries[device]
        green, converted = self.register(), self.register()
        self.say(thread, f"cuGreenCtxCreate r{green} {device} 1")
        self.say(thread, f"cuCtxFromGreenCtx r{converted} r{green}")
        primary.references += 1
        primary.alive = True
        self.greens.append(Context(converted, device, lender=primary, green=green))

    def destroy_green(self, thread: int, context: Context) -> None:
        self.say(thread, f"cuGreenCtxDestroy r{context.green}")
        self.greens.remove(context)
        context.alive = False
        if context.home.references:
            self._unreference(context.home)

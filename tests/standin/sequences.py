# SPDX-License-Identifier: Apache-2.0
"""Seeded sequences of driver calls for `play`: most are legal, the rest are what programs get wrong.

A sequence is made with a model of what the program holds, so that most calls succeed. The model says nothing about
bytes: what is right is what the stand-in's ledger says. Four threads and two devices (`ENVIRONMENT`) are in use; the
last thread starts without a context.
"""

from random import Random
from typing import Final

from tests.standin.sequence_model import Context, Model
from tests.standin.sequence_vmm import VirtualMemory

ENVIRONMENT: Final = {"STANDIN_CUDA_DEVICES": "2"}
"""What a sequence expects of the stand-in."""

OF_A_CONTEXT: Final = (
    ("cuMemAlloc_v2 {r} {bytes}", "cuMemFree_v2 {r}"),
    ("cuMemAlloc_v2 {r} {bytes}", "cuMemFree_v2 {r}"),
    ("cuMemAllocPitch_v2 {r} r99 {width} {height} 4", "cuMemFree_v2 {r}"),
    ("cuMemAllocManaged {r} {bytes} 1", "cuMemFree_v2 {r}"),
    ("cuMemAlloc {r} {bytes}", "cuMemFree {r}"),
    ("cuMemAllocPitch {r} r99 {width} {height} 4", "cuMemFree_v2 {r}"),
    ("cuMemAllocHost_v2 {r} {bytes}", "cuMemFreeHost {r}"),
    ("cuMemHostAlloc {r} {bytes} 1", "cuMemFreeHost {r}"),
    ("cuArrayCreate_v2 {r} {width} {height} 0x20 4", "cuArrayDestroy {r}"),
    ("cuArray3DCreate_v2 {r} {width} {height} 3 0x10 2", "cuArrayDestroy {r}"),
    ("cuMipmappedArrayCreate {r} {width} {height} 5 8 1 4", "cuMipmappedArrayDestroy {r}"),
    ("cuImportExternalMemory {r} 1 {bytes}", "cuDestroyExternalMemory {r}"),
)
STREAM_ORDERED: Final = (
    ("cuMemAllocAsync {r} {bytes}", "cuMemFreeAsync {r}"),
    ("cuMemAllocAsync_ptsz {r} {bytes}", "cuMemFreeAsync_ptsz {r}"),
    ("cuMemAllocAsync {r} {bytes}", "cuMemFree_v2 {r}"),
    ("cuMemAllocFromPoolAsync {r} {bytes} {pool}", "cuMemFreeAsync_ptsz {r}"),
    ("cuMemAllocFromPoolAsync_ptsz {r} {bytes} {pool}", "cuMemFree_v2 {r}"),
)
UNKNOWN: Final = (
    "cuMemFree_v2 0xdead000",
    "cuMemFree_v2 0",
    "cuMemFree 0xdead000",
    "cuMemFreeAsync 0xdead000",
    "cuMemFreeHost 0xdead000",
    "cuMemHostUnregister 0xdead000",
    "cuMemRelease 0xdead000",
    "cuArrayDestroy 0xdead000",
    "cuMipmappedArrayDestroy 0xdead000",
    "cuIpcCloseMemHandle 0xdead000",
    "cuDestroyExternalMemory 0xdead000",
    "cuGraphDestroy 0xdead000",
    "cuCtxDestroy_v2 0xdead000",
    "cuMemPoolDestroy 0xdead000",
)
IMPOSSIBLE: Final = (
    "cuMemAlloc_v2 r98 0",
    "cuMemAlloc_v2 r98 0x4000000000000",
    "cuMemAllocPitch_v2 r98 r99 0x100000000 0x100000000 4",
    "cuMemAllocManaged r98 4096 0",
    "cuMemAllocHost_v2 r98 0",
    "cuMemAllocAsync r98 0x4000000000000",
    "cuMemAllocFromPoolAsync r98 4096 0xdead000",
    "cuMemCreate r98 4096 1 0 0",
    "cuMemCreate r98 0x200000 1 77 0",
    "cuMemCreate r98 0x4000000000000 1 0 0",
    "cuArrayCreate_v2 r98 64 64 0x7f 4",
    "cuGraphAddMemAllocNode r98 0xdead000 1 0 4096 r97",
    "cuImportExternalMemory r98 1 0",
)
CODES: Final = (1, 2, 3, 201, 719, 999)
FAMILIES: Final = frozenset({"green", "graph", "imported", "legacy", "pool", "race", "refusal", "vmm"})


def sequence(seed: int, steps: int, *, without: frozenset[str] = frozenset()) -> list[str]:
    """Lines for `play`, the same for the same arguments; a step is one line or a few. `without`: some of FAMILIES."""
    assert without <= FAMILIES, without - FAMILIES
    return Sequence(Random(seed), without).make(steps)


class Sequence:
    def __init__(self, random: Random, without: frozenset[str]) -> None:
        self._random = random
        self._model = Model(random)
        self._vmm = VirtualMemory(self._model)
        self._without = without
        self._steps = [
            (weight, step)
            for weight, family, step in (
                (30, "", self._allocate),
                (24, "", self._free),
                (12, "pool", self._allocate_stream_ordered),
                (5, "pool", self._use_pool),
                (14, "vmm", self._vmm.step),
                (3, "", self._register),
                (4, "imported", self._import),
                (4, "graph", self._use_graph),
                (8, "", self._use_context),
                (1, "green", self._use_green_context),
                (2, "", self._double_free),
                (2, "", self._free_unknown),
                (1, "", self._free_by_another_call),
                (2, "", self._fail),
                (2, "refusal", self._refuse),
                (2, "race", self._race),
                (1, "", self._respawn),
            )
            if family not in without
        ]

    def make(self, steps: int) -> list[str]:
        self._model.say(0, "cuInit 0")
        for device in (0, 1):
            self._model.retain_primary(0, device)
            self._model.say(0, f"cuDeviceGetDefaultMemPool r{self._model.default_pools[device]} {device}")
        self._model.set_current(0, self._model.primaries[0])
        self._model.set_current(1, self._model.primaries[1])
        self._model.create_context(2, 0)
        weights = [weight for weight, _ in self._steps]
        for _, step in self._random.choices(self._steps, weights, k=steps):
            step()
        return self._model.lines

    def _bytes(self) -> int:
        return self._random.choice((1, 512, 4096, 100_000, 1 << 20, self._random.randrange(1, 1 << 22)))

    def _filled(self, template: str, register: int) -> str:
        pools = [*self._model.default_pools, *self._model.pools]
        return template.format(
            r=f"r{register}",
            bytes=self._bytes(),
            width=self._random.randrange(1, 2000),
            height=self._random.randrange(1, 100),
            pool=f"r{self._random.choice(pools)}",
        )

    def _hold(self, template: str, free: str, *, outlives_context: bool = False) -> None:
        if len(self._model.held) > 100:
            self._free()
        thread = self._model.thread()
        register = self._model.register()
        self._model.say(thread, self._filled(template, register))
        context = self._model.current(thread)
        if context:
            owner = None if outlives_context else context.home
            held = self._model.hold(register, free.format(r=f"r{register}"), owner)
            held.made_by = template.split(maxsplit=1)[0]

    def _allocate(self) -> None:
        template, free = self._random.choice(OF_A_CONTEXT)
        name = template.split()[0]
        if name in ("cuMemAlloc", "cuMemAllocPitch") and "legacy" in self._without:
            return
        if name == "cuImportExternalMemory" and "imported" in self._without:
            return
        self._hold(template, free)

    def _allocate_stream_ordered(self) -> None:
        self._hold(*self._random.choice(STREAM_ORDERED), outlives_context=True)

    def _register(self) -> None:
        register = self._model.register()
        size = self._bytes()
        thread = self._model.thread()
        self._model.lines.append(f"memory r{register} {size}")
        self._model.say(thread, f"cuMemHostRegister_v2 r{register} {size} 0")
        if self._random.random() < 0.2:  # a second time: refused
            self._model.say(thread, f"cuMemHostRegister_v2 r{register} {size} 0")
        context = self._model.current(thread)
        if context:
            self._model.hold(register, f"cuMemHostUnregister r{register}", context.home)

    def _free(self) -> None:
        if self._model.held:
            self._model.free(self._random.choice(self._model.held))

    def _double_free(self) -> None:
        if self._model.freed:
            self._model.say(self._model.thread(), self._random.choice(self._model.freed).free)

    def _free_unknown(self) -> None:
        self._model.say(self._model.thread(), self._random.choice(UNKNOWN))

    def _free_by_another_call(self) -> None:
        """Most such calls fail, and those that succeed free what their name says."""
        if self._model.held:
            call = self._random.choice(UNKNOWN).split()[0]
            held = self._random.choice(self._model.held)
            self._model.say(self._model.thread(), f"{call} r{held.register}")
            if call.split("_")[0] == held.free.split()[0].split("_")[0]:
                self._model.forget(held)

    def _fail(self) -> None:
        if self._random.random() < 0.6:
            self._model.say(self._model.thread(), self._random.choice(IMPOSSIBLE))
            return
        count = self._random.randint(1, 3)
        self._model.say(0, f"standin_fail_next {self._random.choice(CODES)} {count}")
        for template, _ in self._random.choices(OF_A_CONTEXT, k=count):
            self._model.say(self._model.thread(), self._filled(template, self._model.register()))

    def _refuse(self) -> None:
        if self._model.held:
            self._model.say(0, "standin_refuse_frees 1")
            self._model.say(self._model.thread(), self._random.choice(self._model.held).free)
            self._model.say(0, "standin_refuse_frees 0")

    def _race(self) -> None:
        held = self._random.choice(self._model.held) if self._model.held else None
        if held is None or self._random.random() < 0.6:
            self._model.lines.append(f"* {self._random.randint(1, 20)} churn {self._bytes()}")
            return
        self._model.lines.append(f"* 2 {held.free}")
        if any(self._model.current(thread) for thread in range(self._model.THREADS)):
            self._model.forget(held)

    def _respawn(self) -> None:
        self._model.respawn(self._random.randrange(self._model.THREADS))

    def _use_pool(self) -> None:
        choice = self._random.randrange(6)
        pools = self._model.pools
        if not pools or (choice == 0 and len(pools) < 6):
            register = self._model.register()
            place = self._random.choice(("1 0", "1 1", "1 1", "2 0"))
            self._model.say(self._model.any_thread(), f"cuMemPoolCreate r{register} {place}")
            pools.append(register)
        elif choice == 1:
            pool = pools.pop(self._random.randrange(len(pools)))
            self._model.say(self._model.any_thread(), f"cuMemPoolDestroy r{pool}")
        elif choice == 2:
            pool = self._random.choice((*pools, *self._model.default_pools))
            self._model.say(self._model.any_thread(), f"cuMemPoolTrimTo r{pool} {self._bytes()}")
        elif choice == 3:
            pool = self._random.choice((*pools, *self._model.default_pools))
            threshold = self._random.choice((0, 1 << 20, 2**64 - 1))
            self._model.say(self._model.any_thread(), f"cuMemPoolSetAttribute r{pool} 4 {threshold}")
        elif choice == 4:
            device = self._random.randrange(2)
            self._model.say(
                self._model.any_thread(), f"cuDeviceSetMemPool {device} r{self._random.choice(pools)}"
            )
        else:
            self._model.say(
                self._model.thread(), self._random.choice(("cuCtxSynchronize", "cuStreamSynchronize"))
            )

    def _import(self) -> None:
        """Opens the process's own memory, or maps external memory that it has imported."""
        calls = ("cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAlloc", "cuImportExternalMemory")
        held = [one for one in self._model.held if one.made_by in calls]
        if not held:
            return
        source = self._random.choice(held)
        thread = self._model.thread()
        context = self._model.current(thread)
        register = self._model.register()
        if source.made_by == "cuImportExternalMemory":
            self._model.say(thread, f"cuExternalMemoryGetMappedBuffer r{register} r{source.register} 0 1")
            free = f"cuMemFree_v2 r{register}"
        else:
            self._model.say(thread, f"cuIpcGetMemHandle r{source.register} r{source.register}")
            self._model.say(thread, f"cuIpcOpenMemHandle_v2 r{register} r{source.register} 1")
            free = f"cuIpcCloseMemHandle r{register}"
        if context:
            self._model.hold(register, free, context.home)

    def _use_graph(self) -> None:
        graphs = [held for held in self._model.held if held.free.startswith("cuGraphDestroy")]
        register = self._model.register()
        if not graphs or (len(graphs) < 4 and self._random.random() < 0.3):
            self._model.say(self._model.any_thread(), f"cuGraphCreate r{register} 0")
            self._model.hold(register, f"cuGraphDestroy r{register}", None)
            return
        graph = self._random.choice(graphs).register
        node = f"r96 r{graph} 1 {self._random.randrange(2)} {self._bytes()} r{register}"
        self._model.say(self._model.any_thread(), f"cuGraphAddMemAllocNode {node}")
        if self._random.random() < 0.5:
            self._model.say(self._model.any_thread(), f"cuGraphAddMemFreeNode r96 r{graph} r{register}")

    def _use_context(self) -> None:
        model, random = self._model, self._random
        thread = random.randrange(model.THREADS)
        choice = random.randrange(10)
        if choice < 2 and len(model.contexts) < 6:
            model.create_context(thread, random.randrange(2))
        elif choice == 2 and model.contexts:
            model.destroy_context(thread, random.choice(model.contexts))
        elif choice < 6:
            model.set_current(thread, random.choice(self._usable_contexts()))
        elif choice == 6:
            model.push(thread, random.choice(self._usable_contexts()))
        elif choice == 7:
            model.pop(thread)
        elif choice == 8:
            self._use_primary_context(thread)
        else:
            model.set_current(thread, None)

    def _usable_contexts(self) -> list[Context]:
        return [*self._model.contexts, *self._model.greens, *self._model.primaries]

    def _use_primary_context(self, thread: int) -> None:
        device = self._random.randrange(2)
        choice = self._random.randrange(4)
        if choice == 0:
            self._model.reset_primary(thread, device)
        elif choice == 1 and self._model.primaries[device].references:
            self._model.release_primary(thread, device)
        else:
            self._model.retain_primary(thread, device)

    def _use_green_context(self) -> None:
        thread = self._random.randrange(self._model.THREADS)
        if len(self._model.greens) > 2:
            self._model.destroy_green(thread, self._random.choice(self._model.greens))
        else:
            self._model.create_green(thread, self._random.randrange(2))

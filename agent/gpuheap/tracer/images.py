# SPDX-License-Identifier: Apache-2.0
"""Which processes the ids of the kernel side stand for, and which of them have ended."""

from collections.abc import Collection
from pathlib import Path

from gpuheap.heap.model import Process

from .abi import ImageEvent

UNKNOWN = Process(pid=0, start_ns=0, name="<unknown>")
"""Stands for a process whose first event was lost."""


class Images:
    """Process images by id, from the events that announce and end them."""

    def __init__(self) -> None:
        self._processes: dict[int, Process] = {}
        self._generations: dict[tuple[int, int], int] = {}
        self._late: set[int] = set()
        self.ended: set[int] = set()

    def begin(self, event: ImageEvent) -> None:
        start = (event.tgid, event.image.start_ns)
        generation = self._generations.get(start, -1) + 1
        self._generations[start] = generation
        self._processes[event.image.id] = Process(
            pid=event.tgid, start_ns=event.image.start_ns, name=_name(event), generation=generation
        )
        if event.image.late:
            self._late.add(event.image.id)

    def end(self, event: ImageEvent) -> None:
        self.ended.add(event.image.id)

    def process(self, image: int) -> Process:
        return self._processes.get(image, UNKNOWN)

    def knows(self, image: int) -> bool:
        return image in self._processes

    def missing_from(self, images: Collection[int]) -> set[int]:
        """Those that have not ended, as far as is known, and are not among these."""
        return {image for image in self._processes if image not in images and image not in self.ended}

    def exited(self) -> frozenset[Process]:
        return frozenset(self._processes[image] for image in self.ended if image in self._processes)

    def joined_late(self) -> frozenset[Process]:
        return frozenset(self._processes[image] for image in self._late)

    def ids_of(self, processes: frozenset[Process]) -> set[int]:
        return {image for image, process in self._processes.items() if process in processes}

    def forget(self, image: int) -> None:
        self.ended.discard(image)
        self._late.discard(image)
        process = self._processes.pop(image, None)
        if process is not None and not any(other.pid == process.pid for other in self._processes.values()):
            self._generations.pop((process.pid, process.start_ns), None)


def _name(event: ImageEvent) -> str:
    """The process's name. The event has the calling thread's, which differs from it in many a pool of threads."""
    try:
        name = Path(f"/proc/{event.tgid}/comm").read_text(errors="replace").strip()
    except OSError:
        name = ""
    return name or bytes(event.name).decode(errors="replace")


def ancestry(pid: int, parent: int) -> list[int]:
    """The process, its parent as the kernel saw it, and that one's ancestors as far as they still run."""
    line = [pid]
    while parent > 1 and parent not in line:
        line.append(parent)
        try:
            # Behind the name, which may hold anything, come the state and the parent's pid.
            parent = int(
                Path(f"/proc/{parent}/stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            )
        except (OSError, ValueError, IndexError):
            break
    return line

# SPDX-License-Identifier: Apache-2.0
"""What the first names of one library cost, in a process that does nothing else: `python -m bench.symbol_lookup FILE`.

Prints one line of JSON. The file is in the page cache as that of a running program is, as far as it was used; with
`--cold` as little of it is there as nobody has mapped. Real-time priority keeps other programs out of the times.
"""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Final

from gpuheap.stacks.elf_image import OpenFile
from gpuheap.stacks.mapped_files import MappedFile
from gpuheap.stacks.symbols import Symbols

MORE: Final = 200


def main() -> int:
    path = sys.argv[1]
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    if "--cold" in sys.argv:
        _drop_from_memory(path)
    before, began, began_cpu = _peak_kib(), time.perf_counter(), time.process_time()
    symbols = Symbols()
    file = MappedFile(OpenFile(os.open(path, os.O_RDONLY)), path)
    addresses = _addresses(file)
    symbols.name_in(file, path, addresses[0])
    first_seconds, first_cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    first_kib = _peak_kib() - before
    began_cpu = time.process_time()
    named = [symbols.name_in(file, path, address).named for address in addresses[1:]]
    more_cpu_seconds = time.process_time() - began_cpu
    symbols.close()
    print(
        json.dumps(
            {
                "first_ms": first_seconds * 1e3,
                "first_cpu_ms": first_cpu_seconds * 1e3,
                "first_mib": first_kib / 1024,
                "more_cpu_us": more_cpu_seconds / MORE * 1e6,
                "all_mib": (_peak_kib() - before) / 1024,
                "named": sum(named) / MORE,
            }
        )
    )
    return 0


def _addresses(file: MappedFile) -> list[int]:
    """Anywhere in its code."""
    assert file.image is not None
    chance = random.Random(1)  # noqa: S311 - which ones does not matter
    code = file.image.segments[0]
    return [chance.randrange(code.address, code.address + code.size) for _ in range(MORE + 1)]


def _drop_from_memory(path: str) -> None:
    with Path(path).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _peak_kib() -> int:
    """Of this program alone: getrusage begins with the peak of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    sys.exit(main())

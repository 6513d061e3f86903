# SPDX-License-Identifier: Apache-2.0
"""What `program.py` allocates and frees, counted by hand, and the functions that call for it."""

from typing import Final

from tests.kernels.program import MIB


def row(allocated: tuple[int, int], freed: tuple[int, int], at_exit: tuple[int, int]) -> dict[str, list[int]]:
    """Bytes and objects; a freed figure includes what an end released."""
    return {"allocated": [*allocated], "freed": [*freed], "released_at_exit": [*at_exit]}


COUNTED_BY_HAND: Final = {
    # three layers of 4 MiB stay; five activations of 1 MiB go
    "model device 0": row((17 * MIB, 8), (5 * MIB, 5), (0, 0)),
    "child device 0": row((2 * MIB, 1), (2 * MIB, 1), (2 * MIB, 1)),
    "leave device 0": row((3 * MIB, 1), (3 * MIB, 1), (3 * MIB, 1)),
    "arrive device 0": row((6 * MIB, 1), (6 * MIB, 1), (6 * MIB, 1)),
    # 1 MiB three times by a thread, 4 MiB by the main one
    "die device 0": row((7 * MIB, 4), (7 * MIB, 4), (7 * MIB, 4)),
    # 3 MiB of a stream and 4 MiB of physical memory went; 2 MiB without a handle are mapped
    "mix device 0": row((9 * MIB, 3), (7 * MIB, 2), (0, 0)),
    "mix managed 0": row((8 * MIB, 1), (0, 0), (0, 0)),
    "mix pinned_host host": row((MIB, 1), (0, 0), (0, 0)),
}
CALLED: Final = {
    "model device": {
        "<module>;main;model;Model.build;Layer.__init__;Driver.allocate": 12 * MIB,
        "<module>;main;model;Model.infer;Driver.allocate": 5 * MIB,
    },
    "child device": {"<module>;main;model;Model.fork;Driver.allocate": 2 * MIB},
    "leave device": {"<module>;main;leave;Driver.allocate": 3 * MIB},
    "arrive device": {"<module>;main;arrive;Driver.allocate": 6 * MIB},
    "die device": {
        "Thread._bootstrap;Thread._bootstrap_inner;Thread.run;lend;Driver.allocate": 3 * MIB,
        "<module>;main;die;Driver.allocate": 4 * MIB,
    },
    "mix device": {
        "<module>;main;mix;Driver.call": 3 * MIB,
        "<module>;main;mix;physical;Driver.call": 6 * MIB,
    },
    "mix managed": {"<module>;main;mix;Driver.call": 8 * MIB},
    "mix pinned_host": {"<module>;main;mix;Driver.call": MIB},
}
OUT_OF_MEMORY: Final = {"model 2": 2}


def by_functions(stacks: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Without the lines, which only the comparison of two kernels holds; what differs in these only is one stack."""
    found: dict[str, dict[str, int]] = {}
    for part, sizes in stacks.items():
        sums = found.setdefault(part, {})
        for stack, size in sizes.items():
            key = ";".join(frame.rpartition(":")[0] for frame in stack.split(";"))
            sums[key] = sums.get(key, 0) + size
    return found

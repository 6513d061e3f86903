# SPDX-License-Identifier: Apache-2.0
"""What each reason means for which something is lost or blurred, in words. Pure.

The tracer names the reasons and may know newer ones: a reason that is not here is shown by its name alone.
"""

from collections.abc import Mapping
from typing import Final

from gpuheap.heap.quantities import count_text

MEANINGS: Final[Mapping[str, str]] = {
    # Something is in no figure.
    "pending_full": "driver calls inside driver calls, deeper than there is room for; these are in no figure",
    "threads_full": "no room for another thread; its calls are in no figure",
    "images_full": "no room for another process; it is in no figure",
    "failures_full": "no room for another sort of failure; it is not counted",
    "unmatched_return": "a driver call was seen only when it ended; it is in no figure",
    "mapping_lost": "reports of loaded libraries were dropped; a process may be seen too late",
    "probe_failed": "a driver or interpreter file could not be probed; its processes lack allocations or functions",
    "driver_found_late": "a driver file was in use before it was probed; earlier allocations are in no figure",
    "pools_full": "no room for another memory pool; what it keeps is in no figure",
    # Something is shown as in use for too long, or not long enough.
    "live_full": "a free failed, and there was no room to note again what it was of; that is shown as freed",
    "spill_full": "an allocation beyond the agent's table was not noted; when it is freed, it stays shown as in use",
    "handles_full": "no room for another memory handle or mapping; when released, it may stay shown as in use",
    "contexts_full": "no room for another context or graph; what its end frees stays shown as in use",
    "address_reused": "an address came again, its free was not seen; the earlier allocation is taken as freed",
    # A call that changes nothing.
    "unknown_free": "memory was freed whose allocation was not seen; it changes nothing",
    "unknown_release": "a memory handle was released that is not known, or too often; it changes nothing",
    # The bytes are there, and where they belong is blurred.
    "unknown_device": "an allocation on a GPU that is not known",
    "oom_blurred": "what a site held at an out-of-memory failure is shown as of a later moment",
    "sites_full": "no room for another combination of thread and stack; the bytes are the process's, without a stack",
    "stacks_full": "no room for another stack; the bytes are shown without one",
    "codes_full": "no room for another function's description",
    "ring_full": "the agent fell behind the kernel; names of functions or ends of processes may be missing",
    "fault": "memory of a process could not be read in time; a stack or an address is missing",
    "truncated_stack": "a Python stack was deeper than 64 functions; some between its ends are cut",
    "no_thread_state": "a thread that Python does not know; its bytes are shown without Python functions",
    "thread_unsearched": "a process has too many Python threads to find the one that allocates",
    "implausible_stack": "an interpreter is not the Python that it says; its bytes are shown without Python functions",
    "python_stack_missed": "an allocation under an interpreter that is not supported, shown without functions",
    "native_stack_missed": "an allocation whose native stack was not copied, shown without native functions",
    "native_stack_cut": "a native stack whose outer frames could not be found",
    "line_unread": "a file whose debug information cannot be read, or not all of it; its functions lack lines",
    "merge_uncertain": "a stack whose Python functions are shown before its native ones, as they did not fit",
    "snapshot_ring_full": "the agent fell behind; a native stack is copied when it comes again",
    "snapshot_rate": "a process had very many new native stacks at once; one is copied when it comes again",
    "name_lost": "a stack with a function whose name was lost",
}
"""By the tracer's name for the reason."""


def loss_notes(losses: Mapping[str, int]) -> tuple[str, ...]:
    """One sentence for each reason for which something was lost or blurred; none when nothing was."""
    return tuple(_note(reason, count) for reason, count in sorted(losses.items()) if count)


def with_zeros(losses: Mapping[str, int]) -> dict[str, int]:
    """Every reason that is known, with 0 where nothing happened, and those of the reading."""
    return {**dict.fromkeys(MEANINGS, 0), **losses}


def _note(reason: str, count: int) -> str:
    meaning = MEANINGS.get(reason)
    note = f"lost or blurred: {reason}, {count_text(count, 'time')}"
    return f"{note}: {meaning}" if meaning else note

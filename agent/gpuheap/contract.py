# SPDX-License-Identifier: Apache-2.0
"""The names that the agent shows to the outside: metrics, labels and profile types.

Dashboards, alerts and the stack import them from here, so a rename is seen everywhere at once.
Standard library only. Changing a value breaks stored queries: do it on purpose, with its test.
"""

from typing import Final

DEFAULT_METRICS_PORT: Final = 9408
DEFAULT_PUSH_INTERVAL_SECONDS: Final = 15
"""Pyroscope draws timelines in steps of at least 15 s; a push on that grid is shown unsummed."""

PROFILE_NAME: Final = "gpu_memory"
"""The `__name__` label. Not "memory": Pyroscope 1.x would compute deltas of `alloc_*` itself."""

SAMPLE_TYPES: Final = (
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
)
"""pprof sample types with their units, in the order of a sample's values."""

PERIOD_TYPE: Final = ("space", "bytes")


def profile_type_id(sample_type: str) -> str:
    """The id by which Pyroscope's queries name a profile type, such as `gpu_memory:inuse_space:bytes:space:bytes`.

    Raises KeyError for a sample type that is not in `SAMPLE_TYPES`.
    """
    unit = dict(SAMPLE_TYPES)[sample_type]
    return ":".join((PROFILE_NAME, sample_type, unit, *PERIOD_TYPE))


# Metrics. Labels of the memory families: PROCESS_LABELS. A sum over them must keep `kind` apart.
IN_USE_BYTES: Final = "gpuheap_memory_in_use_bytes"
IN_USE_OBJECTS: Final = "gpuheap_memory_in_use_objects"
ALLOCATED_BYTES: Final = "gpuheap_memory_allocated_bytes_total"
ALLOCATED_OBJECTS: Final = "gpuheap_memory_allocated_objects_total"
FREED_BYTES: Final = "gpuheap_memory_freed_bytes_total"
POOL_RETAINED_BYTES: Final = "gpuheap_pool_retained_bytes"
"""What stream-ordered pools keep beyond their allocations, with POOL_LABELS: part of no memory family."""
JOINED_LATE: Final = "gpuheap_process_joined_late"
"""1 for each process that ran before tracing began: what it allocated before is in no other family."""
FAILURES: Final = "gpuheap_allocation_failures_total"
LOST_EVENTS: Final = "gpuheap_lost_events_total"
"""By `reason`: one for each way in which something was lost or blurred, from the start."""
PUSHED_PROFILES: Final = "gpuheap_profiles_pushed_total"
"""By `outcome`: stored, refused (never retried), failed (no connection, no answer), dropped (queue full, stopping)."""

KIND_LABEL: Final = "kind"
"""Of `gpuheap.heap.model.MemoryKind`. In metrics and profiles alike."""
DEVICE_LABEL: Final = "device"
"""The process's own number for the GPU, `host` or `unknown`."""
GPU_LABEL: Final = "gpu"
"""UUID of the GPU or MIG slice; empty in metrics, and missing in profiles, when it could not be found out."""

PROCESS_LABELS: Final = ("node", "process", "pid", KIND_LABEL, DEVICE_LABEL, GPU_LABEL)
POOL_LABELS: Final = ("node", "process", "pid", DEVICE_LABEL, GPU_LABEL)

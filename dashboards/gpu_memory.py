# SPDX-License-Identifier: Apache-2.0
"""The dashboard "GPU memory": who holds it, since when, and through which lines of code.

The committed `gpu_memory.json` is made from this by `python -m dashboards`; a test holds the two together.
"""

from typing import Final

from grafana_foundation_sdk.builders import dashboard, table, timeseries
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync

from gpuheap import contract
from gpuheap.heap.model import MemoryKind

from . import panels

UID: Final = "gpuheap-memory"

# The agent's labels; that of the cluster is added to metrics by Azure Monitor, to profiles by the agent.
ON_NODES: Final = '{cluster=~"$cluster", node=~"$node"}'
OF_PROCESSES: Final = '{cluster=~"$cluster", node=~"$node", process=~"$process"}'
# One kind at a time: bytes of different kinds are never added up.
SELECTED: Final = '{cluster=~"$cluster", node=~"$node", process=~"$process", kind="$kind"}'
# Without the format, Grafana would write several chosen values in a form that is no regular expression.
SELECTED_PROFILES: Final = (
    '{cluster=~"${cluster:regex}", node=~"${node:regex}", process=~"${process:regex}", kind="$kind"}'
)

# Names of Inspektor Gadget's own GPU gadgets and of their profiles:
# https://github.com/inspektor-gadget/grafana-dashboards/tree/main/dashboards/gpu-observability
GADGET_ALLOCATED: Final = "mem_alloc_bytes_total"
GADGET_FREED: Final = "mem_free_bytes_total"
GADGET_FREED_BY_EXIT: Final = "mem_implicit_free_bytes_total"
GADGET_PROFILE: Final = "process_cpu:malloc:bytes::"

# One push lies in a window as long as the push interval. The window ends a little before now, since the
# newest push may still be under way.
NOW_WINDOW: Final = f"{contract.DEFAULT_PUSH_INTERVAL_SECONDS}s"
NOW_DELAY: Final = "5s"

_SECONDS: Final = contract.DEFAULT_PUSH_INTERVAL_SECONDS
ABOUT_FLAME_GRAPHS: Final = f"""\
**Reading the flame graphs.** Width is bytes of the chosen *kind of memory*, callers above callees; kinds are
never added up. Each agent pushes what is in use every {_SECONDS} s, and Pyroscope **adds up** all pushes of the
window that it is asked for: over an hour, 1 GiB that is simply held shows as {3600 // _SECONDS} GiB. *In use now*
therefore always looks at one push, whatever the time range above; for sizes over time read the curves.
*Allocated* is a sum by nature and follows the time range.
"""


def build() -> dashboard.Dashboard:
    return (
        dashboard.Dashboard("GPU memory")
        .uid(UID)
        .description("GPU memory by process and by line of code, from gpuheap's agents.")
        .tags(["gpu", "gpuheap"])
        .editable()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .with_variable(panels.data_source("prom_ds", "Metrics", "prometheus", "gpuheap-prometheus"))
        .with_variable(
            panels.data_source("pyroscope_ds", "Profiles", "grafana-pyroscope-datasource", "local-pyroscope")
        )
        .with_variable(
            panels.label_values("cluster", "Cluster", f"label_values({contract.IN_USE_BYTES}, cluster)")
        )
        .with_variable(
            panels.label_values(
                "node", "Node", f'label_values({contract.IN_USE_BYTES}{{cluster=~"$cluster"}}, node)'
            )
        )
        .with_variable(
            panels.label_values(
                "process",
                "Process",
                f'label_values({contract.IN_USE_BYTES}{{cluster=~"$cluster", node=~"$node"}}, process)',
            )
        )
        .with_variable(
            panels.choice(
                "kind", "Kind of memory", [kind.value for kind in MemoryKind], MemoryKind.DEVICE.value
            )
        )
        .with_row(dashboard.Row("Who holds GPU memory"))
        .with_panel(_in_use())
        .with_panel(_top_processes())
        .with_panel(_allocation_rate())
        .with_panel(_balance())
        .with_panel(_kinds())
        .with_panel(_pools())
        .with_row(dashboard.Row("Which lines hold it"))
        .with_panel(panels.note(ABOUT_FLAME_GRAPHS, height=4))
        .with_panel(_flame_graph_in_use())
        .with_panel(_flame_graph_allocated())
        .with_row(dashboard.Row("What went wrong"))
        .with_panel(_failures())
        .with_panel(_joined_late())
        .with_panel(_lost_events())
        .with_panel(_pushes())
        .with_row(dashboard.Row("Inspektor Gadget"))
        .with_panel(_gadget_in_use())
        .with_panel(_gadget_rate())
        .with_panel(_gadget_flame_graph())
    )


def _in_use() -> timeseries.Panel:
    return panels.series(
        "In use by process",
        "Bytes of the chosen kind, allocated and not freed. A line that climbs and never falls is a leak, or an "
        "unlimited cache. A device is the process's own number for the GPU.",
        "bytes",
        panels.query(
            f"sum by (node, process, pid, device) ({contract.IN_USE_BYTES}{SELECTED})",
            "{{process}} {{pid}} on {{node}}, device {{device}}",
        ),
    )


def _top_processes() -> table.Panel:
    return panels.ranking(
        "Largest processes now",
        "The ten that hold most of the chosen kind, by GPU.",
        "bytes",
        f"topk(10, sum by (node, process, pid, device, gpu) ({contract.IN_USE_BYTES}{SELECTED}))",
    )


def _allocation_rate() -> timeseries.Panel:
    return panels.series(
        "Allocated per second",
        "Memory asked for and got. High beside a flat curve of use: freed and taken again, which costs time.",
        "Bps",
        panels.query(
            f"sum by (node, process, device) (rate({contract.ALLOCATED_BYTES}{SELECTED}[$__rate_interval]))",
            "{{process}} on {{node}}, device {{device}}",
        ),
    )


def _balance() -> timeseries.Panel:
    return panels.series(
        "Allocated less freed, in 15 minutes",
        "Growth by process. Above zero for hours: something is kept that should have been let go.",
        "bytes",
        panels.query(
            f"sum by (node, process, device) (increase({contract.ALLOCATED_BYTES}{SELECTED}[15m]))"
            f" - sum by (node, process, device) (increase({contract.FREED_BYTES}{SELECTED}[15m]))",
            "{{process}} on {{node}}, device {{device}}",
        ),
    )


def _kinds() -> timeseries.Panel:
    return panels.series(
        "In use by kind",
        "Every kind of memory of a process, a line each. They are not parts of one sum: managed memory moves, "
        "pinned memory is the host's, arrays are estimated, graphs take theirs while they run, and what is "
        "imported belongs to another process.",
        "bytes",
        panels.query(
            f"sum by (node, process, kind) ({contract.IN_USE_BYTES}{OF_PROCESSES})",
            "{{process}} on {{node}}, {{kind}}",
        ),
    )


def _pools() -> timeseries.Panel:
    return panels.series(
        "Kept by memory pools",
        "Freed in stream order and kept by the pool: taken on the GPU, used by nobody, and in no other panel.",
        "bytes",
        panels.query(
            f"sum by (node, process, pid, device) ({contract.POOL_RETAINED_BYTES}{OF_PROCESSES})",
            "{{process}} {{pid}} on {{node}}, device {{device}}",
        ),
    )


def _flame_graph_in_use() -> dashboard.Panel:
    panel = panels.flame_graph(
        "In use now, by line",
        f"The last push of every chosen process, of one kind of memory, at most {NOW_WINDOW} and {NOW_DELAY} old.",
        contract.profile_type_id("inuse_space"),
        SELECTED_PROFILES,
    )
    return panel.time_from(NOW_WINDOW).time_shift(NOW_DELAY)


def _flame_graph_allocated() -> dashboard.Panel:
    return panels.flame_graph(
        "Allocated in the time range, by line",
        "Everything of the chosen kind that was allocated, whether it was freed or not.",
        contract.profile_type_id("alloc_space"),
        SELECTED_PROFILES,
    )


def _failures() -> timeseries.Panel:
    return panels.series(
        "Failed allocations",
        "Calls that the driver refused, by its error code; 2 is out of memory.",
        "short",
        panels.query(
            f"sum by (node, process, code) (increase({contract.FAILURES}{OF_PROCESSES}[$__rate_interval]))",
            "{{process}} on {{node}}, CUDA error {{code}}",
        ),
    )


def _joined_late() -> table.Panel:
    return panels.ranking(
        "Processes that are seen in part",
        "They ran before tracing began: what they had allocated by then is in no panel. Restart them to see all of it.",
        "short",
        f"sum by (node, process, pid) ({contract.JOINED_LATE}{OF_PROCESSES})",
    )


def _lost_events() -> timeseries.Panel:
    return panels.series(
        "Lost events",
        "What the tracer could not count or name, by reason. Above zero, figures here lack something or are blurred.",
        "short",
        panels.query(
            f"sum by (node, reason) (increase({contract.LOST_EVENTS}{ON_NODES}[$__rate_interval]))",
            "{{reason}} on {{node}}",
        ),
    )


def _pushes() -> timeseries.Panel:
    return panels.series(
        "Profiles pushed",
        "By outcome. Refused or failed ones are missing from the flame graphs.",
        "short",
        panels.query(
            f"sum by (node, outcome) (increase({contract.PUSHED_PROFILES}{ON_NODES}[$__rate_interval]))",
            "{{outcome}} on {{node}}",
        ),
    )


def _gadget_in_use() -> timeseries.Panel:
    selected = '{cluster=~"$cluster"}'
    return panels.series(
        "In use by pod, as Inspektor Gadget counts",
        "A second opinion. It sees runtime and driver calls alike; with both attached, it counts twice.",
        "bytes",
        panels.query(
            f"sum by (namespace, pod) ({GADGET_ALLOCATED}{selected})"
            f" - sum by (namespace, pod) ({GADGET_FREED}{selected})"
            f" - (sum by (namespace, pod) ({GADGET_FREED_BY_EXIT}{selected})"
            f" or 0 * sum by (namespace, pod) ({GADGET_ALLOCATED}{selected}))",
            "{{namespace}}/{{pod}}",
        ),
    )


def _gadget_rate() -> timeseries.Panel:
    return panels.series(
        "Allocated per second by pod, as Inspektor Gadget counts",
        "Its counters start with its pods: what was allocated before is not in them.",
        "Bps",
        panels.query(
            f'sum by (namespace, pod) (rate({GADGET_ALLOCATED}{{cluster=~"$cluster"}}[$__rate_interval]))',
            "{{namespace}}/{{pod}}",
        ),
    )


def _gadget_flame_graph() -> dashboard.Panel:
    return panels.flame_graph(
        "Allocated in the time range, by Inspektor Gadget",
        "Allocations only, never what is still in use.",
        GADGET_PROFILE,
        "{}",
    )

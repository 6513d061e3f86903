# SPDX-License-Identifier: Apache-2.0
"""Which profilers the stack has, and the settings of Azure's own, the extension `microsoft.inspektorgadget`.

Which setting is documented where, and which are left out, says docs/extension-settings.md.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from .agent import AgentBuild, AgentImage
from .base import Part, refuse
from .pool_parts import label_syntax
from .quantities import check_memory

Profiler = Literal["inspektor-gadget", "gpuheap"]
BOTH: Final[tuple[Profiler, ...]] = ("inspektor-gadget", "gpuheap")
_CHART: Final = "inspektor-gadget."
# An image's name may end with `*`. A comma or a brace would end the list that the extension reads from one text.
_GADGET: Final = re.compile(r"[a-z0-9][A-Za-z0-9._:/@-]*\*?")


_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _variables(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if not _VARIABLE.fullmatch(name):
            raise refuse(f"{name!r} is no name of an environment variable")
    return value


def _gadgets(value: list[str] | None) -> list[str] | None:
    for name in value or ():
        if not _GADGET.fullmatch(name):
            raise refuse(f"{name!r} is no name of an image")
    return value


class InspektorGadget(Part):
    """Every one of them is always told to the extension, which merges: a setting that was told once and is told no
    longer would stay as it was. But for `allowed_gadgets`: an empty list that is read otherwise would keep every gadget
    from running, on every stack. And `node_selector` and `additional_env`, whose keys users name: these are declared on
    its DaemonSet, where what is declared no longer goes.
    """

    version: str | None = Field(
        default=None,
        pattern=r"^\d+\.\d+\.\d+\S*$",
        description="a version to stay at, or none for automatic upgrades",
        examples=["1.2.0"],
    )
    azure_monitor: bool = Field(default=True, description="true to have its metrics scraped", examples=[True])
    log_level: Literal["trace", "debug", "info", "warning", "error", "fatal", "panic"] = Field(
        default="info", description="trace, debug, info, warning, error, fatal or panic", examples=["info"]
    )
    events_buffer_length: int = Field(
        default=16384, ge=64, le=1 << 20, description="64 to 1048576 events", examples=[16384]
    )
    hook_mode: Literal["auto", "crio", "podinformer", "nri", "fanotify+ebpf"] = Field(
        default="auto", description="how it learns of new containers", examples=["auto"]
    )
    fallback_pod_informer: bool = Field(
        default=True,
        description="true to learn of them from the API server when all else fails",
        examples=[True],
    )
    experimental: bool = Field(default=False, description="true for experimental features", examples=[False])
    verify_image: bool = Field(default=True, description="true to run signed gadgets alone", examples=[True])
    allowed_gadgets: Annotated[list[str] | None, AfterValidator(_gadgets)] = Field(
        default=None,
        max_length=100,
        description="images of gadgets that may run, `*` at the end for any; the extension's own for GPUs must be "
        "among them; [] lifts what was said before",
        examples=[["mcr.microsoft.com/oss/v2/inspektor-gadget/gadget/*"]],
    )
    disallow_pulling: bool = Field(
        default=False, description="true to run only gadgets that are on the nodes", examples=[False]
    )
    host_pid: bool = Field(
        default=True,
        description="true to see the nodes' processes; without it, containers are found by the API server alone",
        examples=[True],
    )
    node_selector: Annotated[dict[str, str], AfterValidator(label_syntax)] = Field(
        default={},
        max_length=20,
        description="labels of the nodes that it runs on; default: every Linux node",
        examples=[{"agentpool": "gpu"}],
    )
    additional_env: Annotated[dict[str, str], AfterValidator(_variables)] = Field(
        default={},
        max_length=50,
        description="more environment variables, by name; no secrets, since everybody who reads the cluster sees them",
        examples=[{"HTTPS_PROXY": "http://proxy.example:3128"}],
    )
    cpu_request: str = Field(
        default="100m",
        pattern=r"^(\d+m|\d+(\.\d+)?)$",
        description="cores, such as 100m or 1",
        examples=["100m"],
    )
    memory_request: str = Field(
        default="128Mi", pattern=r"^\d+(Mi|Gi)$", description="such as 128Mi", examples=["128Mi"]
    )
    memory_limit: str = Field(
        default="1Gi", pattern=r"^\d+(Mi|Gi)$", description="such as 1Gi", examples=["1Gi"]
    )

    @model_validator(mode="after")
    def _request_within_limit(self) -> Self:
        check_memory(self.memory_request, self.memory_limit)
        return self

    def told(self) -> Mapping[str, str]:
        """What the extension is told, as text."""
        values: dict[str, object] = {
            "gpuObservability.enabled": True,
            "azureMonitor.enabled": self.azure_monitor,
            f"{_CHART}config.daemonLogLevel": self.log_level,
            f"{_CHART}config.eventsBufferLength": self.events_buffer_length,
            f"{_CHART}config.experimental": self.experimental,
            # The documented name; charts that have the other one as well let this one win.
            f"{_CHART}config.hookMode": self.hook_mode,
            f"{_CHART}config.operator.kubemanager.hook-mode": self.hook_mode,
            f"{_CHART}config.operator.kubemanager.fallback-podinformer": self.fallback_pod_informer,
            f"{_CHART}config.operator.oci.verify-image": self.verify_image,
            f"{_CHART}config.operator.oci.allowed-gadgets": self.allowed_gadgets,
            f"{_CHART}config.operator.oci.disallow-pulling": self.disallow_pulling,
            f"{_CHART}hostPID": self.host_pid,
            f"{_CHART}resources.requests.cpu": self.cpu_request,
            f"{_CHART}resources.requests.memory": self.memory_request,
            f"{_CHART}resources.limits.memory": self.memory_limit,
        }
        return {key: _text(value) for key, value in values.items() if value is not None}


def _text(value: object) -> str:
    """As Helm reads a value on its command line. A list in one text is replaced as a whole; with a key for each member,
    the last ones of a longer list would stay.
    """
    if isinstance(value, list):
        return "{" + ",".join(value) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def problems(
    profilers: Sequence[Profiler], settings: InspektorGadget | None, agent: AgentImage | AgentBuild | None
) -> Iterator[PydanticCustomError]:
    """`settings`, `agent`: what was written of each."""
    if len(set(profilers)) < len(profilers):
        yield refuse(
            "a profiler stands twice in the list",
            at=("profilers",),
            given=", ".join(profilers),
            allowed="inspektor-gadget, gpuheap, or both",
        )
    if "gpuheap" in profilers and agent is None:
        yield refuse(
            "it must be set",
            at=("agent",),
            allowed="`image` or `build`",
            examples=[{"build": {"registry": "example.azurecr.io"}}],
        )
    for key, profiler, written in (
        ("inspektorGadget", "inspektor-gadget", settings),
        ("agent", "gpuheap", agent),
    ):
        if written is not None and profiler not in profilers:
            yield refuse(
                "its profiler is not there",
                at=(key,),
                given=f"{key} with profilers {', '.join(profilers)}",
                allowed=f"{key} with {profiler} among gpuheap:profilers",
                remove=True,
            )

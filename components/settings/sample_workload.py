# SPDX-License-Identifier: Apache-2.0
"""One workload that the stack brings along, to see that everything works; and what must go together with it."""

from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import Field
from pydantic_core import PydanticCustomError

from .base import Part, refuse
from .devices import IMAGE
from .placement import NAMESPACE_NAME, Placement, Taints
from .pools import POOL_NAME, GpuPool
from .workspaces import DEFAULT_WORKSPACES, Workspace

_DEFAULTS: Final = Taints()


class SampleWorkload(Part):
    image: str = Field(
        pattern=IMAGE, description="<registry>/<name>:<tag>", examples=["docker.io/vllm/vllm-openai:v0.10.0"]
    )
    command: list[str] = Field(
        default=[], description="what to run; default: what the image says", examples=[["python", "train.py"]]
    )
    pool: str = Field(pattern=POOL_NAME, description="the name of one of gpuPools", examples=["gpu"])
    workspace: str = Field(
        default="gpu-inference",
        pattern=NAMESPACE_NAME,
        description="the name of one of workspaces",
        examples=["gpu-inference"],
    )
    gpus: int = Field(default=1, ge=1, le=64, description="1 to 64 of what the pool offers", examples=[1])


def problems(
    sample: SampleWorkload | None,
    placement: Placement,
    workspaces: Sequence[Workspace] | None,
    pools: Sequence[GpuPool],
) -> Iterator[PydanticCustomError]:
    """What each of these says that another one rules out."""
    for vendor in sorted({pool.vendor for pool in pools}):
        taint, ours = getattr(placement.taints, vendor), getattr(_DEFAULTS, vendor)
        if taint != ours:
            yield refuse(
                "the pools of this stack have a taint that cannot be chosen",
                at=("placement", "taints", vendor),
                given=taint,
                allowed=f"{ours}; another one only where all of the vendor's pools are made elsewhere",
                remove=True,
            )
    if sample is None:
        return
    names = [pool.name for pool in pools]
    if sample.pool not in names:
        yield refuse(
            "there is no such pool",
            at=("sampleWorkload", "pool"),
            given=sample.pool,
            allowed=", ".join(names) or "gpuPools has none",
            examples=names[:1] or ["gpu"],
        )
    spaces = [space.name for space in (DEFAULT_WORKSPACES if workspaces is None else workspaces)]
    if sample.workspace not in spaces:
        yield refuse(
            "there is no such workspace",
            at=("sampleWorkload", "workspace"),
            given=sample.workspace,
            allowed=", ".join(spaces),
            examples=spaces[:1] or ["gpu-inference"],
        )

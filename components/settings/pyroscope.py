# SPDX-License-Identifier: Apache-2.0
"""Pyroscope's chart, its size, and the load that it is made for."""

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from .base import Part, refuse

COMPONENTS: Final = (
    "distributor",
    "ingester",
    "querier",
    "query-frontend",
    "query-scheduler",
    "store-gateway",
    "compactor",
)
"""What the chart's microservices are called; small ones that need no sizing are left out."""

Component = Literal[
    "distributor", "ingester", "querier", "query-frontend", "query-scheduler", "store-gateway", "compactor"
]


class Load(Part):
    """What is pushed at most. Limits, replicas and memory follow from it: docs/pyroscope-sizing.md."""

    nodes: int = Field(default=4, ge=1, le=1000, description="1 to 1000 GPU nodes", examples=[4])
    processes_per_node: int = Field(
        default=8, ge=1, le=1000, description="1 to 1000 processes with GPU memory on a node", examples=[8]
    )
    stacks_per_process: int = Field(
        default=500, ge=1, le=100_000, description="1 to 100000 different stacks of a process", examples=[500]
    )


class ComponentSize(Part):
    """What one of the microservices gets, in place of what follows from the load."""

    replicas: int | None = Field(default=None, ge=1, le=100, description="1 to 100", examples=[3])
    cpu: str | None = Field(
        default=None,
        pattern=r"^(\d+m|\d+(\.\d+)?)$",
        description="requested cores, such as 500m or 2",
        examples=["1"],
    )
    memory_gib: float | None = Field(
        default=None, gt=0, le=512, description="GiB, requested and limit", examples=[8]
    )


class BlobStorage(Part):
    """The storage account of the microservices, which they reach by workload identity."""

    account_name: str = Field(
        pattern=r"^[a-z0-9]{3,24}$",
        description="3 to 24 lower-case letters and digits, unique in Azure",
        examples=["gpuheapprofiles"],
    )
    redundancy: Literal["LRS", "ZRS", "GRS"] = Field(
        default="ZRS", description="LRS, ZRS or GRS", examples=["ZRS"]
    )


class Pyroscope(Part):
    """Pyroscope's chart, and the disk that it keeps profiles on."""

    chart: str = Field(
        default="oci://ghcr.io/grafana/helm-charts/pyroscope",
        pattern=r"^(oci://|https://|\./|/)\S+$",
        description="a chart's address (oci:// or https://) or a folder (./…)",
        examples=["oci://ghcr.io/grafana/helm-charts/pyroscope"],
    )
    version: str = Field(
        default="1.15.0",
        pattern=r"^1\.\d+\.\d+\S*$",
        description="the exact version of a chart 1.x, whose values the stack knows",
        examples=["1.15.0"],
    )
    size: Literal["single", "microservices"] = Field(
        default="single",
        description="single (one replica with a disk) or microservices (on Azure Blob)",
        examples=["single"],
    )
    disk_gib: int = Field(
        default=32,
        ge=0,
        le=32767,
        description="0 (no disk: profiles live as long as the pod) to 32767 GiB, of the replica, or of each ingester",
        examples=[32],
    )
    memory_gib: float = Field(
        default=4, gt=0, le=512, description="for single: GiB, the limit of its pod", examples=[4]
    )
    retention_days: int = Field(
        default=14, ge=1, le=3650, description="1 to 3650 days that profiles are kept", examples=[14]
    )
    load: Load = Field(default=Load(), description="what is pushed at most")
    replication: int = Field(
        default=3, ge=1, le=5, description="for microservices: 1 to 5 copies of what is pushed", examples=[3]
    )
    storage: BlobStorage | None = Field(
        default=None,
        description="for microservices: the storage account",
        examples=[{"accountName": "gpuheapprofiles"}],
    )
    components: dict[Component, ComponentSize] = Field(
        default={},
        description="for microservices: " + ", ".join(COMPONENTS),
        examples=[{"ingester": {"replicas": 3}}],
    )

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.size == "microservices" and self.storage is None:
            raise refuse(
                "microservices share their profiles through a storage account",
                at=("pyroscope", "storage", "accountName"),
                given="no storage",
                allowed="3 to 24 lower-case letters and digits, unique in Azure",
                examples=["gpuheapprofiles"],
            )
        if self.size == "single":
            given = [key for key in ("storage", "components", "replication") if key in self.model_fields_set]
            if given:
                raise refuse(
                    "one replica keeps its profiles, once, on its own disk, and has no components",
                    at=("pyroscope", given[0]),
                    given=f"{given[0]} with size single",
                    allowed=f"{given[0]} with size microservices",
                    remove=True,
                )
        elif "memory_gib" in self.model_fields_set:
            raise refuse(
                "each of the microservices has memory of its own",
                at=("pyroscope", "memoryGib"),
                given="memoryGib with size microservices",
                allowed="memoryGib with size single, or memoryGib of one of components",
                remove=True,
            )
        ingesters = self.components.get("ingester")
        if ingesters and ingesters.replicas is not None and ingesters.replicas < self.replication:
            raise refuse(
                "there are more copies than ingesters to hold them",
                at=("pyroscope", "components", "ingester", "replicas"),
                given=str(ingesters.replicas),
                allowed=f"at least {self.replication}, the replication",
                examples=[self.replication],
            )
        return self

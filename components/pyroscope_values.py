# SPDX-License-Identifier: Apache-2.0
"""The values of Pyroscope's chart for each size: those of `helm-values/`, and what the configuration adds. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from .pyroscope_sizing import Sizing, sizing
from .settings.pyroscope import Pyroscope as Settings

FOLDER: Final = Path(__file__).parent.parent / "helm-values"
CONTAINER: Final = "pyroscope"
"""The blob container of the profiles."""
ACCOUNT: Final = "pyroscope"
"""The Kubernetes service account of all pods: what the federated credential trusts."""

Values = dict[str, Any]


def sizing_of(settings: Settings) -> Sizing:
    load = settings.load
    return sizing(
        nodes=load.nodes,
        processes_per_node=load.processes_per_node,
        stacks_per_process=load.stacks_per_process,
        replication=settings.replication,
    )


def single(settings: Settings) -> Values:
    """One replica, its profiles on a disk of its own."""
    chart = _read("pyroscope.yaml")
    pyroscope = chart["pyroscope"]
    pyroscope["persistence"] = _disk(settings)
    pyroscope["resources"]["limits"]["memory"] = _gib(settings.memory_gib)
    pyroscope["structuredConfig"]["limits"] = limits(settings)
    return chart


def microservices(settings: Settings, client_id: object) -> Values:
    """Components by themselves, with their profiles in Azure Blob. `client_id` is that of their identity, and may be
    an output."""
    assert settings.storage
    chart = _read("pyroscope.yaml")
    chart = _merged(chart, _read("pyroscope-microservices.yaml"))
    pyroscope = chart["pyroscope"]
    del pyroscope["replicaCount"], pyroscope["resources"]
    needed = sizing_of(settings)
    for name, replicas in (("distributor", needed.distributors), ("ingester", needed.ingesters)):
        pyroscope["components"][name]["replicaCount"] = replicas
    # What was pushed and is not in the storage account yet survives a restart on it.
    pyroscope["components"]["ingester"]["persistence"] = _disk(settings)
    for name, size in settings.components.items():
        _resize(pyroscope["components"][name], size.replicas, size.cpu, size.memory_gib)
    pyroscope["extraArgs"] |= {
        "distributor.replication-factor": str(settings.replication),
        "store-gateway.sharding-ring.replication-factor": str(
            min(settings.replication, pyroscope["components"]["store-gateway"]["replicaCount"])
        ),
    }
    pyroscope["serviceAccount"] = {
        "create": True,
        "name": ACCOUNT,
        "annotations": {"azure.workload.identity/client-id": client_id},
    }
    pyroscope["structuredConfig"] = {
        "storage": {
            "backend": "azure",
            # No key and no secret: without them the client asks for the workload's identity.
            "azure": {"account_name": settings.storage.account_name, "container_name": CONTAINER},
        },
        "limits": limits(settings),
    }
    return chart


def limits(settings: Settings) -> Values:
    """What Pyroscope takes, and how long it keeps it. The defaults are for much less, and for ever."""
    needed = sizing_of(settings)
    return {
        "ingestion_rate_mb": needed.rate_mib,
        "ingestion_burst_size_mb": needed.burst_mib,
        "max_global_series_per_tenant": needed.series,
        "compactor_blocks_retention_period": f"{settings.retention_days * 24}h",
    }


def _read(name: str) -> Values:
    values: Values = yaml.safe_load((FOLDER / name).read_text())
    return values


def _resize(component: Values, replicas: int | None, cpu: str | None, memory_gib: float | None) -> None:
    if replicas is not None:
        component["replicaCount"] = replicas
    if cpu is not None:
        component["resources"]["requests"]["cpu"] = cpu
    if memory_gib is not None:
        component["resources"]["requests"]["memory"] = _gib(memory_gib)
        component["resources"]["limits"]["memory"] = _gib(memory_gib)


def _disk(settings: Settings) -> Values:
    return {"enabled": True, "size": f"{settings.disk_gib}Gi"} if settings.disk_gib else {"enabled": False}


def _gib(amount: float) -> str:
    return f"{amount:g}Gi" if float(amount).is_integer() else f"{round(amount * 1024)}Mi"


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """`base` with `over` laid on it, group by group."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = (
            _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return merged

# SPDX-License-Identifier: Apache-2.0
"""The checks of Azure's published GPU profiling procedure, in its order, and those of gpuheap's own parts.

https://learn.microsoft.com/azure/aks/gpu-profiling tells what must be seen after each of its steps; where it
shows a command to type, the check asks the same question of the same API. How each looks is in the files beside this.
"""

from collections.abc import Iterable
from typing import Final

import httpx2
from lightkube import ApiError

from . import azure, grafana, nodes, workloads
from .model import Check, CheckFailed, Live, MissingRight, NothingToCheck, Outcome, Result

PREREQUISITES, EXTENSION, PYROSCOPE = "Prerequisites", "1 Extension", "2 Pyroscope"
PRIVATE_LINK, PROMETHEUS, DASHBOARD, OURS = "3 Private Link", "4 Prometheus", "5 Dashboard", "gpuheap"
FORBIDDEN: Final = 403
KUBERNETES_RIGHTS: Final = (
    "python -m verify --rights kubernetes prints the roles; who administers the cluster applies them"
)
MEND: Final = "pulumi refresh, then pulumi up"


def run(live: Live, checks: Iterable[Check]) -> list[Result]:
    """Make every check; one that fails never keeps the next from being made."""
    return [_run(live, check) for check in checks]


def _run(live: Live, check: Check) -> Result:
    try:
        return Result(check=check, outcome=Outcome.PASSED, seen=check.look(live))
    except NothingToCheck as nothing:
        return Result(check=check, outcome=Outcome.SKIPPED, seen=str(nothing))
    except MissingRight as failure:
        return _failed(check, str(failure), failure.remedy)
    except CheckFailed as failure:
        return _failed(check, str(failure))
    except ApiError as error:
        if error.status.code == FORBIDDEN:
            return _failed(check, f"not allowed: {error.status.message}", KUBERNETES_RIGHTS)
        return _failed(check, f"Kubernetes API: {error}")
    except httpx2.HTTPError as error:
        return _failed(check, f"the cluster's API server cannot be reached: {error}")


def _failed(check: Check, seen: str, remedy: str | None = None) -> Result:
    return Result(check=check, outcome=Outcome.FAILED, seen=seen, remedy=remedy or check.remedy)


CHECKS: Final = (
    Check(
        step=PREREQUISITES,
        title="GPU nodes are tainted and offer their GPUs",
        look=nodes.offer_their_gpus,
        remedy="kubectl describe node: its taints and `Allocatable`; without GPUs there, look at the device plugin",
    ),
    Check(
        step=PREREQUISITES,
        title="Device plugin runs on every GPU node",
        look=nodes.have_their_device_plugin,
        remedy="kubectl get pods -A -o wide | grep device-plugin: it must tolerate the pool's taint",
    ),
    Check(
        step=PREREQUISITES,
        title="GPU driver answers in every pool",
        look=nodes.have_a_driver,
        remedy="the pool's gpuProfile.driver must be Install, unless an operator installs the driver",
    ),
    Check(
        step=EXTENSION,
        title="Inspektor Gadget extension is installed",
        look=azure.extension,
        remedy="az k8s-extension show -n inspektor-gadget …: its `statuses` tell; then `pulumi up`",
    ),
    Check(
        step=EXTENSION,
        title="Inspektor Gadget pods run",
        look=workloads.gadget_pods,
        remedy="kubectl get pods -n gadget -l k8s-app=gadget; kubectl describe the one that is not ready",
    ),
    Check(
        step=PYROSCOPE,
        title="Pyroscope runs",
        look=workloads.pyroscope_pods,
        remedy="kubectl get pods -n gadget -l app.kubernetes.io/name=pyroscope; kubectl logs of what is not ready",
    ),
    Check(
        step=PYROSCOPE,
        title="Pyroscope answers to its name in the cluster",
        look=workloads.pyroscope_service,
        remedy="the chart's Service must be called pyroscope: see helm-values/pyroscope.yaml",
    ),
    Check(
        step=PRIVATE_LINK,
        title="Private Link Service exists",
        look=azure.private_link_service,
        remedy="kubectl describe the LoadBalancer Service in namespace gadget: the cloud controller reports there",
    ),
    Check(
        step=PRIVATE_LINK,
        title="Grafana's private endpoint is approved",
        look=azure.private_endpoint,
        remedy=f"{MEND}: the endpoint is made anew where that is needed, and approved",
    ),
    Check(
        step=PRIVATE_LINK,
        title="Pyroscope data source has the endpoint's URL",
        look=grafana.pyroscope_data_source,
        remedy=MEND,
    ),
    Check(
        step=PRIVATE_LINK,
        title="Grafana reaches Pyroscope",
        look=grafana.pyroscope_health,
        remedy="the endpoint must be approved, and the NetworkPolicy admit the Private Link subnet",
    ),
    Check(
        step=PROMETHEUS,
        title="Prometheus data source uses the managed identity",
        look=grafana.prometheus_data_source,
        remedy=MEND,
    ),
    Check(
        step=PROMETHEUS,
        title="Grafana may read the metrics",
        look=grafana.prometheus_health,
        remedy="Grafana's identity needs Monitoring Data Reader on the Azure Monitor workspace",
    ),
    Check(
        step=DASHBOARD,
        title="A private endpoint leads to Grafana",
        look=azure.private_access,
        remedy="approve it at the workspace, under Networking; one that is gone: pulumi refresh, then pulumi up",
    ),
    Check(step=DASHBOARD, title="Dashboard is there", look=grafana.dashboard, remedy=MEND),
    Check(
        step=DASHBOARD,
        title="Dashboard's address answers",
        look=grafana.dashboard_page,
        remedy="a workspace without public access answers only where its name leads to its private endpoint",
    ),
    Check(
        step=OURS,
        title="Agent runs on every GPU node",
        look=workloads.agent,
        remedy="kubectl logs -n gpuheap ds/gpuheap-agent; its first lines say what it lacks",
    ),
    Check(
        step=OURS,
        title="A profile is newer than a minute",
        look=grafana.fresh_profile,
        remedy="run a program that holds GPU memory; then docs/runbook.md, GpuheapPushesNoProfiles",
    ),
    Check(
        step=OURS,
        title="Alert rules are on",
        look=azure.alert_rules,
        remedy=MEND,
    ),
)

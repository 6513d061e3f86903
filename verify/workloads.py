# SPDX-License-Identifier: Apache-2.0
"""Checks of what runs in the cluster: the profilers and Pyroscope."""

from typing import Final

from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Pod, Service

from .model import CheckFailed, Live, NothingToCheck
from .nodes import is_ready

GADGET_NAMESPACE: Final = "gadget"
PYROSCOPE_PORT: Final = 4040


def gadget_pods(live: Live) -> str:
    if not live.has_profiler("inspektor-gadget"):
        raise NothingToCheck("the stack is without the extension")
    return _pods_ready(live, GADGET_NAMESPACE, {"k8s-app": "gadget"})


def pyroscope_pods(live: Live) -> str:
    return _pods_ready(live, _pyroscope_namespace(live), {"app.kubernetes.io/name": "pyroscope"})


def pyroscope_service(live: Live) -> str:
    service = live.kubernetes.get(Service, "pyroscope", namespace=_pyroscope_namespace(live))
    ports = [port.port for port in (service.spec and service.spec.ports) or ()]
    if PYROSCOPE_PORT not in ports:
        raise CheckFailed(f"Service pyroscope has ports {ports}, not {PYROSCOPE_PORT}")
    return f"pyroscope:{PYROSCOPE_PORT}"


def agent(live: Live) -> str:
    if not live.has_profiler("gpuheap"):
        raise NothingToCheck("the stack is without our agent")
    namespace, name = live.output("agentDaemonSet").split("/")
    status = live.kubernetes.get(DaemonSet, name, namespace=namespace).status
    if not status or status.desiredNumberScheduled < 1:
        raise CheckFailed("it is scheduled on no node")
    if (status.numberReady or 0) < status.desiredNumberScheduled:
        raise CheckFailed(f"{status.numberReady} of {status.desiredNumberScheduled} pods are ready")
    return f"{status.numberReady} pod(s) ready"


def _pyroscope_namespace(live: Live) -> str:
    return str(live.outputs.get("pyroscopeNamespace", GADGET_NAMESPACE))


def _pods_ready(live: Live, namespace: str, labels: dict[str, str]) -> str:
    pods = list(live.kubernetes.list(Pod, namespace=namespace, labels=dict(labels)))
    shown = ",".join(f"{key}={value}" for key, value in labels.items())
    if not pods:
        raise CheckFailed(f"no pod in {namespace} has {shown}")
    for pod in pods:
        if not is_ready(pod):
            raise CheckFailed(
                f"pod {pod.metadata and pod.metadata.name} is {pod.status and pod.status.phase}"
            )
    return f"{len(pods)} pod(s) ready"

# SPDX-License-Identifier: Apache-2.0
"""The checks of Azure's published GPU profiling procedure, in its order, and those of gpuheap's own agent.

https://learn.microsoft.com/azure/aks/gpu-profiling tells what must be seen after each of its steps; where it
shows a command to type, the check asks the same question of the same API.
"""

from collections.abc import Iterable
from typing import Any, Final

from lightkube import ApiError
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Node, Pod, Service

from components.cluster import GPU_RESOURCE, GPU_TAINT_KEY

from .model import Check, CheckFailed, Live, Result

GADGET_NAMESPACE: Final = "gadget"

# The versions whose answers the checks were written against.
EXTENSION_API: Final = "2023-05-01"
PRIVATE_LINK_SERVICE_API: Final = "2024-05-01"
GRAFANA_API: Final = "2024-10-01"


def run(live: Live, checks: Iterable[Check]) -> list[Result]:
    """Make every check; one that fails never keeps the next from being made."""
    return [_run(live, check) for check in checks]


def _run(live: Live, check: Check) -> Result:
    try:
        return Result(check=check, passed=True, seen=check.look(live))
    except CheckFailed as failure:
        return Result(check=check, passed=False, seen=str(failure))
    except ApiError as error:
        return Result(check=check, passed=False, seen=f"Kubernetes API: {error}")


def _gpu_nodes(live: Live) -> str:
    tainted = [
        node
        for node in live.kubernetes.list(Node)
        if node.spec
        and any(t.key == GPU_TAINT_KEY and t.effect == "NoSchedule" for t in node.spec.taints or ())
    ]
    if not tainted:
        raise CheckFailed(f"no node has the taint {GPU_TAINT_KEY}:NoSchedule")
    gpus = 0
    for node in tainted:
        allocatable = (node.status and node.status.allocatable) or {}
        count = int(allocatable.get(GPU_RESOURCE, "0"))
        if count < 1:
            raise CheckFailed(
                f"node {node.metadata and node.metadata.name} has no allocatable {GPU_RESOURCE}"
            )
        gpus += count
    return f"{len(tainted)} tainted node(s), {gpus} allocatable GPU(s)"


def _extension(live: Live) -> str:
    extension = live.arm.get(live.output("inspektorGadgetExtensionId"), EXTENSION_API)
    state = _property(extension, "provisioningState")
    if state != "Succeeded":
        raise CheckFailed(f"provisioningState is {state}")
    settings = _property(extension, "configurationSettings") or {}
    if settings.get("gpuObservability.enabled") != "true":
        raise CheckFailed("gpuObservability.enabled is not true")
    return "Succeeded, gpuObservability enabled"


def _gadget_pods(live: Live) -> str:
    return _pods_ready(live, GADGET_NAMESPACE, {"k8s-app": "gadget"})


def _pyroscope(live: Live) -> str:
    return _pods_ready(live, GADGET_NAMESPACE, {"app.kubernetes.io/name": "pyroscope"})


def _pyroscope_service(live: Live) -> str:
    service = live.kubernetes.get(Service, "pyroscope", namespace=GADGET_NAMESPACE)
    ports = [port.port for port in (service.spec and service.spec.ports) or ()]
    if 4040 not in ports:
        raise CheckFailed(f"Service pyroscope has ports {ports}, not 4040")
    return "pyroscope:4040"


def _private_link_service(live: Live) -> str:
    service = live.arm.get(live.output("privateLinkServiceId"), PRIVATE_LINK_SERVICE_API)
    return f"{service['name']}: {_property(service, 'provisioningState')}"


def _private_endpoint(live: Live) -> str:
    endpoint = live.arm.get(live.output("managedPrivateEndpointId"), GRAFANA_API)
    status = (_property(endpoint, "connectionState") or {}).get("status")
    if status != "Approved":
        raise CheckFailed(f"the connection is {status}")
    return f"Approved, private address {_property(endpoint, 'privateLinkServicePrivateIP')}"


def _pyroscope_data_source(live: Live) -> str:
    source = live.grafana.get(f"datasources/uid/{live.output('pyroscopeDataSourceUid')}")
    if source.get("type") != "grafana-pyroscope-datasource":
        raise CheckFailed(f"its type is {source.get('type')}")
    if source.get("url") != live.output("pyroscopeUrl"):
        raise CheckFailed(f"its URL is {source.get('url')}, not {live.output('pyroscopeUrl')}")
    return f"{source['name']} -> {source['url']}"


def _prometheus_data_source(live: Live) -> str:
    source: dict[str, Any] = live.grafana.get(f"datasources/uid/{live.output('prometheusDataSourceUid')}")
    credentials = (source.get("jsonData") or {}).get("azureCredentials") or {}
    if credentials.get("authType") != "msi":
        raise CheckFailed("it does not authenticate with the managed identity")
    return f"{source['name']} -> {source['url']}"


def _dashboard(live: Live) -> str:
    url = live.output("dashboardUrl")
    uid = url.rstrip("/").split("/d/")[1].split("/")[0]
    dashboard: dict[str, Any] = live.grafana.get(f"dashboards/uid/{uid}")
    return f"{dashboard['dashboard']['title']}: {url}"


def _agent(live: Live) -> str:
    namespace, name = live.output("agentDaemonSet").split("/")
    status = live.kubernetes.get(DaemonSet, name, namespace=namespace).status
    if not status or status.desiredNumberScheduled < 1:
        raise CheckFailed("it is scheduled on no node")
    if (status.numberReady or 0) < status.desiredNumberScheduled:
        raise CheckFailed(f"{status.numberReady} of {status.desiredNumberScheduled} pods are ready")
    return f"{status.numberReady} pod(s) ready"


def _pods_ready(live: Live, namespace: str, labels: dict[str, str]) -> str:
    pods = list(live.kubernetes.list(Pod, namespace=namespace, labels=dict(labels)))
    shown = ",".join(f"{key}={value}" for key, value in labels.items())
    if not pods:
        raise CheckFailed(f"no pod in {namespace} has {shown}")
    for pod in pods:
        conditions = {c.type: c.status for c in (pod.status and pod.status.conditions) or ()}
        if conditions.get("Ready") != "True":
            raise CheckFailed(
                f"pod {pod.metadata and pod.metadata.name} is {pod.status and pod.status.phase}"
            )
    return f"{len(pods)} pod(s) ready"


def _property(resource: dict[str, Any], name: str) -> Any:
    return (resource.get("properties") or {}).get(name)


CHECKS: Final = (
    Check(
        step="Prerequisites",
        title="GPU nodes are tainted and offer their GPUs",
        look=_gpu_nodes,
        remedy="kubectl describe nodes -l kubernetes.azure.com/accelerator=nvidia; is the device plugin running?",
    ),
    Check(
        step="1 Extension",
        title="Inspektor Gadget extension is installed",
        look=_extension,
        remedy="az k8s-extension show -n inspektor-gadget …: its `statuses` tell; then `pulumi up`",
    ),
    Check(
        step="1 Extension",
        title="Inspektor Gadget pods run",
        look=_gadget_pods,
        remedy="kubectl get pods -n gadget -l k8s-app=gadget; kubectl describe the one that is not ready",
    ),
    Check(
        step="2 Pyroscope",
        title="Pyroscope runs",
        look=_pyroscope,
        remedy="kubectl logs -n gadget pyroscope-0; helm status pyroscope -n gadget",
    ),
    Check(
        step="2 Pyroscope",
        title="Pyroscope answers to its name in the cluster",
        look=_pyroscope_service,
        remedy="the chart's Service must be called pyroscope: see helm-values/pyroscope.yaml",
    ),
    Check(
        step="3 Private Link",
        title="Private Link Service exists",
        look=_private_link_service,
        remedy="kubectl describe the LoadBalancer Service in namespace gadget: the cloud controller reports there",
    ),
    Check(
        step="3 Private Link",
        title="Grafana's private endpoint is approved",
        look=_private_endpoint,
        remedy="pulumi refresh, then pulumi up: the approval is made again",
    ),
    Check(
        step="3 Private Link",
        title="Pyroscope data source has the endpoint's URL",
        look=_pyroscope_data_source,
        remedy="pulumi refresh, then pulumi up",
    ),
    Check(
        step="4 Prometheus",
        title="Prometheus data source uses the managed identity",
        look=_prometheus_data_source,
        remedy="pulumi refresh, then pulumi up; Grafana's identity needs Monitoring Data Reader",
    ),
    Check(
        step="5 Dashboard",
        title="Dashboard is there",
        look=_dashboard,
        remedy="pulumi refresh, then pulumi up",
    ),
    Check(
        step="gpuheap",
        title="Agent runs on every GPU node",
        look=_agent,
        remedy="kubectl logs -n gpuheap ds/gpuheap-agent; its first lines say what it lacks",
    ),
)

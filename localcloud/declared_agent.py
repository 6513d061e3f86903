# SPDX-License-Identifier: Apache-2.0
"""Runs the agent beside the cluster, exactly as a DaemonSet in it declares: arguments, environment, host names.

On a GPU node the kubelet does this. Here no container runs, so the command is started on this machine with what the
API server holds: nothing of the declaration is repeated, and what is not declared is not set. Cluster DNS is played
by a hosts file of the process's own.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

import httpx
from lightkube import Client
from lightkube.models.core_v1 import Container, EnvVar
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Pod, Service

STOP_SECONDS: Final = 20
READY_SECONDS: Final = 30

# /etc/hosts can be replaced for one process only in a mount namespace of its own.
_IN_NAMESPACE: Final = 'mount --bind "$0" /etc/hosts && exec "$@"'


class NotDeclared(Exception):
    """The DaemonSet cannot be run here; the text says what it lacks or uses that is not understood."""


class NotReady(Exception):
    """The agent did not become ready; the text says how far it came."""


@contextmanager
def running(
    kubernetes: Client, daemon_set: str, hosts: Mapping[str, str], log: IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """The one container of `daemon_set` ("namespace/name") as a process of this machine, ended with the context.

    `hosts` maps the address of each Service that must be reached, by "namespace/name". Needs root. Raises NotDeclared.
    """
    namespace, name = daemon_set.split("/")
    spec = kubernetes.get(DaemonSet, name, namespace=namespace).spec
    pod = _pod_of(kubernetes, namespace, name)
    if not spec or not spec.template.spec or len(spec.template.spec.containers) != 1:
        raise NotDeclared(f"DaemonSet {daemon_set} must have one container")
    container = spec.template.spec.containers[0]
    with tempfile.NamedTemporaryFile("w", prefix="hosts-") as file:
        file.write(_hosts_file(kubernetes, hosts))
        file.flush()
        isolated = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _IN_NAMESPACE, file.name]
        process = subprocess.Popen(
            [*isolated, *_command(container)],
            env=_environment(container, pod),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_ready(container, process)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(container: Container, process: subprocess.Popen[bytes]) -> None:
    """By the readiness probe that the DaemonSet declares, as the kubelet would."""
    probe = container.readinessProbe and container.readinessProbe.httpGet
    if not probe:
        raise NotDeclared(f"container {container.name} has no readiness probe over HTTP")
    ports = {port.name: port.containerPort for port in container.ports or ()}
    url = f"http://127.0.0.1:{ports.get(str(probe.port), probe.port)}{probe.path or '/'}"
    end = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with suppress(httpx.TransportError):
            if httpx.get(url, timeout=1).status_code == httpx.codes.OK:
                return
        time.sleep(0.1)
    state = "runs" if process.poll() is None else f"ended with {process.returncode}"
    raise NotReady(f"{url} did not answer with 200 in {READY_SECONDS} s; the agent {state}")


def _pod_of(kubernetes: Client, namespace: str, name: str) -> Pod:
    for pod in kubernetes.list(Pod, namespace=namespace):
        owners = (pod.metadata and pod.metadata.ownerReferences) or ()
        if any(owner.kind == "DaemonSet" and owner.name == name for owner in owners):
            return pod
    raise NotDeclared(
        f"DaemonSet {namespace}/{name} has no pod: no node has its labels, or its taints are not tolerated"
    )


def _command(container: Container) -> list[str]:
    """The image's entry point is `gpuheap`; here it is the one of this checkout's environment."""
    if container.command:
        raise NotDeclared(f"container {container.name} replaces the image's entry point: {container.command}")
    return [str(Path(sys.executable).with_name("gpuheap")), *(container.args or ())]


def _environment(container: Container, pod: Pod) -> dict[str, str]:
    declared = {variable.name: _value(variable, pod) for variable in container.env or ()}
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **declared}


def _value(variable: EnvVar, pod: Pod) -> str:
    source = variable.valueFrom
    if source is None:
        return variable.value or ""
    path = source.fieldRef.fieldPath if source.fieldRef else None
    if path == "spec.nodeName" and pod.spec and pod.spec.nodeName:
        return pod.spec.nodeName
    raise NotDeclared(
        f"environment variable {variable.name} comes from {path or 'a source'} that is not understood here"
    )


def _hosts_file(kubernetes: Client, hosts: Mapping[str, str]) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for service, address in hosts.items():
        namespace, name = service.split("/")
        kubernetes.get(Service, name, namespace=namespace)  # only what the cluster has gets a name
        names = (f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local")
        lines.append(f"{urlsplit(address).hostname} {' '.join(names)}")
    return "\n".join(lines) + "\n"

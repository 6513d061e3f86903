# SPDX-License-Identifier: Apache-2.0
"""The one process behind a local cloud: starts every part, says where they are, takes them down with it."""

import hashlib
import logging
import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from localcloud.azure import server
from localcloud.azure.store import Store
from localcloud.cloud import PROGRESS, Endpoints, supervisor_lock
from localcloud.kube.cloud_controller import CloudController
from localcloud.kube.component import ComponentFailed
from localcloud.kube.control_plane import ControlPlane
from localcloud.kube.gateway import Gateway
from localcloud.kube.karpenter import Karpenter
from localcloud.kube.kubelet import Kubelet
from localcloud.kube.watching import client
from localcloud.toolchain import resolve

CHECK_SECONDS: Final = 0.5
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_log = logging.getLogger(__name__)


def serve(state: Path) -> None:
    """Run the cloud of `state` until a signal ends it.

    Raises CloudFailed if it runs already, ComponentFailed if a part of it ends.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line for every request
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in SIGNALS:
        signal.signal(number, _end)
    with ExitStack() as stack:
        stack.enter_context(supervisor_lock(state))
        control_plane = _start(state, stack)
        _progress("ready")
        while True:
            try:
                control_plane.check()
            except ComponentFailed:
                _log.exception("the local cloud ends")
                raise
            time.sleep(CHECK_SECONDS)


def _start(state: Path, stack: ExitStack) -> ControlPlane:
    _forget(state)
    control_plane = ControlPlane(resolve().control_plane, state)
    stack.callback(control_plane.stop)
    control_plane.start(_progress)
    store = Store(state / "store.db")
    stack.callback(store.close)
    for loop in (
        Kubelet(client(control_plane.kubeconfig)),
        CloudController(client(control_plane.kubeconfig), store),
        Karpenter(client(control_plane.kubeconfig), store),
    ):
        loop.start()
        stack.callback(loop.stop)
    _progress("Azure Resource Manager, identity, Grafana, Pyroscope")
    https = control_plane.authority.issue(state, "https")
    servers = server.serve(
        store,
        tls_certificate=https.certificate,
        tls_key=https.key,
        kubernetes=Gateway(control_plane.url, control_plane.authority.certificate_path),
        pyroscope_address=pyroscope_address(state),
    )
    stack.callback(servers.stop)
    cloud_file = state / "cloud.json"
    stack.callback(cloud_file.unlink, missing_ok=True)
    Endpoints(
        kubeconfig=control_plane.kubeconfig,
        ca=control_plane.authority.certificate_path,
        arm=servers.arm,
        identity=servers.identity,
        identity_header=servers.identity_header,
        pyroscope=servers.pyroscope,
        supervisor_pid=os.getpid(),
    ).write(cloud_file)
    return control_plane


def pyroscope_address(state: Path) -> str:
    """An address of the loopback network for this state folder alone: the port is fixed, as in a cluster."""
    second, third, fourth = hashlib.sha256(str(state.resolve()).encode()).digest()[:3]
    return f"127.{second % 254 + 1}.{third}.{fourth % 254 + 1}"


def _forget(state: Path) -> None:
    """Remove what describes the cluster of an earlier run, which is gone."""
    for path in state.glob("store.db*"):
        path.unlink()
    shutil.rmtree(state / "pulumi-state", ignore_errors=True)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # what is being taken down is taken down to the end
    raise SystemExit(0)


def _progress(text: str) -> None:
    print(f"{PROGRESS}{text}", flush=True)

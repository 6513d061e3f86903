# SPDX-License-Identifier: Apache-2.0
"""`gpuheap agent` as the DaemonSet starts it: what it pushes and serves is held against what a real process did."""

import base64
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from gpuheap.profile.decode import decode
from gpuheap.profile.model import Profile
from tests.agent.cli.command import start
from tests.agent.cli.conftest import ALLOCATED, IN_USE
from tests.agent.cli.test_record import sums
from tests.agent.node.push_stub import PushStub
from tests.standin.build import StandIn
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.bpf


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def profiles_of(stub: PushStub, pid: int) -> list[Profile]:
    series = [one for got in stub.got for one in got.body["series"]]
    return [
        decode(base64.b64decode(sample["rawProfile"]), name="pushed")
        for one in series
        if {"name": "pid", "value": str(pid)} in one["labels"]
        for sample in one["samples"]
    ]


def answers(url: str) -> bool:
    try:
        return urllib3.request("GET", url, retries=False, timeout=5).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def test_what_is_pushed_and_scraped_is_what_the_program_did(
    standin: StandIn, program: Path, tmp_path: Path
) -> None:
    port = free_port()
    with PushStub() as stub:
        settings = {
            "GPUHEAP_PYROSCOPE_URL": stub.url,
            "GPUHEAP_INTERVAL_SECONDS": "1",
            "GPUHEAP_METRICS_ADDRESS": f"127.0.0.1:{port}",
            "GPUHEAP_NODE": "aks-gpu-0",
            "GPUHEAP_CLUSTER": "test",
        }
        environment = {**settings, **standin.environment()}
        with start("agent", folder=tmp_path, environment=environment) as agent:
            wait_for("readiness", lambda: answers(f"http://127.0.0.1:{port}/readyz"))
            target = subprocess.Popen(
                [sys.executable, program, "wait"],
                env={**os.environ, **standin.environment()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert target.stdout and target.stdout.readline() == "ready\n"
            wait_for("its profile", lambda: any(sums(p)[2:] == IN_USE for p in profiles_of(stub, target.pid)))
            in_use = scraped(port, target.pid)
            target.communicate(timeout=DEADLINE_SECONDS)
            before_the_end = len(profiles_of(stub, target.pid))
            agent.send_signal(signal.SIGTERM)
            _, log = agent.communicate(timeout=DEADLINE_SECONDS)
    assert agent.returncode == 0, log
    profiles = profiles_of(stub, target.pid)
    assert tuple(map(sum, zip(*(sums(p)[:2] for p in profiles), strict=True))) == ALLOCATED, (
        "each interval once"
    )
    assert all(p.time_unix_ns % 1_000_000_000 == 0 for p in profiles[:before_the_end]), "on the grid"
    assert in_use == {
        "gpuheap_memory_in_use_bytes": IN_USE[1],
        "gpuheap_memory_allocated_bytes_total": ALLOCATED[1],
    }
    assert "event=stopped" in log and "event=push " not in log


def scraped(port: int, pid: int) -> dict[str, float]:
    text = urllib3.request("GET", f"http://127.0.0.1:{port}/metrics").data.decode()
    wanted = {"gpuheap_memory_in_use_bytes", "gpuheap_memory_allocated_bytes_total"}
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in wanted and sample.labels["pid"] == str(pid)
    }


def test_an_agent_without_work_ends_at_once_when_told(tmp_path: Path) -> None:
    port = free_port()
    with start("agent", "--metrics-address", f"127.0.0.1:{port}", folder=tmp_path) as agent:
        wait_for("health", lambda: answers(f"http://127.0.0.1:{port}/healthz"))
        began = time.monotonic()
        agent.send_signal(signal.SIGTERM)
        _, log = agent.communicate(timeout=DEADLINE_SECONDS)
    assert agent.returncode == 0
    assert time.monotonic() - began < 10, "Kubernetes gives 30 s"
    assert "push=off" in log

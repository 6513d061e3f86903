# SPDX-License-Identifier: Apache-2.0
"""The plugin as a process: how the engine starts it and ends it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import provider_pb2_grpc

from tests.waiting import DEADLINE_SECONDS

COMMAND = [sys.executable, "-m", "localcloud.azure.native"]


def test_it_says_its_port_serves_and_ends_when_it_is_told(state: Path) -> None:
    environment = {**os.environ, "GPUHEAP_LOCALCLOUD": str(state)}
    with subprocess.Popen(COMMAND, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            provider = provider_pb2_grpc.ResourceProviderStub(channel)
            assert provider.GetPluginInfo(Empty(), timeout=DEADLINE_SECONDS).version == "3.29.0"
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 0
    assert (state / "store.db").exists()


def test_outside_of_a_local_cloud_it_says_what_to_do() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "GPUHEAP_LOCALCLOUD"}
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert done.returncode == 1 and "python -m localcloud" in done.stderr

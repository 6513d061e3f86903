# SPDX-License-Identifier: Apache-2.0
"""RunPlugin: how the language host runs policy packs and providers that are written in Python."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import language_pb2 as pb
from pulumi.runtime.proto import language_pb2_grpc

from localcloud.plugin.language.host import LanguageHost
from localcloud.plugin.language.processes import Processes
from tests.waiting import wait_for

SAYS_WHAT_IT_GOT = """
import os, sys
print("arguments", sys.argv[1:])
print("folder", os.getcwd())
print("variable", os.environ.get("GIVEN"))
print("complaint", file=sys.stderr)
sys.exit(5)
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[language_pb2_grpc.LanguageRuntimeStub]:
    server = grpc.server(ThreadPoolExecutor())
    servicer = LanguageHost(
        engine="127.0.0.1:1", executor=tmp_path / "unused", version="1.2.3", processes=Processes()
    )
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield language_pb2_grpc.LanguageRuntimeStub(channel)
    server.stop(grace=None).wait()


@pytest.fixture(autouse=True)
def this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_PYTHON_CMD", sys.executable)


def _request(folder: Path, program: str, *, kind: str, arguments: list[str]) -> pb.RunPluginRequest:
    (folder / "__main__.py").write_text(program)
    info = pb.ProgramInfo(root_directory=str(folder), program_directory=str(folder), entry_point=".")
    return pb.RunPluginRequest(
        pwd=str(folder),
        args=arguments,
        # The engine's own PATH and the rest come in the request.
        env=["GIVEN=a=b", f"PATH={os.environ['PATH']}"],
        kind=kind,
        info=info,
    )


def _collect(answers: Iterator[pb.RunPluginResponse]) -> tuple[str, str, int]:
    out, err, code = b"", b"", -1
    for answer in answers:
        out, err = out + answer.stdout, err + answer.stderr
        if answer.HasField("exitcode"):
            code = answer.exitcode
    return out.decode(), err.decode(), code


def test_a_provider_gets_its_arguments_folder_and_variables_and_its_output_comes_back(
    host: language_pb2_grpc.LanguageRuntimeStub, tmp_path: Path
) -> None:
    request = _request(tmp_path, SAYS_WHAT_IT_GOT, kind="resource", arguments=["127.0.0.1:9"])
    out, err, code = _collect(host.RunPlugin(request))
    assert out == f"arguments ['127.0.0.1:9']\nfolder {tmp_path}\nvariable a=b\n"
    assert (err, code) == ("complaint\n", 5)


def test_a_policy_pack_is_run_by_the_sdks_runner(
    host: language_pb2_grpc.LanguageRuntimeStub, tmp_path: Path
) -> None:
    program = "import sys\nprint('the pack runs; its runner got', sys.argv[1:])\n"
    request = _request(tmp_path, program, kind="analyzer", arguments=["127.0.0.1:9", "more"])
    out, err, code = _collect(host.RunPlugin(request))
    assert out == f"the pack runs; its runner got ['127.0.0.1:9', '{tmp_path}', 'more']\n", err
    assert code == 0


def test_cancelling_ends_what_runs(host: language_pb2_grpc.LanguageRuntimeStub, tmp_path: Path) -> None:
    program = "import os, threading\nos.write(1, b'started\\n')\nthreading.Event().wait()\n"
    answers = host.RunPlugin(_request(tmp_path, program, kind="resource", arguments=[]))
    assert next(answers).stdout == b"started\n"
    host.Cancel(Empty())
    *_, last = answers
    assert last.exitcode == -15


def test_a_call_that_the_engine_gives_up_ends_its_process(
    host: language_pb2_grpc.LanguageRuntimeStub, tmp_path: Path
) -> None:
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open('ended', 'w').close(), sys.exit()))\n"
        "os.write(1, b'started\\n')\nsignal.pause()\n"
    )
    answers = host.RunPlugin(_request(tmp_path, program, kind="resource", arguments=[]))
    assert next(answers).stdout == b"started\n"
    answers.cancel()
    wait_for("the end of the process", (tmp_path / "ended").exists)


def test_the_host_says_its_version(host: language_pb2_grpc.LanguageRuntimeStub) -> None:
    assert host.GetPluginInfo(Empty()).version == "1.2.3"

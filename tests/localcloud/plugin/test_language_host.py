# SPDX-License-Identifier: Apache-2.0
"""Our language host under the real engine: programs that work, fail, are interrupted, or lose their engine."""

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.localcloud.plugin.conftest import MakeProject, Project
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.engine

WITH_DYNAMIC_PROVIDER = """
import pulumi, widget

print("a line of the program")
config = pulumi.Config()
made = widget.Widget("made", size=config.require_int("size"))
pulumi.export("doubled", made.doubled)
pulumi.export("token", config.require_secret("token"))
"""

WIDGET = """
import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult


class Provider(ResourceProvider):
    serialize_as_secret_always = False

    def create(self, props):
        return CreateResult("id", {**props, "doubled": props["size"] * 2})

    def diff(self, id, olds, news):
        return DiffResult(changes=olds["size"] != news["size"])

    def update(self, id, olds, news):
        return UpdateResult({**news, "doubled": news["size"] * 2})


class Widget(Resource):
    doubled: pulumi.Output[int]

    def __init__(self, name, size):
        super().__init__(Provider(), name, {"size": size, "doubled": None})
"""

WAITS = """
import os, pathlib, threading

pathlib.Path("pid.new").write_text(str(os.getpid()))
pathlib.Path("pid.new").rename("pid")
threading.Event().wait()
"""


def test_a_program_with_a_dynamic_provider_lives_a_whole_life(make_project: MakeProject) -> None:
    project = make_project(WITH_DYNAMIC_PROVIDER, widget=WIDGET)
    project.succeed("config", "set", "size", "21")
    project.succeed("config", "set", "--secret", "token", "hush")

    up = project.succeed("up", "--yes", "--skip-preview")
    assert "a line of the program" in up
    assert "warning" not in up, "each command would show it"
    assert json.loads(project.succeed("stack", "output", "--json")) == {"doubled": 42, "token": "[secret]"}
    assert "hush" in project.succeed("stack", "output", "--json", "--show-secrets")

    project.succeed("preview", "--expect-no-changes")
    project.succeed("config", "set", "size", "4")
    project.succeed("up", "--yes", "--skip-preview")
    assert json.loads(project.succeed("stack", "output", "--json"))["doubled"] == 8
    project.succeed("destroy", "--yes", "--skip-preview")
    assert "resources" not in json.loads(project.succeed("stack", "export"))["deployment"]


def test_an_exception_is_shown_with_the_programs_own_line(make_project: MakeProject) -> None:
    code, printed = make_project("def fail():\n    raise ValueError('no good')\n\nfail()\n").run("preview")
    assert code != 0
    assert "line 2, in fail" in printed
    assert "ValueError: no good" in printed
    assert "runpy" not in printed, "frames of the machinery help nobody"


def test_a_program_that_ends_with_an_exit_code_fails_with_it(make_project: MakeProject) -> None:
    code, printed = make_project("import os\nos._exit(3)\n").run("preview")
    assert code != 0
    assert "the program ended with exit code 3" in printed


def test_a_missing_virtual_environment_is_named(make_project: MakeProject) -> None:
    project = make_project("", options={"virtualenv": "nowhere"})
    code, printed = project.run("preview")
    assert code != 0
    assert f"there is no {project.folder}/nowhere/bin/python" in printed


def test_install_makes_the_virtual_environment_that_the_project_names(make_project: MakeProject) -> None:
    project = make_project("", options={"virtualenv": "venv"})
    project.succeed("install")
    assert (project.folder / "venv" / "bin" / "python").exists()


def test_about_knows_the_python_and_what_is_installed(make_project: MakeProject) -> None:
    about = json.loads(make_project("").succeed("about", "--json"))
    assert about["runtime"] == {"language": "python", "executable": sys.executable, "version": _version()}
    assert {"name": "pulumi_kubernetes".replace("_", "-"), "version": "4.34.2"} in about["dependencies"]


def test_an_interrupt_ends_the_program(make_project: MakeProject) -> None:
    project = make_project(WAITS)
    with project.start("up", "--yes", "--skip-preview") as engine:
        program = _program_of(project)
        engine.send_signal(signal.SIGINT)
        printed, _ = engine.communicate(timeout=DEADLINE_SECONDS)
    assert engine.returncode != 0, printed
    wait_for("end of the program", lambda: not Path(f"/proc/{program}").exists())


def test_an_engine_that_is_killed_takes_host_and_program_with_it(make_project: MakeProject) -> None:
    project = make_project(WAITS)
    with project.start("up", "--yes", "--skip-preview") as engine:
        program = _program_of(project)
        host = _parent_of(program)
        assert _parent_of(host) == engine.pid
        engine.kill()
        wait_for("end of the program", lambda: not Path(f"/proc/{program}").exists())
        wait_for("end of the language host", lambda: not Path(f"/proc/{host}").exists())


def _version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _program_of(project: Project) -> int:
    """The process id of a running WAITS program."""
    file = project.folder / "pid"
    wait_for("the program", file.exists)
    return int(file.read_text())


def _parent_of(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])

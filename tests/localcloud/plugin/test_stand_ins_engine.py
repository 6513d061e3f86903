# SPDX-License-Identifier: Apache-2.0
"""The random and docker-build stand-ins under the real engine, through their official SDKs."""

import json

import pytest

from tests.localcloud.plugin.conftest import MakeProject

pytestmark = pytest.mark.engine

PROGRAM = """
import pulumi
import pulumi_docker_build as docker
import pulumi_random as random

suffix = random.RandomId("suffix", byte_length=4)
password = random.RandomPassword("password", length=16, keepers={"k": pulumi.Config().get("keeper") or "1"})
image = docker.Image(
    "image",
    tags=[suffix.hex.apply(lambda hex: f"registry.example.org/app:{hex}")],
    context=docker.BuildContextArgs(location="app"),
    platforms=[docker.Platform.LINUX_AMD64],
    build_on_preview=False,
    push=True,
)
pulumi.export("hex", suffix.hex)
pulumi.export("uuid", random.RandomUuid("uuid").result)
pulumi.export("text", random.RandomString("text", length=12, special=False).result)
pulumi.export("password", password.result)
pulumi.export("ref", image.ref)
"""


def test_values_stay_until_an_input_changes_and_an_image_changes_with_its_sources(
    make_project: MakeProject,
) -> None:
    project = make_project(PROGRAM)
    (project.folder / "app").mkdir()
    (project.folder / "app" / "Dockerfile").write_text("FROM scratch\n")

    plan = project.succeed("preview", "--diff")
    assert "[unknown]" in plan
    project.succeed("up", "--yes", "--skip-preview")
    first = json.loads(project.succeed("stack", "output", "--json", "--show-secrets"))
    assert first["ref"].startswith(f"registry.example.org/app:{first['hex']}@sha256:")
    assert json.loads(project.succeed("stack", "output", "--json"))["password"] == "[secret]"

    # Of the state after it, a plan of no change is one of the state before.
    project.succeed("refresh", "--yes", "--skip-preview", "--expect-no-changes")

    (project.folder / "app" / "more.py").touch()
    project.succeed("config", "set", "keeper", "2")
    changed = project.succeed("up", "--yes", "--skip-preview", "--diff")
    assert "~ 1 updated" in changed
    assert "contextHash" in changed
    second = json.loads(project.succeed("stack", "output", "--json", "--show-secrets"))
    same = {name for name in first if first[name] == second[name]}
    assert same == {"hex", "uuid", "text"}, "only what depends on the change is made anew"

    project.succeed("destroy", "--yes", "--skip-preview")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("byte_length='many'", "must be of type integer, not 'many'"),
        ("byte_length=2, opts=pulumi.ResourceOptions(import_='x')", "cannot be imported here"),
    ],
)
def test_a_bad_input_fails_the_preview_with_its_reason(
    make_project: MakeProject, arguments: str, says: str
) -> None:
    program = f"import pulumi, pulumi_random\npulumi_random.RandomId('id', {arguments})\n"
    code, printed = make_project(program).run("preview")
    assert code != 0
    assert says in printed


def test_a_type_that_the_stand_in_does_not_have_names_the_official_provider(
    make_project: MakeProject,
) -> None:
    program = "import pulumi_random\npulumi_random.RandomPet('pet')\n"
    code, printed = make_project(program).run("preview")
    assert code != 0
    assert "pulumi plugin install resource random" in printed

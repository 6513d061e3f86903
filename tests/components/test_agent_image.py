# SPDX-License-Identifier: Apache-2.0
"""The tag of a built image follows from its sources, and from nothing else."""

from pathlib import Path

import pytest

from components.agent_image import CHECKOUT, SOURCES, source_files, source_tag
from components.roles import ACR_PULL
from localcloud.plugin.build_context import files, ignore_rules
from tests.components.conftest import EXISTING, run_program


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in {
        "agent/Dockerfile": "FROM scratch\n",
        "agent/gpuheap/__init__.py": "",
        "bpf/gpuheap.bpf.c": "int x;\n",
        "README.md": "hello\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_same_sources_give_the_same_tag(checkout: Path) -> None:
    before = source_tag(checkout)
    (checkout / "agent/Dockerfile").touch()
    assert source_tag(checkout) == before


@pytest.mark.parametrize(
    "file", ["agent/Dockerfile", "agent/gpuheap/__init__.py", "bpf/gpuheap.bpf.c", "agent/new"]
)
def test_a_changed_or_new_source_gives_another_tag(checkout: Path, file: str) -> None:
    before = source_tag(checkout)
    (checkout / file).write_text("changed\n")
    assert source_tag(checkout) != before


def test_a_renamed_source_gives_another_tag(checkout: Path) -> None:
    before = source_tag(checkout)
    (checkout / "bpf/gpuheap.bpf.c").rename(checkout / "bpf/other.bpf.c")
    assert source_tag(checkout) != before


@pytest.mark.parametrize(
    "file",
    [
        "README.md",
        "agent/gpuheap/__pycache__/x.pyc",
        "agent/gpuheap/tracer/gpuheap.bpf.o",
        "agent/web/node_modules/d3.js",
    ],
)
def test_what_is_no_source_changes_nothing(checkout: Path, file: str) -> None:
    before = source_tag(checkout)
    (checkout / file).parent.mkdir(parents=True, exist_ok=True)
    (checkout / file).write_text("changed\n")
    assert source_tag(checkout) == before


def test_the_tag_follows_from_what_the_build_gets() -> None:
    hashed = {file.relative_to(CHECKOUT) for file in source_files(CHECKOUT, SOURCES)}
    assert hashed - {Path(".dockerignore")} == set(files(CHECKOUT, ignore_rules(CHECKOUT, None)))


def test_nodes_may_pull_from_the_registry_that_is_named() -> None:
    registry = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerRegistry/registries/example"
    build = {"build": {"registry": "example.azurecr.io", "registryId": registry}}
    stack = run_program(EXISTING | {"gpuheap:agent": build})
    role = stack["agent-image-pull"].inputs
    assert role["roleDefinitionId"].endswith(f"/{ACR_PULL}")
    assert (role["principalId"], role["scope"]) == ("existing-kubelet", registry)
    assert "agent-image-pull" in stack.outlived_by("profiler-agent")

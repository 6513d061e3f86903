# SPDX-License-Identifier: Apache-2.0
"""The table of the published procedure names resources that a stack declares, and tests that there are."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.components.conftest import run_program

CHECKOUT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = CHECKOUT / "docs" / "procedure.md"
ROW: Final = re.compile(r"^\| (?!step \|)(?!---)(.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
CODE: Final = re.compile(r"`([^`]+)`")
TEST: Final = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")
# What the page's placeholders stand for in that stack.
NAMED: Final = {"<pool>": "share", "<workspace>": "gpu-training"}


def rows() -> list[tuple[str, str, str]]:
    return ROW.findall(PAGE.read_text())


@cache
def _tests_in(file: str) -> frozenset[str]:
    tree = ast.parse((CHECKOUT / file).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.fixture(scope="module")
def declared() -> set[str]:
    """The names of all resources of the stack that the page speaks of."""
    config = yaml.safe_load((CHECKOUT / "Pulumi.staging.yaml").read_text())["config"]
    return set(run_program(config).resources)


def test_the_page_has_every_step_of_the_procedure() -> None:
    headings = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    assert [heading for heading in headings if heading.startswith("Step")] == [
        "Step 1: the Inspektor Gadget extension",
        "Step 2: Pyroscope",
        "Step 3: Private Link to Grafana",
        "Step 4: Prometheus",
        "Step 5: dashboards",
    ]
    assert len(rows()) > 25


def test_every_step_is_shown_by_tests_that_there_are() -> None:
    unproven = [step for step, _, shown in rows() if not TEST.findall(shown)]
    assert unproven == []
    named = [each for _, _, shown in rows() for each in TEST.findall(shown)]
    assert [f"{file}::{name}" for file, name in named if name not in _tests_in(file)] == []


def test_every_resource_is_one_that_a_stack_declares(declared: set[str]) -> None:
    for step, resources, _ in rows():
        for name in CODE.findall(resources):
            if name[0].isupper() or name in ("dashboardUrl", "pulumi"):
                continue
            assert _spelled_out(name) in declared, f"{step}: no resource is called {name}"


def _spelled_out(name: str) -> str:
    for placeholder, value in NAMED.items():
        name = name.replace(placeholder, value)
    return name

# SPDX-License-Identifier: Apache-2.0
"""What holds for the repository as a whole: nothing forgotten, nothing of one machine, nothing that points nowhere."""

import ast
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

CHECKOUT: Final = Path(__file__).resolve().parent.parent
SPDX: Final = {
    ".py": "SPDX-License-Identifier: Apache-2.0",
    ".c": "SPDX-License-Identifier: ",
    ".h": "SPDX-License-Identifier: ",
}
BPF_LICENCE: Final = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
HOME_FOLDER: Final = re.compile(r"(?<![\w.$])/(root|home/\w+|Users/\w+)/")
GENERATED: Final = (".json", ".sum", ".mod")
MAKE: Final = re.compile(r"`make ([a-z]+)|^make ([a-z]+)", re.MULTILINE)
LINK: Final = re.compile(r"\[[^]]*\]\((?!https?:|#|mailto:)([^)#\s]+)")


def _tracked() -> list[Path]:
    """Files of the checkout that are, or would be, in git."""
    # A checkout may belong to another user than the one who tests it.
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]
    names = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    paths = [CHECKOUT / name for name in names.split("\0") if name]
    return [path for path in paths if path.is_file()]


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    return _tracked()


@pytest.fixture(scope="module")
def documents(tracked: list[Path]) -> list[Path]:
    return [path for path in tracked if path.suffix == ".md"]


def _targets() -> set[str]:
    makefile = (CHECKOUT / "Makefile").read_text()
    declared = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert declared
    return set(declared[1].split())


def test_every_file_with_tests_is_collected(tracked: list[Path]) -> None:
    forgotten = [
        str(path.relative_to(CHECKOUT))
        for path in tracked
        if path.suffix == ".py" and _has_tests(path) and not _is_collected(path)
    ]
    assert forgotten == [], "pytest takes test_*.py below tests/ only"


def _has_tests(path: Path) -> bool:
    names = (node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
    return any(name.startswith("test_") for name in names)


def _is_collected(path: Path) -> bool:
    return path.is_relative_to(CHECKOUT / "tests") and path.name.startswith("test_")


def test_every_test_file_holds_a_test(tracked: list[Path]) -> None:
    files = [path for path in tracked if path.suffix == ".py" and _is_collected(path)]
    empty = [
        path.name for path in files if not re.search(r"^ *(async )?def test_", path.read_text(), re.MULTILINE)
    ]
    assert files
    assert empty == []


def test_no_two_tests_of_a_file_have_one_name(tracked: list[Path]) -> None:
    for path in tracked:
        if path.suffix == ".py":
            functions = [
                node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
            ]
            assert len(functions) == len(set(functions)), f"{path}: the later one hides the earlier one"


def test_sources_begin_with_their_licence(tracked: list[Path]) -> None:
    wrong = []
    for path in tracked:
        wanted = SPDX.get(path.suffix)
        if path.is_relative_to(CHECKOUT / "bpf"):
            wanted = BPF_LICENCE
        content = path.read_text() if wanted else ""
        if content and str(wanted) not in "\n".join(content.splitlines()[:2]):
            wrong.append(str(path.relative_to(CHECKOUT)))
    assert wrong == []


def test_nothing_names_a_folder_of_one_machine(tracked: list[Path]) -> None:
    found = []
    for path in tracked:
        if path.suffix in GENERATED or path == Path(__file__):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if str(CHECKOUT) in text or HOME_FOLDER.search(text):
            found.append(str(path.relative_to(CHECKOUT)))
    assert found == []


def test_nothing_fetched_or_built_is_committed(tracked: list[Path]) -> None:
    built = {".o", ".so", ".pyc", ".whl", ".gz", ".tgz", ".zip"}
    assert [str(path) for path in tracked if path.suffix in built or "node_modules" in path.parts] == []


def test_links_between_documents_lead_somewhere(documents: list[Path]) -> None:
    broken = [
        f"{document.relative_to(CHECKOUT)}: {target}"
        for document in documents
        for target in LINK.findall(document.read_text())
        if not (document.parent / target).exists()
    ]
    assert broken == []


def test_the_folders_that_the_documents_name_exist(documents: list[Path]) -> None:
    """A name in backquotes that ends with a slash is a folder of the checkout, or beside the document."""
    made = (CHECKOUT / ".gitignore").read_text().splitlines()
    missing = [
        f"{document.relative_to(CHECKOUT)}: {name}"
        for document in documents
        for name in re.findall(r"`([\w.-]+(?:/[\w.-]+)*/)`", document.read_text())
        if name not in made and not (CHECKOUT / name).is_dir() and not (document.parent / name).is_dir()
    ]
    assert missing == []


def test_the_targets_that_the_documents_name_exist(documents: list[Path]) -> None:
    named = {one or other for path in documents for one, other in MAKE.findall(path.read_text())}
    assert named, "the documents say what to run"
    assert named <= _targets()


def test_make_lists_every_target() -> None:
    printed = subprocess.run(["make"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in printed.splitlines()} == _targets()


@pytest.mark.parametrize(
    "name",
    [
        "requirements.txt",
        "requirements-dev.txt",
        "tests/torch/requirements.txt",
        "tests/torch/requirements-headers.txt",
    ],
)
def test_requirements_are_pinned(name: str) -> None:
    lines = (CHECKOUT / name).read_text().splitlines()
    requirements = [line for line in lines if line and not line.startswith("#")]
    assert requirements
    assert [line for line in requirements if not re.fullmatch(r"[\w.-]+==\S+( # .+)?", line)] == []


def test_ci_runs_what_contributors_run() -> None:
    assert "make test" in (CHECKOUT / ".ci" / "run").read_text()
    workflow = (CHECKOUT / ".github" / "workflows" / "test.yml").read_text()
    assert ".ci/run" in workflow
    actions = re.findall(r"uses: (\S+)", workflow)
    assert actions
    assert all(re.search(r"@[0-9a-f]{40}$", action) for action in actions), "a tag can be moved"

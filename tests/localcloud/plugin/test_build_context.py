# SPDX-License-Identifier: Apache-2.0
"""The build context: what .dockerignore lets through, by the examples of Docker's documentation."""

from pathlib import Path

import pytest

from localcloud.plugin.build_context import context_hash, files, rules


def _tree(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def _kept(root: Path, ignore: str) -> set[str]:
    return {path.as_posix() for path in files(root, rules(ignore))}


@pytest.mark.parametrize(
    ("ignore", "kept"),
    [
        # https://docs.docker.com/build/concepts/context/#matching
        ("# comment\n\n*/temp*", {"a.md", "temp1", "sub/b.md", "sub/deep/temp2", "sub/deep/c.go"}),
        ("*/*/temp*", {"a.md", "temp1", "sub/temp", "sub/b.md", "sub/deep/c.go"}),
        ("temp?", {"a.md", "sub/temp", "sub/b.md", "sub/deep/temp2", "sub/deep/c.go"}),
        ("**/*.go", {"a.md", "temp1", "sub/temp", "sub/b.md", "sub/deep/temp2"}),
        ("/sub/", {"a.md", "temp1"}),
        # https://docs.docker.com/build/concepts/context/#negating-matches
        ("**/*.md\n!a.md", {"a.md", "temp1", "sub/temp", "sub/deep/temp2", "sub/deep/c.go"}),
        ("*\n!sub/deep", {"sub/deep/temp2", "sub/deep/c.go"}),
        ("!sub/b.md\nsub", {"a.md", "temp1"}),
        ("*\n!**/*.go", {"sub/deep/c.go"}),
        ("sub/[a-b].md", {"a.md", "temp1", "sub/temp", "sub/deep/temp2", "sub/deep/c.go"}),
    ],
)
def test_patterns_mean_what_dockers_documentation_says(tmp_path: Path, ignore: str, kept: set[str]) -> None:
    _tree(tmp_path, "a.md", "temp1", "sub/temp", "sub/b.md", "sub/deep/temp2", "sub/deep/c.go")
    assert _kept(tmp_path, ignore) == kept


def test_an_ignored_file_does_not_change_the_hash(tmp_path: Path) -> None:
    _tree(tmp_path, "Dockerfile", "app.py", "notes.txt")
    (tmp_path / ".dockerignore").write_text("*.txt")
    before = context_hash(tmp_path, tmp_path / "Dockerfile")
    (tmp_path / "notes.txt").write_text("changed")
    assert context_hash(tmp_path, tmp_path / "Dockerfile") == before


def test_content_name_mode_and_dockerfile_each_change_the_hash(tmp_path: Path) -> None:
    _tree(tmp_path, "Dockerfile", "app.py")
    (tmp_path / ".dockerignore").write_text("Dockerfile")
    hashes = [context_hash(tmp_path, tmp_path / "Dockerfile")]
    (tmp_path / "app.py").write_text("changed")
    hashes.append(context_hash(tmp_path, tmp_path / "Dockerfile"))
    (tmp_path / "app.py").rename(tmp_path / "main.py")
    hashes.append(context_hash(tmp_path, tmp_path / "Dockerfile"))
    (tmp_path / "main.py").chmod(0o755)
    hashes.append(context_hash(tmp_path, tmp_path / "Dockerfile"))
    (tmp_path / "Dockerfile").write_text("FROM scratch")
    hashes.append(context_hash(tmp_path, tmp_path / "Dockerfile"))
    assert len(set(hashes)) == 5, "a Dockerfile counts even where the context leaves it out"


def test_the_dockerfiles_own_ignore_file_goes_first(tmp_path: Path) -> None:
    _tree(tmp_path, "Dockerfile", "a.txt", "b.txt")
    (tmp_path / ".dockerignore").write_text("a.txt")
    (tmp_path / "Dockerfile.dockerignore").write_text("b.txt")
    before = context_hash(tmp_path, tmp_path / "Dockerfile")
    (tmp_path / "b.txt").write_text("changed")
    assert context_hash(tmp_path, tmp_path / "Dockerfile") == before


def test_where_the_context_lies_does_not_matter(tmp_path: Path) -> None:
    one, other = (_tree(tmp_path / name, "Dockerfile", "sub/app.py") for name in ("one", "other"))
    assert context_hash(one, one / "Dockerfile") == context_hash(other, other / "Dockerfile")

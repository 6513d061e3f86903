# SPDX-License-Identifier: Apache-2.0
"""What `docker build` would send to a builder: the files that .dockerignore lets through, and a hash of them."""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of a .dockerignore: a pattern for paths from the root, or an exception from earlier ones."""

    parts: tuple[str, ...]
    exception: bool

    def matches(self, path: Sequence[str]) -> bool:
        """Whether the path, or a folder on the way to it, fits the pattern."""
        return any(_fits(self.parts, path[:length]) for length in range(1, len(path) + 1))

    def may_match_below(self, folder: Sequence[str]) -> bool:
        for pattern, part in zip(self.parts, folder, strict=False):
            if pattern == "**":
                return True
            if not _part_fits(pattern, part):
                return False
        return True


def rules(text: str) -> list[Rule]:
    """The rules of a .dockerignore: https://docs.docker.com/build/concepts/context/#dockerignore-files"""
    found = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        exception = line.startswith("!")
        parts = PurePosixPath(os.path.normpath(line.removeprefix("!").strip().strip("/"))).parts
        if parts and parts[0] != "..":
            found.append(Rule(parts=parts, exception=exception))
    return found


def files(root: Path, ignore: Sequence[Rule]) -> Iterator[Path]:
    """The files that a build gets, as paths below `root`, in a stable order."""
    exceptions = [rule for rule in ignore if rule.exception]
    for folder, folders, names in os.walk(root):
        here = Path(folder).relative_to(root).parts
        folders[:] = [
            name
            for name in sorted(folders)
            if not _ignored(ignore, (*here, name))
            or any(rule.may_match_below((*here, name)) for rule in exceptions)
        ]
        for name in sorted(names):
            if not _ignored(ignore, (*here, name)):
                yield Path(*here, name)


def context_hash(root: Path, dockerfile: Path | None) -> str:
    """Changes with the name, the mode or the content of a file of the context, and with the Dockerfile's content."""
    digest = hashlib.sha256()
    if dockerfile:  # it counts even where the context leaves it out
        digest.update(dockerfile.read_bytes())
    for path in files(root, ignore_rules(root, dockerfile)):
        file = root / path
        if (
            file.is_file()
        ):  # links are followed, as the official provider does; sockets and broken links are nothing
            content = file.read_bytes()
            digest.update(f"{path.as_posix()}\0{file.stat().st_mode:o}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def ignore_rules(root: Path, dockerfile: Path | None) -> list[Rule]:
    """The rules that hold: `<Dockerfile>.dockerignore` goes before `.dockerignore` of the context."""
    candidates = [root / ".dockerignore"]
    if dockerfile:
        candidates.insert(0, dockerfile.with_name(f"{dockerfile.name}.dockerignore"))
    for candidate in candidates:
        if candidate.is_file():
            return rules(candidate.read_text())
    return []


def _ignored(ignore: Sequence[Rule], path: Sequence[str]) -> bool:
    """The last rule that matches decides."""
    return next((not rule.exception for rule in reversed(ignore) if rule.matches(path)), False)


def _fits(pattern: Sequence[str], path: Sequence[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_fits(pattern[1:], path[skipped:]) for skipped in range(len(path) + 1))
    return bool(path) and _part_fits(pattern[0], path[0]) and _fits(pattern[1:], path[1:])


def _part_fits(pattern: str, part: str) -> bool:
    """Go's filepath.Match for one part of a path: `*`, `?`, `[a-z]`, `[^a-z]`, and `\\` before a character."""
    token = re.compile(r"\\(?P<literal>.)|(?P<many>\*+)|(?P<one>\?)|\[(?P<set>\^?[^]]+)\]|(?P<plain>.)")
    regex = ""
    for match in token.finditer(pattern):
        if match["many"]:
            regex += ".*"
        elif match["one"]:
            regex += "."
        elif match["set"]:
            regex += f"[{match['set']}]"
        else:
            regex += re.escape(match["literal"] or match["plain"])
    return re.fullmatch(regex, part) is not None

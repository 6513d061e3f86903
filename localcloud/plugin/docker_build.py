# SPDX-License-Identifier: Apache-2.0
"""Stand-in for the docker-build provider's Image: inputs, changes and names as in the official one, and no image.

What a build would be made from is read and hashed; digest and reference are derived from that, so that the same
sources give the same. Nothing is built or pushed: no builder, no registry, no credentials. Not here: Index.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, ClassVar, Final

from localcloud.plugin.build_context import context_hash
from localcloud.plugin.provider import Failure, Input, Provider, ResourceType
from localcloud.plugin.values import UNKNOWN, Values, holds_unknown

NOT_IN_THE_IMAGE: Final = frozenset(
    {
        "buildOnPreview",
        "builder",
        "cacheFrom",
        "cacheTo",
        "exec",
        "noCache",
        "pull",
        "registries",
        "tags",
        "context",
    }
)
"""Inputs that say how or where to build. Of the context, its content counts, not its path."""

PLATFORM: Final = re.compile(r"[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?")
# https://github.com/distribution/reference: a domain (with a dot, a port, or localhost), a path, a tag.
TAG: Final = re.compile(
    r"(?P<name>((?P<domain>[\w.-]+(:\d+)?)/)?[a-z0-9]+([._/-]+[a-z0-9]+)*)(:(?P<tag>\w[\w.-]{0,127}))?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


class Image(ResourceType):
    token = "docker-build:index:Image"
    replaces = False
    inputs: ClassVar = {
        "push": Input(type="boolean", required=True),
        "context": Input(type="object"),
        "dockerfile": Input(type="object"),
        **{name: Input(type="boolean") for name in ("buildOnPreview", "exec", "load", "noCache", "pull")},
        **{name: Input(type="string") for name in ("network", "target")},
        **{name: Input(type="object") for name in ("buildArgs", "builder", "labels", "secrets")},
        **{
            name: Input(type="array")
            for name in (
                "addHosts",
                "cacheFrom",
                "cacheTo",
                "exports",
                "ignoreSecretsInDiffCalculation",
                "platforms",
                "registries",
                "ssh",
                "tags",
            )
        },
    }

    def check(self, values: Values) -> list[Failure]:
        failures = []
        for index, tag in enumerate(_known(values.get("tags"))):
            if not TAG.fullmatch(tag):
                failures.append(
                    Failure(property=f"tags[{index}]", reason=f"{tag!r} is not an image reference")
                )
        for index, platform in enumerate(_known(values.get("platforms"))):
            if not PLATFORM.fullmatch(platform):
                reason = f"{platform!r} is not a platform such as linux/amd64"
                failures.append(Failure(property=f"platforms[{index}]", reason=reason))
        if values["push"] is True and not values.get("tags"):
            failures.append(Failure(property="tags", reason="an image that is pushed needs a tag"))
        return failures + _check_sources(values)

    def outdated(self, inputs: Values, outputs: Values) -> set[str]:
        fresh = _context_hash(inputs)
        return {"contextHash"} if fresh != UNKNOWN and fresh != outputs.get("contextHash") else set()

    def make(self, name: str, inputs: Values, *, preview: bool) -> tuple[str, Values]:
        sources = _context_hash(inputs)
        if preview:
            return "", {"contextHash": sources, "digest": UNKNOWN, "ref": UNKNOWN}
        settings = {key: value for key, value in inputs.items() if key not in NOT_IN_THE_IMAGE}
        digest = (
            "sha256:" + hashlib.sha256(json.dumps([sources, settings], sort_keys=True).encode()).hexdigest()
        )
        tags = inputs.get("tags", [])
        if not inputs["push"]:
            return name, {"contextHash": sources, "digest": "", "ref": tags[0] if tags else ""}
        return digest, {"contextHash": sources, "digest": digest, "ref": _with_digest(tags, digest)}


def docker_build_provider(version: str) -> Provider:
    return Provider(name="docker-build", version=version, types=[Image()])


def _known(values: Any) -> list[str]:
    return [value for value in values if value != UNKNOWN] if isinstance(values, list) else []


def _check_sources(values: Values) -> list[Failure]:
    """Whether the folder and the Dockerfile are there; remote ones are taken as they are."""
    dockerfile = values.get("dockerfile") or {}
    if holds_unknown([values.get("context"), dockerfile]):
        return []
    if dockerfile.get("location") and dockerfile.get("inline"):
        return [Failure(property="dockerfile", reason="give `location` or `inline`, not both")]
    root = _root(values)
    if root is None:
        return []
    if not root.is_dir():
        return [Failure(property="context.location", reason=f"{root} is not a folder")]
    path = _dockerfile(values, root)
    if path and not path.is_file():
        return [Failure(property="dockerfile.location", reason=f"there is no file {path}")]
    return []


def _root(values: Values) -> Path | None:
    """The context's folder, seen from the program's; None for a remote context."""
    location = (values.get("context") or {}).get("location") or "."
    return None if "://" in location or location.startswith("git@") else Path(location)


def _dockerfile(values: Values, root: Path) -> Path | None:
    """The Dockerfile's path; None for one that is given inline or lies elsewhere."""
    given = values.get("dockerfile") or {}
    if given.get("inline") or "://" in given.get("location", ""):
        return None
    return Path(given["location"]) if given.get("location") else root / "Dockerfile"


def _context_hash(inputs: Values) -> str:
    if holds_unknown([inputs.get("context"), inputs.get("dockerfile")]):
        return UNKNOWN
    root = _root(inputs)
    # Nothing can be read of a remote context: its address stands for it.
    return context_hash(root, _dockerfile(inputs, root)) if root else str(inputs["context"]["location"])


def _with_digest(tags: list[str], digest: str) -> str:
    """The first tag, with the digest: `registry/name:tag@sha256:…`."""
    match = TAG.fullmatch(tags[0])
    assert match, "Check refuses other tags"
    return f"{match['name']}:{match['tag'] or 'latest'}@{digest}"

# SPDX-License-Identifier: Apache-2.0
"""The agent's image: built from `agent/Dockerfile` under a tag that is the hash of its sources, or given by
digest.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

import pulumi
import pulumi_docker_build as docker_build

CHECKOUT: Final = Path(__file__).parent.parent
DOCKERFILE: Final = "agent/Dockerfile"

# What `.dockerignore` lets into the build, and that file: a change of anything else makes no new image.
SOURCES: Final = ("agent", "bpf", ".dockerignore")
# What setting up and running leave among the sources. `.dockerignore` says the same; a test holds the two together.
GENERATED: Final = ("agent/build", "agent/gpuheap/profile/assets")
GENERATED_NAMES: Final = frozenset({"__pycache__", "node_modules"})
GENERATED_SUFFIXES: Final = frozenset({".pyc", ".o", ".egg-info"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentImageArgs:
    registry: str
    tag: str
    """The hash of the sources: see `source_tag`."""


class AgentImage(pulumi.ComponentResource):
    """An image that is built and pushed once for each state of its sources."""

    reference: str
    image: docker_build.Image

    def __init__(self, name: str, args: AgentImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:AgentImage", name, {}, opts)
        self.reference = f"{args.registry}/gpuheap-agent:{args.tag}"
        self.image = docker_build.Image(
            name,
            tags=[self.reference],
            context=docker_build.BuildContextArgs(location="."),
            dockerfile=docker_build.DockerfileArgs(location=DOCKERFILE),
            platforms=[docker_build.Platform.LINUX_AMD64],
            push=True,
            # A preview needs no Docker.
            build_on_preview=False,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"reference": self.reference})


def source_tag(checkout: Path = CHECKOUT, sources: Iterable[str] = SOURCES) -> str:
    """The first 16 hexadecimal digits of a hash over names, modes and contents of the sources. The same
    sources, the same tag.
    """
    digest = hashlib.sha256()
    for file in sorted(source_files(checkout, sources)):
        content = file.read_bytes()
        executable = "x" if file.stat().st_mode & 0o100 else "-"
        digest.update(f"{file.relative_to(checkout).as_posix()}\0{executable}{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def source_files(checkout: Path, sources: Iterable[str]) -> Iterator[Path]:
    for source in sources:
        root = checkout / source
        for file in [root] if root.is_file() else root.rglob("*"):
            if file.is_file() and not _generated(file.relative_to(checkout)):
                yield file


def _generated(inside: PurePath) -> bool:
    return (
        any(inside.is_relative_to(folder) for folder in GENERATED)
        or any(part in GENERATED_NAMES for part in inside.parts)
        or any(PurePath(part).suffix in GENERATED_SUFFIXES for part in inside.parts)
    )

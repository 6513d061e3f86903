# SPDX-License-Identifier: Apache-2.0
"""Container images made of files, without an engine: OCI image layouts as an archive that containerd imports.

The same images give the same bytes. Each has busybox, so that a shell and the usual commands are there.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

PAUSE: Final = "localhost/gpuheap/pause:1"
"""What holds a pod's namespaces: here, busybox that sleeps."""

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
COMMANDS: Final = (
    "awk basename cat chmod cp cut date dirname echo env expr false find grep head hostname httpd id ls mkdir mv nc"
    " nslookup printf ps pwd rm sed seq sh sleep sort tail tee test timeout touch tr true uname uniq wc wget xargs"
)
"""Those of busybox that a script counts on."""

Content = bytes | memoryview
USERS: Final = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image under the name that pods call it by, tag included.

    `files` are executables by their path in the image: a text (a script), or a file of this machine.
    """

    name: str
    files: Mapping[str, str | Path] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()


def write_archive(path: Path, images: Sequence[Image], busybox: Path) -> None:
    """Write an OCI image layout with all images as a tar. Nothing is compressed: it goes no further than this machine.

    `busybox` is a static executable.
    """
    blobs: dict[str, Content] = {}
    base = _layer(_base(busybox), {f"bin/{name}": "busybox" for name in COMMANDS.split()}, blobs)
    manifests = []
    for image in images:
        layers = [base, *_own_layers(image, blobs)]
        described = _descriptor(_manifest(image, layers, blobs), MANIFEST, blobs)
        manifests.append({**described, "annotations": {"io.containerd.image.name": image.name}})
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    files: dict[str, Content] = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": _json(index),
        **{f"blobs/sha256/{digest}": content for digest, content in sorted(blobs.items())},
    }
    with path.open("wb") as out:
        _tar(out, files, {}, mode=0o644)


def _base(busybox: Path) -> dict[str, bytes]:
    return {"bin/busybox": busybox.read_bytes(), "etc/passwd": USERS.encode(), "tmp/.keep": b""}


def _own_layers(image: Image, blobs: dict[str, Content]) -> "list[_Layer]":
    """Files of this machine apart from scripts: they are large, and the same in several images."""
    files = {path.lstrip("/"): content for path, content in image.files.items()}
    programs = {path: content.read_bytes() for path, content in files.items() if isinstance(content, Path)}
    scripts = {path: content.encode() for path, content in files.items() if isinstance(content, str)}
    return [_layer(own, {}, blobs) for own in (programs, scripts) if own]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    descriptor: dict[str, Any]
    diff_id: str


def _layer(files: Mapping[str, bytes], links: Mapping[str, str], blobs: dict[str, Content]) -> _Layer:
    out = io.BytesIO()
    _tar(out, files, links, mode=0o755)
    described = _descriptor(out.getbuffer(), LAYER, blobs)
    return _Layer(descriptor=described, diff_id=described["digest"])


def _manifest(image: Image, layers: Sequence[_Layer], blobs: dict[str, Content]) -> bytes:
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "Entrypoint": list(image.entrypoint),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _descriptor(_json(config), CONFIG, blobs),
        "layers": [layer.descriptor for layer in layers],
    }
    return _json(manifest)


def _descriptor(content: Content, media_type: str, blobs: dict[str, Content]) -> dict[str, Any]:
    digest = _sha256(content)
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _tar(out: BinaryIO, files: Mapping[str, Content], links: Mapping[str, str], *, mode: int) -> None:
    """Write a tar of files, and of symbolic links by their targets, with the folders that they are in."""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        folders = {str(parent) for path in (*files, *links) for parent in PurePosixPath(path).parents}
        for folder in sorted(folders - {"."}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
        for path, target in sorted(links.items()):
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _sha256(content: Content) -> str:
    return hashlib.sha256(content).hexdigest()

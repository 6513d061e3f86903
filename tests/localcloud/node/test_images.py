# SPDX-License-Identifier: Apache-2.0
"""Images as the OCI image specification describes them, read back with nothing but tar, JSON and SHA-256."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from localcloud.node.images import Image, write_archive

IMAGES = [
    Image(name="localhost/plain:1"),
    Image(
        name="localhost/own:2", files={"/usr/bin/own": "#!/bin/sh\necho own\n"}, entrypoint=["/usr/bin/own"]
    ),
]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF stand-in")
    write_archive(tmp_path / "images.tar", IMAGES, busybox)
    return tmp_path / "images.tar"


def read(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file
        return file.read()


def blob(archive: Path, descriptor: dict[str, Any]) -> bytes:
    """The content of a descriptor, which must have the size and the digest that it says."""
    kind, _, digest = descriptor["digest"].partition(":")
    content = read(archive, f"blobs/{kind}/{digest}")
    assert len(content) == descriptor["size"]
    assert hashlib.sha256(content).hexdigest() == digest
    return content


def test_each_image_has_its_name_its_program_and_layers_of_the_digests_that_it_says(archive: Path) -> None:
    assert json.loads(read(archive, "oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    manifests = json.loads(read(archive, "index.json"))["manifests"]
    names = [each["annotations"]["io.containerd.image.name"] for each in manifests]
    assert names == ["localhost/plain:1", "localhost/own:2"]
    manifest = json.loads(blob(archive, manifests[1]))
    config = json.loads(blob(archive, manifest["config"]))
    assert config["os"] == "linux"
    assert config["config"]["Entrypoint"] == ["/usr/bin/own"]
    layers = [blob(archive, each) for each in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]


def test_files_are_executable_and_come_with_their_folders(archive: Path, tmp_path: Path) -> None:
    manifest = json.loads(blob(archive, json.loads(read(archive, "index.json"))["manifests"][1]))
    layer = tmp_path / "layer.tar"
    layer.write_bytes(blob(archive, manifest["layers"][1]))
    with tarfile.open(layer) as tar:
        found = [(each.name, each.isdir(), each.mode) for each in tar]
    assert found == [("usr", True, 0o755), ("usr/bin", True, 0o755), ("usr/bin/own", False, 0o755)]


def test_the_same_images_give_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    write_archive(tmp_path / "again.tar", IMAGES, tmp_path / "busybox")
    assert (tmp_path / "again.tar").read_bytes() == archive.read_bytes()


def test_a_file_of_this_machine_is_a_layer_that_images_share(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"a large program")
    images = [
        Image(
            name=f"localhost/{word}:1", files={"/usr/bin/program": program, "/run.sh": f"#!/bin/sh\n{word}\n"}
        )
        for word in ("one", "two")
    ]
    write_archive(tmp_path / "images.tar", images, program)
    described = json.loads(read(tmp_path / "images.tar", "index.json"))["manifests"]
    layers = [json.loads(blob(tmp_path / "images.tar", each))["layers"] for each in described]
    assert layers[0][:2] == layers[1][:2]
    assert layers[0][2] != layers[1][2]


def test_images_share_the_layer_that_is_the_same(archive: Path) -> None:
    manifests = [
        json.loads(blob(archive, each)) for each in json.loads(read(archive, "index.json"))["manifests"]
    ]
    assert manifests[0]["layers"] == manifests[1]["layers"][:1]

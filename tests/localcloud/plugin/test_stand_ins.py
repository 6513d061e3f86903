# SPDX-License-Identifier: Apache-2.0
"""What the stand-ins for the random and docker-build providers draw, derive and refuse."""

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcloud.plugin.docker_build import Image
from localcloud.plugin.provider import ResourceType
from localcloud.plugin.random_values import RandomId, RandomPassword, RandomString, RandomUuid
from localcloud.plugin.values import UNKNOWN, Values, from_struct, to_struct


def _filled(kind: ResourceType, given_values: Mapping[str, Any]) -> Values:
    """With the defaults that Check puts in."""
    defaults = {name: each.default for name, each in kind.inputs.items() if each.default is not None}
    return defaults | dict(given_values)


def _text(kind: ResourceType, **inputs: Any) -> str:
    result: str = kind.make("name", _filled(kind, inputs), preview=False)[1]["result"]
    return result


def test_the_notations_of_an_id_are_the_same_bytes() -> None:
    identity, out = RandomId().make("name", {"byteLength": 5, "prefix": "p-"}, preview=False)
    drawn = bytes.fromhex(out["hex"].removeprefix("p-"))
    assert len(drawn) == 5
    assert base64.b64decode(out["b64Std"].removeprefix("p-")) == drawn
    assert int(out["dec"].removeprefix("p-")) == int.from_bytes(drawn, "big")
    assert out["b64Url"] == f"p-{identity}"
    assert base64.urlsafe_b64decode(f"{identity}=") == drawn


def test_an_id_without_bytes_is_refused() -> None:
    (failure,) = RandomId().check({"byteLength": 0})
    assert (failure.property, failure.reason) == ("byteLength", "must be 1 or more, not 0")


def test_a_uuid_is_one() -> None:
    identity, out = RandomUuid().make("name", {}, preview=False)
    assert str(uuid.UUID(identity)) == out["result"]


@given(length=st.integers(6, 60), upper=st.integers(0, 3), numeric=st.integers(0, 3))
def test_a_string_has_its_length_and_its_minimums(length: int, upper: int, numeric: int) -> None:
    drawn = _text(RandomString(), length=length, minUpper=upper, minNumeric=numeric, special=False)
    assert len(drawn) == length
    assert sum(map(str.isupper, drawn)) >= upper
    assert sum(map(str.isdigit, drawn)) >= numeric
    assert drawn.isalnum()


def test_kinds_can_be_switched_off_and_special_characters_chosen() -> None:
    off = {"upper": False, "lower": False, "numeric": False}
    assert set(_text(RandomString(), length=200, overrideSpecial="_-", **off)) == {"_", "-"}
    assert _text(RandomString(), length=50, special=False, upper=False, lower=False).isdigit()
    assert _text(RandomString(), length=50, special=False, number=False).isalpha(), (
        "the old name of `numeric`"
    )


@pytest.mark.parametrize(
    ("inputs", "refused"),
    [
        ({"length": 0}, "length"),
        ({"length": 3, "minUpper": 2, "minNumeric": 2}, "length"),
        ({"length": 3, "upper": False, "lower": False, "numeric": False, "special": False}, "lower"),
    ],
)
def test_a_string_that_cannot_be_drawn_is_refused(inputs: dict[str, Any], refused: str) -> None:
    (failure,) = RandomString().check(_filled(RandomString(), inputs))
    assert failure.property == refused


def test_a_password_does_not_show_in_its_id() -> None:
    identity, out = RandomPassword().make("name", _filled(RandomPassword(), {"length": 16}), preview=False)
    assert identity == "none"
    assert len(out["result"]) == 16


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "Dockerfile").write_text("FROM scratch\n")
    return tmp_path / "app"


IMAGE = {"push": True, "tags": ["registry.example.org:5000/team/app:1"], "context": {"location": "app"}}


def test_the_same_sources_give_the_same_digest_wherever_the_tag_points(sources: Path) -> None:
    digest, out = Image().make("name", IMAGE, preview=False)
    again, other = Image().make("name", {**IMAGE, "tags": ["registry.example.org/b"]}, preview=False)
    assert digest == again == out["digest"]
    assert out["ref"] == f"registry.example.org:5000/team/app:1@{digest}"
    assert other["ref"] == f"registry.example.org/b:latest@{digest}"


def test_a_change_of_the_sources_or_the_build_changes_the_digest(sources: Path) -> None:
    digests = {Image().make("name", IMAGE, preview=False)[0]}
    digests.add(Image().make("name", {**IMAGE, "buildArgs": {"A": "1"}}, preview=False)[0])
    (sources / "Dockerfile").write_text("FROM other\n")
    digests.add(Image().make("name", IMAGE, preview=False)[0])
    assert len(digests) == 3


def test_changed_sources_are_a_change_though_no_input_did(sources: Path) -> None:
    _, out = Image().make("name", IMAGE, preview=False)
    assert Image().outdated(IMAGE, out) == set()
    (sources / "more").touch()
    assert Image().outdated(IMAGE, out) == {"contextHash"}


def test_a_preview_knows_the_sources_and_not_the_digest(sources: Path) -> None:
    _, planned = Image().make("name", IMAGE, preview=True)
    _, made = Image().make("name", IMAGE, preview=False)
    assert planned["contextHash"] == made["contextHash"]
    assert planned["digest"] == planned["ref"] == UNKNOWN


def test_an_image_that_is_not_pushed_has_no_digest(sources: Path) -> None:
    identity, out = Image().make("name", {**IMAGE, "push": False}, preview=False)
    assert (identity, out["digest"], out["ref"]) == ("name", "", IMAGE["tags"][0])  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"tags": ["Registry/UPPER"]}, "tags[0]"),
        ({"tags": []}, "tags"),
        ({"platforms": ["linux"]}, "platforms[0]"),
        ({"context": {"location": "nowhere"}}, "context.location"),
        ({"dockerfile": {"location": "app/Containerfile"}}, "dockerfile.location"),
        ({"dockerfile": {"location": "app/Dockerfile", "inline": "FROM x"}}, "dockerfile"),
    ],
)
def test_an_image_that_could_not_be_built_is_refused(
    sources: Path, change: dict[str, Any], refused: str
) -> None:
    (failure,) = Image().check({**IMAGE, **change})
    assert failure.property == refused


def test_what_is_unknown_at_preview_is_let_through(sources: Path) -> None:
    unknown = {"push": True, "tags": [UNKNOWN], "context": {"location": UNKNOWN}}
    assert Image().check(unknown) == []
    assert Image().outdated(unknown, {"contextHash": "x"}) == set()


def test_whole_numbers_survive_the_wire_and_absent_values_are_left_out() -> None:
    values = {"count": 3, "share": 0.5, "list": [1, {"n": 2}], "flag": True, "none": None}
    back = from_struct(to_struct(values))
    assert back == {"count": 3, "share": 0.5, "list": [1, {"n": 2}], "flag": True}
    assert isinstance(back["count"], int)

# SPDX-License-Identifier: Apache-2.0
"""A published dashboard is taken when it is the one that was meant, and never otherwise."""

import hashlib
import json

import pytest

from components.azure.published import NotAsPublished, dashboard, parsed

CONTENT = json.dumps({"uid": "Theirs", "title": "Theirs"}).encode()
URL = "https://example.com/dashboard.json"


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_what_has_the_checksum_is_taken() -> None:
    assert parsed(CONTENT, URL, _sum(CONTENT).upper())["uid"] == "Theirs"


def test_what_has_another_checksum_is_refused_with_both() -> None:
    with pytest.raises(NotAsPublished, match=_sum(CONTENT)):
        parsed(CONTENT, URL, "0" * 64)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<html>", "is no JSON"),
        (b"[]", "is no dashboard"),
        (b'{"title": "no uid"}', "is no dashboard"),
        (b'{"uid": 7, "title": "x"}', "is no dashboard"),
    ],
)
def test_what_is_no_dashboard_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(NotAsPublished, match=words):
        parsed(content, URL, _sum(content))


@pytest.mark.parametrize("url", ["http://example.com/d.json", "file:///etc/passwd"])
def test_only_https_is_fetched(url: str) -> None:
    with pytest.raises(NotAsPublished, match="must begin with https"):
        dashboard(url, "0" * 64)

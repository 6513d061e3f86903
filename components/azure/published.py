# SPDX-License-Identifier: Apache-2.0
"""Fetches a dashboard that others publish, and takes it only if it is the one that was meant. No pulumi import."""

import hashlib
import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import urlsplit

MOST_BYTES: Final = 4 << 20
SECONDS: Final = 30.0


class NotAsPublished(Exception):
    """What was fetched is not what the configuration names; the text says what it is."""


def dashboard(url: str, sha256: str) -> dict[str, Any]:
    """The dashboard at `url`, if its bytes have that checksum. Raises NotAsPublished."""
    if urlsplit(url).scheme != "https":
        raise NotAsPublished(f"{url} is not fetched: the address must begin with https://")
    return parsed(_fetch(url), url, sha256)


def parsed(content: bytes, url: str, sha256: str) -> dict[str, Any]:
    """The dashboard in `content`. Raises NotAsPublished."""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256.lower():
        raise NotAsPublished(
            f"{url} has the checksum {found}, not {sha256}. If the new version is wanted, look at it, and set "
            "grafana.publishedDashboard.sha256"
        )
    try:
        read = json.loads(content)
    except ValueError as error:
        raise NotAsPublished(f"{url} is no JSON: {error}") from error
    if not isinstance(read, dict) or not isinstance(read.get("uid"), str) or not read.get("title"):
        raise NotAsPublished(f"{url} is no dashboard: it must have a uid and a title")
    return read


def _fetch(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310  # the scheme was checked
            content: bytes = answer.read(MOST_BYTES + 1)
    except (urllib.error.URLError, TimeoutError) as error:
        raise NotAsPublished(f"{url} cannot be fetched: {error}") from error
    if len(content) > MOST_BYTES:
        raise NotAsPublished(f"{url} is larger than {MOST_BYTES} bytes")
    return content

# SPDX-License-Identifier: Apache-2.0
"""One self-contained HTML page that shows a profile: flame graph, function table, notes.

The drawing is d3-flame-graph's; its files are not in the repository but fetched at set-up into `assets/`. The page
loads nothing: its content security policy lets run the three scripts that are in it, by their hashes, and no other.
Names come from the traced programs and are not trusted: they reach the page as JSON text only.
"""

import base64
import hashlib
import html
import json
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final

from gpuheap import __version__
from gpuheap.profile.model import Profile, ProfileError
from gpuheap.profile.tree import page_data

_SCRIPTS: Final = ("d3.min.js", "d3-flamegraph.umd.min.js")
_LICENCES: Final = {"d3": "d3.LICENSE", "d3-flame-graph": "d3-flame-graph.LICENSE"}


def page(profile: Profile, *, source: str) -> str:
    """The page's text. `source` is the name of the file that the profile came from.

    Raises `ProfileError` when the flame-graph component is not installed.
    """
    components = [_asset(name) for name in _SCRIPTS]
    own = _page_file("page.js")
    parts = {
        "POLICY": _policy([*components, own]),
        "TITLE": html.escape(f"GPU memory: {source}"),
        "STYLE": _page_file("page.css"),
        "DATA": _json({**page_data(profile), **_facts(profile, source)}),
        "SCRIPTS": "\n".join(f"<script>{text}</script>" for text in [*components, own]),
        "LICENCES": "\n".join(_licence(name, file) for name, file in _LICENCES.items()),
    }
    # Split first and fill then: what is filled in may hold the text of another placeholder.
    text, *rest = _page_file("page.html").split("{{")
    for piece in rest:
        key, _, after = piece.partition("}}")
        text += parts[key] + after
    return text


def _facts(profile: Profile, source: str) -> dict[str, Any]:
    taken = (
        datetime.fromtimestamp(profile.time_unix_ns / 1e9, UTC) if _plausible(profile.time_unix_ns) else None
    )
    return {
        "source": source,
        "takenUtc": taken.isoformat(timespec="seconds") if taken else "",
        "durationSeconds": profile.duration_ns / 1e9,
        "notes": profile.notes,
        "version": __version__,
    }


def _plausible(time_unix_ns: int) -> bool:
    return 0 < time_unix_ns < 253_402_300_800_000_000_000  # the year 10000, where datetime ends


def _policy(scripts: list[str]) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    # d3-flame-graph puts a style element into the page and sets style attributes.
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'"


def _json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _licence(name: str, file: str) -> str:
    return f"<h3>{html.escape(name)}</h3><pre>{html.escape(_asset(file))}</pre>"


def _asset(name: str) -> str:
    asset = files("gpuheap.profile") / "assets" / name
    if not asset.is_file():
        raise ProfileError(
            f"the flame-graph component is not installed: {asset} is missing. In a checkout run `make setup`; "
            "an installed package that lacks the file was built without it"
        )
    return asset.read_text(encoding="utf-8")


def _page_file(name: str) -> str:
    return (files("gpuheap.profile") / "page" / name).read_text(encoding="utf-8")

# SPDX-License-Identifier: Apache-2.0
"""The page as text. What a browser makes of it is tested in test_page_in_browser.py."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpuheap.heap.model import Frame, FrameKind, Process
from gpuheap.profile import html
from gpuheap.profile.html import page
from gpuheap.profile.model import ProfileError
from tests.agent.heap.values import totals
from tests.agent.profile.examples import at, example, of

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)> &lt; \u2028 {{DATA}} ' \""
)

needs_component = pytest.mark.skipif(
    not (Path(html.__file__).parent / "assets" / "d3.min.js").exists(),
    reason="needs the flame-graph component: `make setup` fetches it",
)


class Elements(HTMLParser):
    """Start tags with their attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
            self._in_script = True

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


@needs_component
def test_the_page_names_no_other_file() -> None:
    elements = Elements(page(example(), source="x.pb.gz"))
    assert not [
        (tag, attributes) for tag, attributes in elements.tags if {"src", "href", "action"} & set(attributes)
    ]
    assert "link" not in {tag for tag, _ in elements.tags}


@needs_component
def test_the_policy_lets_exactly_the_pages_own_scripts_run() -> None:
    elements = Elements(page(example(), source="x.pb.gz"))
    (policy,) = [
        attributes["content"]
        for tag, attributes in elements.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    _data, *scripts = elements.scripts
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert policy.startswith("default-src 'none'; ")


@needs_component
def test_hostile_names_stay_text() -> None:
    process = Process(pid=1, start_ns=1, name=HOSTILE)
    frame = Frame(function=HOSTILE, file=HOSTILE, line=1, kind=FrameKind.NATIVE, library=HOSTILE)
    profile = of({at(frame, process=process): totals(10)}, notes=(HOSTILE,))
    elements = Elements(page(profile, source=HOSTILE))
    assert [tag for tag, _ in elements.tags].count("script") == 4, "the data and three scripts"
    assert "img" not in {tag for tag, _ in elements.tags}
    data = json.loads(elements.scripts[0])
    assert data["frames"] == [[HOSTILE, HOSTILE, "native", HOSTILE]]
    assert data["notes"][-1] == HOSTILE


@needs_component
def test_a_stack_deeper_than_python_nests_is_written() -> None:
    stack = tuple(Frame(function=f"f{depth}") for depth in range(4000))
    assert '"f3999"' in page(of({at(*stack): totals(10)}), source="x")


@needs_component
@pytest.mark.parametrize("time", [0, -5, 2**62])
def test_any_time_in_a_file_can_be_shown(time: int) -> None:
    assert "<title>" in page(replace(example(), time_unix_ns=time), source="x")


@needs_component
def test_the_page_carries_the_licences_of_its_components() -> None:
    text = page(example(), source="x")
    assert "Mike Bostock" in text and "Apache License" in text


def test_a_missing_component_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(html, "files", lambda _: tmp_path)
    with pytest.raises(ProfileError, match=r"d3\.min\.js is missing\. In a checkout run `make setup`"):
        page(example(), source="x")

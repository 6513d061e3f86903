# SPDX-License-Identifier: Apache-2.0
"""The page as a reader uses it, in a real browser. Numbers are counted by hand from `examples.example`."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuheap.heap.model import Frame, FrameKind, Process, Site, Totals
from gpuheap.profile import html
from gpuheap.profile.html import page
from gpuheap.profile.model import Profile
from tests.agent.heap.values import PYTHON, totals
from tests.agent.profile.browser import COMMAND, Browser
from tests.agent.profile.examples import MODULE, RESERVE, at, example, of, several_kinds
from tests.agent.profile.test_page import HOSTILE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(COMMAND is None, reason="needs Chromium: there is no chromium on PATH"),
    pytest.mark.skipif(
        not (Path(html.__file__).parent / "assets" / "d3.min.js").exists(),
        reason="needs the flame-graph component: `make setup` fetches it",
    ),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> "Show":
    return Show(browser, tmp_path / "page.html")


class Show:
    """Opens profiles in the browser, and finds things in the page."""

    def __init__(self, browser: Browser, path: Path) -> None:
        self.browser = browser
        self._path = path

    def __call__(self, profile: Profile) -> Browser:
        self._path.write_text(page(profile, source="run.pb.gz"), encoding="utf-8")
        self.browser.open(self._path)
        return self.browser


def frame(name: str) -> str:
    """JavaScript for the frame of the graph whose label begins with the name."""
    return f"[...document.querySelectorAll('#chart g.frame')].find(g => g.getAttribute('name').startsWith('{name}'))"


def width_of(name: str) -> str:
    return f"Math.round({frame(name)}.querySelector('rect').getBoundingClientRect().width)"


CHART_WIDTH = "Math.round(document.querySelector('#chart svg').getBoundingClientRect().width)"


def frames_drawn(browser: Browser) -> set[str]:
    names = browser.value("[...document.querySelectorAll('#chart g.frame')].map(g => g.getAttribute('name'))")
    return {name.split("  ")[0] for name in names}


def choose(browser: Browser, selector: str, text: str) -> None:
    """In a list of choices, as the keyboard does it."""
    browser.value(
        f"(s => {{ s.value = [...s.options].find(o => o.text === '{text}').value;"
        f" s.dispatchEvent(new Event('change')); }})(document.querySelector('{selector}'))"
    )


def choices(browser: Browser, selector: str) -> list[str]:
    found = browser.value(f"[...document.querySelector('{selector}').options].map(o => o.text)")
    return [str(text) for text in found]


def table(browser: Browser) -> list[list[str]]:
    cells = "[...document.querySelectorAll('#rows tr')].map(r => [...r.cells].map(c => c.innerText))"
    return [list(row) for row in browser.value(cells)]


def native(name: str, library: str) -> Frame:
    return Frame(function=name, file=library, kind=FrameKind.NATIVE)


def with_native_frames() -> Profile:
    call = native("_PyObject_Call", "/usr/bin/python3.12")
    empty = native("at::empty()", "/srv/torch/lib/libtorch_cpu.so")
    return of({at(call, MODULE, RESERVE, empty): totals(10), at(call, MODULE): totals(30)})


def test_the_page_opens_without_network_and_without_errors(show: Show) -> None:
    browser = show(example())
    assert [url for url in browser.requests if not url.startswith("file:")] == []
    assert browser.errors == []


def test_it_says_what_is_shown_of_which_process(show: Show) -> None:
    browser = show(example())
    assert browser.text("#title") == "python (pid 4711)"
    assert browser.text("#amount") == "700 B\ndevice memory on GPU 0, in use by 70 allocations"
    assert browser.value("document.querySelector('#amount-value').title") == "700 bytes"
    assert "run.pb.gz" in browser.text("#origin") and "recorded for 93.5 s" in browser.text("#origin")
    assert browser.text("#notes") == "lost or blurred: ring_full, 3 times"


def test_frames_are_as_wide_as_their_share(show: Show) -> None:
    browser = show(example())
    assert frames_drawn(browser) == {
        "python (pid 4711)",
        "<module>",
        "Engine.__init__",
        "Module._apply",
        "KVCache.reserve",
        "<interpreter not supported>",
    }
    browser.wait(f"Math.abs({width_of('KVCache.reserve')} - {CHART_WIDTH} * 200 / 700) <= 2")
    browser.wait(f"Math.abs({width_of('<module>')} - {CHART_WIDTH} * 600 / 700) <= 2")


def test_the_table_has_self_and_total(show: Show) -> None:
    assert table(show(example()))[:3] == [
        ["400 B", "57.1 %", "400 B", "57.1 %", "Module._apply", "/srv/module.py:804"],
        ["200 B", "28.6 %", "200 B", "28.6 %", "KVCache.reserve", "/srv/cache.py:41"],
        ["100 B", "14.3 %", "100 B", "14.3 %", "<interpreter not supported>", ""],
    ]


def test_another_measure_can_be_chosen(show: Show) -> None:
    browser = show(example())
    browser.click("[...document.querySelectorAll('#types label')].find(l => l.innerText === 'Allocated')")
    assert browser.text("#amount").startswith("1000 B\ndevice memory on GPU 0, allocated")
    assert ["500 B", "50.0 %", "500 B", "50.0 %", "KVCache.reserve", "/srv/cache.py:41"] in table(browser)


def test_another_process_can_be_chosen(show: Show) -> None:
    browser = show(example())
    choose(browser, "#process", "worker (pid 4712)")
    assert browser.text("#title") == "worker (pid 4712)"
    assert frames_drawn(browser) == {"worker (pid 4712)", "<module>", "libfoo.so+0x1234"}


def test_all_processes_can_be_seen_side_by_side(show: Show) -> None:
    browser = show(example())
    choose(browser, "#process", "all processes")
    assert browser.text("#amount").startswith("750 B")
    assert {"all processes", "python (pid 4711)", "worker (pid 4712)"} <= frames_drawn(browser)


def test_device_memory_is_shown_first_although_there_is_more_of_another_kind(show: Show) -> None:
    browser = show(several_kinds())
    assert browser.text("#amount") == "600 B\ndevice memory on GPU 0, in use by 60 allocations"
    assert browser.value("document.querySelector('#amount-what').title") == "GPU-aaaa"
    assert choices(browser, "#memory") == [
        "device memory on GPU 0",
        "device memory on GPU 1",
        "device memory on all GPUs",
        "managed memory on GPU 0",
        "pinned host memory",
    ]


def test_another_kind_of_memory_can_be_chosen(show: Show) -> None:
    browser = show(several_kinds())
    choose(browser, "#memory", "pinned host memory")
    assert browser.text("#amount") == "1.95 KiB\npinned host memory, in use by 200 allocations"
    assert [row[4] for row in table(browser)] == ["KVCache.reserve", "<module>"]
    assert frames_drawn(browser) == {"python (pid 4711)", "<module>", "KVCache.reserve"}


def test_the_gpus_of_a_process_are_drawn_side_by_side(show: Show) -> None:
    browser = show(several_kinds())
    choose(browser, "#memory", "device memory on all GPUs")
    assert {"python (pid 4711)", "GPU 0", "GPU 1"} <= frames_drawn(browser)
    browser.wait(f"Math.abs({width_of('GPU 1')} - {CHART_WIDTH} * 100 / 700) <= 2")


def test_the_chosen_memory_stays_when_another_process_has_it(show: Show) -> None:
    browser = show(several_kinds())
    choose(browser, "#memory", "device memory on GPU 1")
    choose(browser, "#process", "worker (pid 4712)")
    assert browser.text("#amount").startswith("40 B\ndevice memory on GPU 1")
    choose(browser, "#process", "all processes")
    assert browser.text("#amount").startswith("740 B\ndevice memory on all GPUs")
    assert browser.errors == []


def test_one_sort_of_memory_needs_no_choice(show: Show) -> None:
    assert show(example()).value("document.querySelector('#memory-label').hidden")


def test_a_click_zooms_in_and_the_button_zooms_out(show: Show) -> None:
    browser = show(example())
    browser.wait(
        f"Math.abs({width_of('KVCache.reserve')} - {CHART_WIDTH} * 200 / 700) <= 2"
    )  # it has grown there
    browser.click(frame("KVCache.reserve"))
    browser.wait(f"{width_of('KVCache.reserve')} === {CHART_WIDTH}")
    assert browser.text("#details").startswith("KVCache.reserve/srv/cache.py:41\ntotal 200 B, 28.6 %")
    browser.click("document.querySelector('#reset')")
    browser.wait(f"{width_of('KVCache.reserve')} < {CHART_WIDTH} / 2")
    assert browser.value("document.querySelector('#reset').disabled")


def test_the_page_works_by_keyboard(show: Show) -> None:
    browser = show(example())
    browser.value("document.querySelector('#chart').focus()")
    for _ in range(3):
        browser.key("ArrowDown")
    browser.key("ArrowRight")
    assert browser.text("#details").startswith("KVCache.reserve"), "the second child of Engine.__init__"
    browser.key("Enter", "\r")
    browser.wait(f"{width_of('KVCache.reserve')} === {CHART_WIDTH}")
    browser.key("Escape")
    browser.wait(f"{width_of('KVCache.reserve')} < {CHART_WIDTH} / 2")
    browser.key("/", "/")
    assert browser.value("document.activeElement.id") == "search"


def test_a_search_says_how_much_its_matches_hold(show: Show) -> None:
    browser = show(example())
    browser.click("document.querySelector('#search')")
    browser.type("MODULE._app")
    assert browser.text("#matches") == "400 B (57.1 %) in matches", "the recursive frame counts once"
    assert [row[4] for row in table(browser)] == ["Module._apply"]
    browser.key("Escape")
    assert len(table(browser)) == 5


@pytest.mark.parametrize("term", ["(", "[", "\\", "a**", "__proto__"])
def test_a_search_is_for_text_and_not_for_a_pattern(show: Show, term: str) -> None:
    browser = show(example())
    browser.click("document.querySelector('#search')")
    browser.type(term)
    assert browser.errors == []
    browser.wait("document.querySelector('#matches').innerText !== ''")


def test_a_click_in_the_table_shows_the_function_in_the_graph(show: Show) -> None:
    browser = show(example())
    browser.click("document.querySelector('#rows button')")
    assert browser.value("document.querySelector('#search').value") == "Module._apply"
    browser.wait(f"{frame('Module._apply')}.querySelector('rect').getAttribute('fill').startsWith('#ff')")


def test_nothing_in_use_is_said_and_not_drawn(show: Show) -> None:
    browser = show(of({at(Frame(function="f")): totals(100, 100)}))
    assert browser.text("#empty").startswith("No device memory on GPU 0 was in use in python (pid 4711).")
    assert browser.value("document.querySelector('#chart').hidden")


def test_an_empty_profile_is_a_page_too(show: Show) -> None:
    browser = show(Profile(samples=(), time_unix_ns=0, duration_ns=0))
    assert browser.text("#title") == "nothing recorded"
    assert browser.errors == []


def test_hostile_names_are_shown_and_do_nothing(show: Show) -> None:
    hostile = Process(pid=1, start_ns=1, name=HOSTILE)
    frame_of_it = Frame(function=HOSTILE, file=HOSTILE, line=1)
    browser = show(of({at(frame_of_it, process=hostile): totals(10)}, notes=(HOSTILE,)))
    browser.click("document.querySelector('#rows button')")
    browser.click("document.querySelector('#chart g.frame')")
    assert browser.errors == []
    assert browser.value("document.title").startswith("GPU memory: </script>")
    assert browser.value("document.images.length") == 0
    assert browser.value("document.querySelector('#rows button').textContent") == HOSTILE


def test_twenty_thousand_frames_are_drawn_searched_and_zoomed_within_seconds(show: Show) -> None:
    chance = random.Random(20)
    sites: dict[Site, Totals] = {}
    while len(sites) < 1300:
        stack = tuple(
            Frame(
                function=f"f{chance.randrange(6 + depth)}",
                file=f"/srv/m{depth % 9}.py",
                line=chance.randrange(3),
            )
            for depth in range(chance.randrange(10, 30))
        )
        sites[at(*stack)] = totals(chance.randrange(1, 1 << 24) * 10)
    profile = of(sites)
    began = time.monotonic()
    browser = show(profile)
    assert (
        browser.value("JSON.parse(document.getElementById('data').textContent).groups[0].nodes[0].length")
        > 20_000
    )
    assert browser.text("#narrow") == "Frames narrower than 2 pixels appear when you zoom in."
    browser.click("document.querySelector('#search')")
    browser.type("f1")
    browser.wait("document.querySelector('#matches').innerText !== ''")
    browser.click("document.querySelectorAll('#chart g.frame')[1]")
    browser.wait("!document.querySelector('#reset').disabled")
    assert time.monotonic() - began < 60, (
        "about 3 s on two idle cores; a page that never ends would take minutes"
    )
    assert browser.errors == []
    assert PYTHON.name in browser.text("#title")
    show(example())
    assert browser.value("document.querySelector('#narrow').hidden")


def test_the_interpreter_is_left_out_until_the_reader_wants_it(show: Show) -> None:
    browser = show(with_native_frames())
    assert frames_drawn(browser) == {"python (pid 4711)", "<module>", "KVCache.reserve", "at::empty()"}
    choose(browser, "#detail", "all")
    assert "_PyObject_Call" in frames_drawn(browser)
    assert ["40 B", "100.0 %", "_PyObject_Call"] in [row[2:5] for row in table(browser)]


def test_internals_can_be_folded_into_who_called_them(show: Show) -> None:
    browser = show(with_native_frames())
    assert ["10 B", "25.0 %"] in [row[:2] for row in table(browser) if row[4] == "at::empty()"]
    choose(browser, "#detail", "the program\\'s own")
    assert frames_drawn(browser) == {"python (pid 4711)", "<module>", "KVCache.reserve"}
    assert ["10 B", "25.0 %"] in [row[:2] for row in table(browser) if row[4] == "KVCache.reserve"]


def test_there_is_no_choice_of_frames_where_all_are_the_programs_own(show: Show) -> None:
    assert show(example()).value("document.getElementById('detail-label').hidden")


def test_a_native_function_has_its_source_and_is_found_by_its_library(show: Show) -> None:
    ask = Frame(
        function="ask", file="/src/ask.c", line=12, kind=FrameKind.NATIVE, library="/usr/lib/libask.so"
    )
    browser = show(of({at(MODULE, ask): totals(300), at(MODULE): totals(100)}))
    assert table(browser)[0][4:] == ["ask", "/src/ask.c:12"]
    browser.click(frame("ask  ask.c:12"))
    browser.wait("document.querySelector('#details').innerText.startsWith('ask')")
    assert browser.text("#details").startswith("ask/src/ask.c:12 in /usr/lib/libask.so")
    browser.click("document.querySelector('#search')")
    browser.type("libask")
    assert [row[4] for row in table(browser)] == ["ask"]

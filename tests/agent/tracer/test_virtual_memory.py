# SPDX-License-Identifier: Apache-2.0
"""Physical memory behind handles is in use until its last reference and its last mapping are gone. Counted by hand."""

from collections.abc import Iterator

import pytest

from gpuheap.tracer import Tracer
from tests.agent.tracer.played import Played, freed
from tests.standin.build import StandIn

pytestmark = pytest.mark.bpf

PAGE = 2 << 20
DEVICE = ("device", "0")
CREATE = f"0 cuMemCreate r10 {PAGE} 1 0 0"
RESERVE = f"0 cuMemAddressReserve r9 {8 * PAGE} 0 0 0"
MAP = f"0 cuMemMap r9 {PAGE} 0 r10 0"
MAP_AGAIN = f"0 cuMemMap r9+{PAGE} {PAGE} 0 r10 0"
RELEASE = "0 cuMemRelease r10"
UNMAP = f"0 cuMemUnmap r9 {PAGE}"
UNMAP_AGAIN = f"0 cuMemUnmap r9+{PAGE} {PAGE}"
UNMAP_BOTH = f"0 cuMemUnmap r9 {2 * PAGE}"
RETAIN = "0 cuMemRetainAllocationHandle r10 r9"


@pytest.fixture
def play(tracer: Tracer, standin: StandIn) -> Iterator[Played]:
    with Played(tracer, standin) as played:
        yield played


@pytest.mark.parametrize(
    "lines",
    [
        [RELEASE],
        [MAP, RELEASE, UNMAP],
        [MAP, UNMAP, RELEASE],
        [MAP, MAP_AGAIN, RELEASE, UNMAP, UNMAP_AGAIN],
        [MAP, MAP_AGAIN, UNMAP_AGAIN, RELEASE, UNMAP],
        [MAP, MAP_AGAIN, UNMAP, UNMAP_AGAIN, RELEASE],
        [MAP, MAP_AGAIN, RELEASE, UNMAP_BOTH],
        [MAP, RETAIN, RELEASE, RELEASE, UNMAP],
        [MAP, RELEASE, RETAIN, UNMAP, RELEASE],
        [MAP, RETAIN, RETAIN, UNMAP, RELEASE, RELEASE, RELEASE],
        [MAP, UNMAP, MAP, RELEASE, UNMAP],
    ],
)
def test_only_the_last_of_a_handles_references_and_mappings_frees_it(play: Played, lines: list[str]) -> None:
    play.do(CREATE, RESERVE)
    for line in lines:
        assert play.in_use() == {DEVICE: (PAGE, 1)}, f"before {line}"
        play.do(line)
    assert play.in_use() == {}


def test_one_unmapping_ends_several_mappings_of_several_handles(play: Played) -> None:
    play.do(RESERVE)
    for at, register in enumerate(("r10", "r11", "r12")):
        play.do(f"0 cuMemCreate {register} {(at + 1) * PAGE} 1 0 0")
    play.do(f"0 cuMemMap r9 {PAGE} 0 r10 0", f"0 cuMemMap r9+{PAGE} {2 * PAGE} 0 r11 0")
    play.do(f"0 cuMemMap r9+{3 * PAGE} {3 * PAGE} 0 r12 0")
    play.do("0 cuMemRelease r10", "0 cuMemRelease r12")
    assert play.in_use() == {DEVICE: (6 * PAGE, 3)}
    play.do(f"0 cuMemUnmap r9 {6 * PAGE}")
    assert play.in_use() == {DEVICE: (2 * PAGE, 1)}, "r11 still has its reference"


def test_one_unmapping_ends_five_thousand_mappings(tracer: Tracer, standin: StandIn) -> None:
    count = 5000
    with Played(tracer, standin, STANDIN_CUDA_MIB="16384") as play:
        lines = [f"0 cuMemAddressReserve r9 {count * PAGE} 0 0 0"]
        for at in range(count):
            lines += [CREATE, f"0 cuMemMap r9+{at * PAGE} {PAGE} 0 r10 0", RELEASE]
        play.do(*lines)
        assert play.in_use() == {DEVICE: (count * PAGE, count)}
        play.do(f"0 cuMemUnmap r9 {count * PAGE}")
        reading = tracer.read()
        assert freed(reading, play.pid) == (count * PAGE, count)
        assert play.in_use() == {}


def test_a_second_release_changes_nothing_and_is_counted(play: Played, tracer: Tracer) -> None:
    play.do(CREATE, RESERVE, MAP, RELEASE)
    before = tracer.read().losses["unknown_release"]
    assert play.codes(RELEASE, RELEASE) == [1, 1]
    assert play.in_use() == {DEVICE: (PAGE, 1)}, "it is still mapped"
    assert tracer.read().losses["unknown_release"] == before + 2
    play.do(UNMAP)
    assert play.in_use() == {}


def test_the_release_of_an_unknown_handle_changes_nothing_and_is_counted(
    play: Played, tracer: Tracer
) -> None:
    play.do(CREATE)
    before = tracer.read().losses["unknown_release"]
    assert play.codes("0 cuMemRelease 77") == [1]
    assert play.in_use() == {DEVICE: (PAGE, 1)}
    assert tracer.read().losses["unknown_release"] == before + 1


@pytest.mark.parametrize(
    ("before", "refused", "after"),
    [([], RELEASE, RELEASE), ([RESERVE, MAP, RELEASE], UNMAP, UNMAP)],
)
def test_what_the_driver_refuses_to_release_or_to_unmap_is_still_in_use(
    play: Played, before: list[str], refused: str, after: str
) -> None:
    play.do(CREATE, *before)
    assert play.codes("0 standin_refuse_frees 1", refused) == [0, 719]
    assert play.in_use() == {DEVICE: (PAGE, 1)}
    play.do(after)
    assert play.in_use() == {}


def test_reserved_addresses_are_no_memory(play: Played, tracer: Tracer) -> None:
    play.do(f"0 cuMemAddressReserve r9 {64 * PAGE} 0 0 0")
    assert play.in_use() == {}
    play.do(f"0 cuMemAddressFree r9 {64 * PAGE}")
    assert freed(tracer.read(), play.pid) == (0, 0)


def test_a_multicast_handle_is_no_memory(play: Played, tracer: Tracer) -> None:
    play.do(CREATE, RESERVE, f"0 cuMulticastCreate r11 2 {PAGE}", f"0 cuMemMap r9 {PAGE} 0 r11 0")
    assert play.in_use() == {DEVICE: (PAGE, 1)}
    play.do("0 cuMemRelease r11", UNMAP)
    assert play.in_use() == {DEVICE: (PAGE, 1)}
    assert freed(tracer.read(), play.pid) == (0, 0)


def test_an_imported_handle_is_never_owned_memory(play: Played) -> None:
    play.do(CREATE, RESERVE, "0 cuMemExportToShareableHandle r11 r10 1 0")
    play.do(
        "0 cuMemImportFromShareableHandle r12 r11 1", f"0 cuMemMap r9 {PAGE} 0 r12 0", "0 cuMemRelease r12"
    )
    assert play.in_use() == {DEVICE: (PAGE, 1), ("imported", "0"): (PAGE, 1)}
    play.do(UNMAP)
    assert play.in_use() == {DEVICE: (PAGE, 1)}


def test_the_value_of_a_handle_that_is_given_again_is_other_memory(play: Played) -> None:
    play.do(CREATE, RELEASE, f"0 cuMemCreate r11 {3 * PAGE} 1 1 0")
    assert play.value("r10") == play.value("r11"), "the test is about a driver that gives handles again"
    assert play.in_use() == {("device", "1"): (3 * PAGE, 1)}


def test_handles_go_with_their_process(play: Played, tracer: Tracer) -> None:
    play.do(CREATE, RESERVE, MAP, RELEASE, "0 cuMemCreate r11 2097152 1 1 0")
    play.kill()
    assert freed(tracer.read(), play.pid) == (2 * PAGE, 2)
    assert freed(tracer.read(), play.pid) == (2 * PAGE, 2), "a second reading does not free them again"

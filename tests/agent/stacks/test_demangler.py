# SPDX-License-Identifier: Apache-2.0
"""Names as written, from names as linked; and names that were made to do harm."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpuheap.stacks.demangler import MAX_NAME_CHARACTERS, Demangler


@pytest.fixture(scope="module")
def demangler() -> Iterator[Demangler]:
    demangler = Demangler()
    yield demangler
    demangler.close()


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("cuMemAlloc_v2", "cuMemAlloc_v2"),
        ("_ZN2at6native5emptyEv", "at::native::empty()"),
        (
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "std::vector<int, std::allocator<int> >::push_back(int const&)",
        ),
        (
            "_ZN4core3ptr75drop_in_place$LT$std..rt..lang_start$LT$$LP$$RP$$GT$..$u7b$closure$u7d$$GT$17h0123456789abcdefE",
            "core::ptr::drop_in_place<std::rt::lang_start<()>::{closure}>",
        ),
        ("_ZN3foo3bar17h0123456789abcdefE", "foo::bar"),
        ("_Z", "_Z"),
        ("_ZZZZZ", "_ZZZZZ"),
        ("_Zname\nother", "_Zname\nother"),
    ],
)
def test_names_are_as_their_authors_wrote_them(demangler: Demangler, name: str, readable: str) -> None:
    assert demangler.readable(name) == readable


def doubled(times: int) -> str:
    """A function of a type that is built of the one before twice, again and again."""
    return "_Z1fPFiiE" + "".join(f"PFS{_number(i)}_S{_number(i)}_E" for i in range(times))


def _number(index: int) -> str:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "" if index == 0 else digits[index - 1] if index <= 36 else "Z"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(doubled(36), id="it expands without end"),
        pytest.param("_Z1f" + "P" * 4000 + "i", id="it is deep"),
        pytest.param("_Z1f" + "F" * 4000, id="it is deep and wrong"),
    ],
)
def test_a_name_made_to_do_harm_is_left_as_it_is_or_cut_and_the_next_is_read(
    demangler: Demangler, name: str
) -> None:
    found = demangler.readable(name)
    assert found == name or len(found) <= MAX_NAME_CHARACTERS + 1
    assert demangler.readable("_Z1gv") == "g()"


def test_a_name_that_is_too_long_is_cut_and_says_so(demangler: Demangler) -> None:
    assert demangler.readable("x" * 5000) == "x" * MAX_NAME_CHARACTERS + "…"


def test_a_closed_demangler_leaves_names_as_they_are() -> None:
    demangler = Demangler()
    demangler.close()
    assert demangler.readable("_Z1gv") == "_Z1gv"


def test_its_process_may_be_ended_by_others() -> None:
    demangler = Demangler()
    assert demangler.readable("_Z1gv") == "g()"
    process = demangler._process
    assert process is not None
    process.kill()
    process.wait()
    assert demangler.readable("_Z1hv") == "h()"
    assert demangler.failures == 0


def test_names_are_read_when_very_many_files_are_open() -> None:
    """select(2) takes no descriptor above 1,023."""
    script = (
        "import os, resource; from gpuheap.stacks.demangler import Demangler\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))\n"
        "while os.open(os.devnull, os.O_RDONLY) < 1023: pass\n"
        "print(Demangler().readable('_Z1gv'))"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (answer.stdout, answer.stderr) == ("g()\n", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give up capabilities")
@pytest.mark.parametrize("kept", ["-all", "-setuid,-setgid", "+all"])
def test_names_are_read_with_whatever_rights_the_agent_has_and_none_are_kept(kept: str) -> None:
    """A container's root may not be allowed to become another user."""
    script = (
        "from gpuheap.stacks.demangler import Demangler; demangler = Demangler(); print(demangler.readable('_Z1gv'));"
        "print(open(f'/proc/{demangler._process.pid}/status').read())"
    )
    bound = ["setpriv", f"--bounding-set={kept}"]
    answer = subprocess.run(
        [*bound, sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    name, _, status = answer.partition("\n")
    assert name == "g()"
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)

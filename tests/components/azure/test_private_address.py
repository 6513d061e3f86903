# SPDX-License-Identifier: Apache-2.0
"""From where a private workspace can be spoken to."""

import socket
from typing import Any

import pytest

from components.azure.patience import Patience
from components.azure.private_address import NotReachable, answers, await_private_address, leads_nowhere
from tests.components.azure.conftest import Clock

ENDPOINT = "https://team-abc.weu.grafana.azure.com"


class Resolver:
    """Answers with each of these in turn, and with the last one from then on."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers, self.asked = list(answers), list[str]()

    def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        addresses = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]


def refuses(_endpoint: str) -> bool:
    return False


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_a_name_that_leads_to_the_private_endpoint_is_gone_by(patience: Patience) -> None:
    resolver = Resolver(["10.40.255.228"])
    await_private_address(ENDPOINT, patience, resolve=resolver)
    assert resolver.asked == ["team-abc.weu.grafana.azure.com"]


def test_a_record_that_was_just_written_is_waited_for(patience: Patience, told: list[str]) -> None:
    await_private_address(
        ENDPOINT, patience, resolve=Resolver(["20.4.5.6"], [], ["10.40.255.228"]), answers=refuses
    )
    assert "20.4.5.6, which is no private address" in told[0]
    assert "leads nowhere" in told[1]


@pytest.mark.parametrize(
    ("answer", "seen"), [(["20.4.5.6"], "20.4.5.6"), ([], "leads nowhere (Name or service not known)")]
)
def test_from_outside_it_is_said_what_is_missing_and_what_to_do(
    answer: list[str], seen: str, patience: Patience, clock: Clock
) -> None:
    with pytest.raises(NotReachable) as caught:
        await_private_address(ENDPOINT, patience, resolve=Resolver(answer), answers=refuses)
    text = str(caught.value)
    assert seen in text
    for way_out in (
        "gpuheap:grafana.privateAccess.networks",
        "--continue-on-error",
        "gpuheap:grafana.publicAccess",
    ):
        assert way_out in text
    assert clock.now <= patience.seconds


@pytest.mark.parametrize("address", ["100.64.3.4", "fd00::5", "127.0.0.1"])
def test_every_range_that_is_not_the_internets_is_private(address: str, patience: Patience) -> None:
    # 100.64.0.0/10 may be a virtual network's, as RFC 1918's ranges may
    await_private_address(ENDPOINT, patience, resolve=Resolver([address]), answers=refuses)


def test_a_network_with_public_addresses_inside_reaches_what_answers(patience: Patience) -> None:
    asked: list[str] = []

    def well(endpoint: str) -> bool:
        asked.append(endpoint)
        return True

    await_private_address(ENDPOINT, patience, resolve=Resolver(["20.4.5.6"]), answers=well)
    assert asked == [ENDPOINT]


def test_a_workspace_answers_whoever_reaches_it(workspace: str) -> None:
    assert answers(workspace)
    assert not answers(f"{workspace}-of-nobody")
    assert not answers("https://127.0.0.1:1")


@pytest.mark.parametrize(
    ("number", "nowhere"), [(socket.EAI_NONAME, True), (socket.EAI_NODATA, True), (socket.EAI_AGAIN, False)]
)
def test_only_an_answer_says_that_there_is_no_such_name(number: int, nowhere: bool) -> None:
    def resolve(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(number, "")

    assert leads_nowhere(ENDPOINT, resolve=resolve) is nowhere
    assert not leads_nowhere(ENDPOINT, resolve=Resolver(["10.40.255.228"]))


def test_behind_a_proxy_the_name_is_the_proxys_to_resolve(
    patience: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    resolver = Resolver(["20.4.5.6"])
    await_private_address(ENDPOINT, patience, resolve=resolver)
    assert not leads_nowhere(ENDPOINT, resolve=resolver)
    assert resolver.asked == []

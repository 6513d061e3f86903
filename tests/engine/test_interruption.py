# SPDX-License-Identifier: Apache-2.0
"""An `up` that is killed while creations are under way, and one in which Azure's operations end badly and its answers
get lost; what `python -m recovery` makes of both, and that nobody sees a credential meanwhile.

The tests of this file share one deployment and run in the order in which they stand.
"""

import json
from dataclasses import replace

import pytest
import yaml

from localcloud.azure.records import CUT_OFF, UNANSWERED, Fault
from localcloud.azure.store import Store
from localcloud.cloud import LocalCloud
from localcloud.engine import CHECKOUT, Ended, Engine
from tests.engine.interruptions import CommandLines, credentials_in, recovery

pytestmark = [pytest.mark.usefixtures("prepared"), pytest.mark.engine, pytest.mark.cluster]

NETWORK, IDENTITY = "network:VirtualNetwork", "managedidentity:UserAssignedIdentity"
PASSPHRASE = "correct horse battery staple"
HELM = "Helm installation from path [] for release [gadget] failed: timed out waiting for the condition"
KILLED = Fault(method="PUT", path="", status=UNANSWERED, code="Killed", each=True)


@pytest.fixture(scope="module")
def store(local_cloud: LocalCloud) -> Store:
    return Store(local_cloud.state / "store.db")


@pytest.fixture(scope="module")
def killed(local_cloud: LocalCloud, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Killed when Azure has made the network and not the identity, and has answered to neither."""
    config = tmp_path_factory.mktemp("config") / "Pulumi.dev.yaml"
    values = yaml.safe_load((CHECKOUT / config.name).read_text())
    del values["encryptionsalt"]  # of another passphrase
    config.write_text(yaml.safe_dump(values))
    engine = Engine(cloud=local_cloud, config_file=config)
    engine.create()
    engine = replace(engine, passphrase=PASSPHRASE)
    for kind, after in (("virtualNetworks", True), ("userAssignedIdentities", False)):
        store.add_fault(replace(KILLED, path=f"/{kind}/[^/]+$", after=after))
    ended = engine.up_killed_when(lambda: len(store.unanswered()) == 2)
    assert ended.killed, ended.printed
    # As it is found when the engine died while it wrote its state.
    (note,) = (local_cloud.state / "pulumi-state" / ".pulumi" / "stacks").rglob("dev.json.attrs")
    note.write_bytes(b"")
    return engine


def test_a_lock_that_may_be_somebodys_is_left_alone(killed: Engine) -> None:
    done = recovery(killed)
    assert done.returncode == 1
    assert "run this again with --unlock" in done.stdout


def test_what_was_made_is_in_the_state_and_what_was_not_is_forgotten(killed: Engine) -> None:
    done = recovery(killed, "--unlock")
    assert done.returncode == 0, done.stdout
    deployment = killed.state()["deployment"]
    assert not deployment.get("pending_operations")
    made = {one["type"].removeprefix("azure-native:") for one in deployment["resources"]}
    assert NETWORK in made
    assert IDENTITY not in made


@pytest.fixture(scope="module")
def failed(killed: Engine, store: Store) -> Ended:
    """The extension's operation ends badly, and Azure's answer about the GPU pool does not arrive."""
    failing = Fault(method="PUT", path="/extensions/[^/]+$", status=409, code="ExtensionOperationFailed")
    store.add_fault(replace(failing, message=HELM, after=True))
    store.add_fault(replace(failing, path="/agentPools/[^/]+$", status=CUT_OFF, times=4, after=True))
    ended = killed.up_killed_when(lambda: False, "--continue-on-error", "--color", "never")
    assert ended.failed, ended.printed
    return ended


def test_how_an_operation_of_azure_ended_is_shown_in_its_own_words(failed: Ended) -> None:
    assert f'Code="ExtensionOperationFailed" Message="{HELM}"' in failed.printed


def test_what_was_made_and_not_answered_is_taken_into_the_state_by_its_id(
    failed: Ended, killed: Engine, store: Store
) -> None:
    (pool,) = store.resources(token="azure-native:containerservice:AgentPool")
    assert pool.id not in json.dumps(killed.state())
    done = recovery(killed, "--adopt", pool.id)
    assert done.returncode == 0, done.stdout
    ids = [one.get("id") for one in killed.state()["deployment"]["resources"]]
    assert ids.count(pool.id) == 1


def test_the_next_up_goes_on_and_shows_nobody_a_credential(
    failed: Ended, killed: Engine, local_cloud: LocalCloud
) -> None:
    lines = CommandLines()

    def look() -> bool:
        lines.look()
        return False

    ended = killed.up_killed_when(look, "--logtostderr", "-v=9")
    assert not ended.failed, ended.printed[-4000:]
    assert len(ended.printed) > 100_000, "the engine writes what it does"
    texts = [json.dumps(killed.state()), ended.printed, *lines.seen]
    assert not credentials_in(texts, local_cloud, PASSPHRASE)
    killed.preview(expect_no_changes=True)


def test_where_nothing_is_unfinished_a_recovery_changes_nothing(failed: Ended, killed: Engine) -> None:
    kept = killed.cloud.state / "pulumi-state"
    before = {file: file.read_bytes() for file in kept.rglob("*") if file.is_file()}
    done = recovery(killed)
    assert (done.returncode, done.stdout.strip()) == (0, "nothing is unfinished")
    assert {file: file.read_bytes() for file in kept.rglob("*") if file.is_file()} == before

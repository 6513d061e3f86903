# SPDX-License-Identifier: Apache-2.0
"""Every creation, in Azure and in Kubernetes, fails once, in one of the ways in which creations fail; then the stack is
there, once; and it goes though every deletion fails once, and the cluster does not answer.

One deployment of an example stack, brought up again and again until nothing fails any more. `GPUHEAP_FAILURES_STACK`
says of which, `GPUHEAP_FAILURES_TURN` which fails how (`failures.py`): without it these tests are skipped, as they
take ten minutes. `make test-failures` takes all turns.
The tests of this file share the deployment and run in the order in which they stand.
"""

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

import pytest
import yaml

from localcloud.azure.records import UNANSWERED, Fault
from localcloud.azure.store import Store
from localcloud.azure.types_cluster import node_resource_group_id
from localcloud.cloud import LocalCloud
from localcloud.engine import Ended, Engine
from localcloud.kube import gateway
from tests.engine import failures
from tests.engine.interruptions import (
    CommandLines,
    Killer,
    api_server,
    credentials_in,
    recovery,
    silenced,
)

STACK: Final = os.environ.get("GPUHEAP_FAILURES_STACK", "dev")
TURN: Final = int(os.environ.get("GPUHEAP_FAILURES_TURN", "-1"))

pytestmark = [
    pytest.mark.usefixtures("prepared"),
    pytest.mark.engine,
    pytest.mark.cluster,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(TURN < 0, reason="ten minutes: `make test-failures STACKS=dev TURNS=0`"),
]

MOST_TRIES: Final = 60
HELM_REFUSES: Final = "another operation (install/upgrade/rollback) is in progress"

deleting = pytest.mark.skipif(TURN > 0, reason="a deleted cluster is the same after each turn: turn 0 has it")
killing = pytest.mark.skipif(TURN == failures.LOST_TURN, reason="no creation hangs in this turn")


@dataclass(slots=True)
class Tries:
    """What was seen of the tries to bring the stack up: the last one succeeded."""

    states: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    command_lines: CommandLines = field(default_factory=CommandLines)
    cut_short: set[str] = field(default_factory=set)
    """The paths whose failure may not have been shown yet when the engine was killed."""
    without_unlock: str = ""
    """What the recovery after the first kill printed, that was not told that the lock is nobody's."""


@pytest.fixture(scope="module")
def store(local_cloud: LocalCloud) -> Store:
    kubeconfig = local_cloud.endpoints.kubeconfig
    kubeconfig.write_text(gateway.through(kubeconfig.read_text(), local_cloud.endpoints.arm))
    store = Store(local_cloud.state / "store.db")
    for rule in failures.rules(TURN):
        store.add_fault(rule)
    return store


@pytest.fixture(scope="module")
def engine(local_cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    config = tmp_path_factory.mktemp("config") / f"Pulumi.{STACK}.yaml"
    config.write_text(yaml.safe_dump(failures.configuration(STACK)))
    engine = Engine(cloud=local_cloud, stack=STACK, config_file=config)
    engine.create()
    return engine


@pytest.fixture(scope="module")
def tries(engine: Engine, store: Store) -> Tries:
    tries = Tries()
    for _ in range(MOST_TRIES):
        before, killer = store.met(), Killer(store, tries.command_lines)
        ended = engine.up_killed_when(killer, "--continue-on-error", "--color", "never")
        tries.printed.append(ended.printed)
        if ended.killed:
            tries.cut_short |= store.met() - before
            tries.without_unlock = tries.without_unlock or first_recovery(engine)
        tries.printed.append(recover(engine, ended))
        tries.states.append(json.dumps(engine.state()))
        if not ended.failed:
            return tries
    pytest.fail(f"after {MOST_TRIES} tries it still fails:\n{tries.printed[-1]}")


def first_recovery(engine: Engine) -> str:
    """After an engine that died while it wrote its state, and by somebody who does not know that it is dead."""
    (note,) = (engine.cloud.state / "pulumi-state" / ".pulumi" / "stacks").rglob(f"{engine.stack}.json.attrs")
    note.write_bytes(b"")
    done = recovery(engine)
    assert done.returncode == 1
    return done.stdout


def recover(engine: Engine, ended: Ended) -> str:
    """What the README says to do after a `pulumi up` that was killed, or that says so. Returns what it printed."""
    adopted = re.findall(r"cannot create already existing resource '([^']+)'", ended.printed)
    if not (ended.killed or adopted or HELM_REFUSES in ended.printed):
        return ""
    options = [option for id in sorted(set(adopted)) for option in ("--adopt", id)]
    done = recovery(engine, *(["--unlock"] if ended.killed else []), *options)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_creation_has_failed_once(tries: Tries, store: Store) -> None:
    met = store.met()
    expected = azure_resources(tries.states[-1])
    assert len(expected) > 15, "the example stacks have more resources than that"
    assert expected - met == set()
    objects = kubernetes_objects(tries.states[-1])
    assert len(objects) > 10
    assert {one for one in objects if not any(path.endswith(one) for path in met)} == set()


@pytest.mark.skipif(TURN > 0, reason="only turn 0 has every way among the types of every stack")
def test_creations_have_failed_in_every_way(tries: Tries, store: Store) -> None:
    met = store.met()
    ways = {
        (rule.method == "PUT", rule.code)
        for rule in failures.rules(TURN)
        if any(re.search(rule.path, path, re.IGNORECASE) for path in met)
    }
    assert {(True, code) for code in failures.AZURE} - ways == set()
    assert {(False, code) for code in failures.KUBERNETES} - ways == set()


def test_every_refusal_was_shown_in_the_servers_own_words(tries: Tries, store: Store) -> None:
    printed = "\n".join(tries.printed)
    met = store.met() - tries.cut_short
    for rule in failures.rules(TURN):
        if rule.status == UNANSWERED or rule in failures.GRAFANA_AND_APPROVAL or rule.method == "POST":
            continue
        if any(re.search(rule.path, path, re.IGNORECASE) for path in met):
            assert failures.shown(rule) in printed


@killing
def test_a_lock_that_may_be_somebodys_is_left_alone(tries: Tries) -> None:
    assert "run this again with --unlock" in tries.without_unlock


@killing
def test_what_was_made_when_the_engine_was_killed_is_in_the_state_and_what_was_not_is_forgotten(
    tries: Tries,
) -> None:
    recovered = re.findall(
        r"(\d+) had been made and are in the state now, (\d+) are left", "\n".join(tries.printed)
    )
    made, not_made = (sum(int(number) for number in column) for column in zip(*recovered, strict=True))
    assert made
    assert not_made


def test_what_is_there_is_what_the_state_holds(tries: Tries, store: Store) -> None:
    ours = {id for resource in store.resources() if not of_the_cloud(id := resource.id.lower())}
    assert ours == azure_resources(tries.states[-1]), "nothing twice, nothing forgotten"


def test_no_creation_has_had_its_effect_twice(tries: Tries, store: Store) -> None:
    events = Counter((event.verb, event.id.lower()) for event in store.events())
    for (verb, id), times in events.items():
        if verb == "create" and not of_the_cloud(id):
            assert times - events["delete", id] == 1, f"{id} was created {times} times"


def test_the_stack_has_converged(tries: Tries, engine: Engine, store: Store) -> None:
    store.clear_faults()
    engine.refresh()
    engine.preview(expect_no_changes=True)


def test_no_credential_stood_in_a_state_an_output_a_log_or_on_a_command_line(
    tries: Tries, local_cloud: LocalCloud
) -> None:
    assert len(tries.command_lines.seen) > 10
    assert not credentials_in([*tries.states, *tries.printed, *tries.command_lines.seen], local_cloud)


@deleting
def test_refresh_says_what_is_gone_with_a_cluster_that_somebody_deleted(
    tries: Tries, engine: Engine, store: Store
) -> None:
    (cluster,) = store.resources(token="azure-native:containerservice:ManagedCluster")
    for id in (cluster.id, node_resource_group_id(cluster)):
        store.delete_resource(id, actor="somebody")
    with silenced(api_server(engine.cloud)):
        printed = engine.refresh_preview()
    gone = set(re.findall(r"^ *- +(\S+) \S+", printed, re.MULTILINE))
    assert gone >= {
        "azure-native:containerservice:ManagedCluster",
        "azure-native:kubernetesconfiguration:Extension",
        "kubernetes:core/v1:Namespace",
        "kubernetes:helm.sh/v3:Release",
    }


@deleting
def test_destroy_leaves_nothing_though_the_cluster_is_gone_each_deletion_fails_and_it_is_killed(
    tries: Tries, engine: Engine, store: Store
) -> None:
    deletions_fail(store)
    with silenced(api_server(engine.cloud)):
        destroy(tries, engine, store)
    assert store.resources() == []
    assert not azure_resources(json.dumps(engine.state()))


@pytest.mark.skipif(TURN == 0, reason="turn 0 destroys it in another way")
def test_destroy_leaves_nothing_though_in_turn_1_each_deletion_fails_and_it_is_killed(
    tries: Tries, engine: Engine, store: Store
) -> None:
    if TURN == 1:
        deletions_fail(store)
    destroy(tries, engine, store)
    assert store.resources() == []
    assert not azure_resources(json.dumps(engine.state()))


def deletions_fail(store: Store) -> None:
    killed = Fault(method="DELETE", path="", status=UNANSWERED, code="Killed", each=True)
    for number, kind in enumerate(("accounts", "prometheusRuleGroups")):
        store.add_fault(replace(killed, path=f"/{kind}/[^/]+$", after=bool(number)))
    store.add_fault(Fault(method="DELETE", path="", status=409, code="Conflict", each=True))


def destroy(tries: Tries, engine: Engine, store: Store) -> None:
    """Again and again, until nothing fails."""
    for _ in range(MOST_TRIES):
        ended = engine.destroy_killed_when(Killer(store, tries.command_lines), "--continue-on-error")
        if ended.killed:
            recover(engine, ended)
        elif not ended.failed:
            return
    pytest.fail(f"after {MOST_TRIES} tries it still fails:\n{ended.printed}")


def azure_resources(state: str) -> set[str]:
    resources = json.loads(state)["deployment"].get("resources", ())
    return {one["id"].lower() for one in resources if one["type"].startswith("azure-native:")}


def kubernetes_objects(state: str) -> set[str]:
    """The ends of the paths of the objects that the program makes itself, not by Helm."""
    found = set()
    for one in json.loads(state)["deployment"]["resources"]:
        package, _, kind = one["type"].rpartition(":")
        if package.startswith("kubernetes:") and not re.search(r"helm\.sh|Patch$", one["type"]):
            name = one["id"].rpartition("/")[2]
            plural = re.sub("ys$", "ies", re.sub("ss$", "sse", kind.lower()) + "s")
            found.add(f"/{plural}/{name}")
    return found


def of_the_cloud(id: str) -> bool:
    """Made by Azure itself or by the cluster's cloud controller, and not by the program."""
    return bool(
        re.search("/privatelinkservices/|/privateendpointconnections/|/resourcegroups/[^/]*-nodes$", id)
    )

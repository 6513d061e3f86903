# SPDX-License-Identifier: Apache-2.0
"""An `up` that is killed while creations are under way, and what `python -m recovery` makes of it.

The tests of this file share one deployment and run in the order in which they stand.
"""

import subprocess
import sys

import pytest

from localcloud.azure.records import UNANSWERED, Fault
from localcloud.azure.store import Store
from localcloud.cloud import LocalCloud
from localcloud.engine import CHECKOUT, Engine

pytestmark = [pytest.mark.usefixtures("prepared"), pytest.mark.engine, pytest.mark.cluster]

NETWORK, IDENTITY = "network:VirtualNetwork", "managedidentity:UserAssignedIdentity"


@pytest.fixture(scope="module")
def killed(local_cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Killed when Azure has made the network and not the identity, and has answered to neither."""
    config = tmp_path_factory.mktemp("config") / "Pulumi.dev.yaml"
    config.write_text((CHECKOUT / "Pulumi.dev.yaml").read_text())
    engine = Engine(cloud=local_cloud, config_file=config)
    engine.create()
    store = Store(local_cloud.state / "store.db")
    for kind, after in (("virtualNetworks", True), ("userAssignedIdentities", False)):
        store.add_fault(
            Fault(
                method="PUT", path=f"/{kind}/[^/]+$", status=UNANSWERED, code="Killed", each=True, after=after
            )
        )
    ended = engine.up_killed_when(lambda: len(store.unanswered()) == 2)
    assert ended.killed, ended.printed
    # As it is found when the engine died while it wrote its state.
    (note,) = (local_cloud.state / "pulumi-state" / ".pulumi" / "stacks").rglob("dev.json.attrs")
    note.write_bytes(b"")
    return engine


def recovery(engine: Engine, *more: str) -> subprocess.CompletedProcess[str]:
    options = ["--stack", engine.stack, "--config-file", str(engine.config_file), *more]
    return subprocess.run(
        [sys.executable, "-m", "recovery", *options],
        cwd=CHECKOUT,
        env=engine.cloud.environment(),
        capture_output=True,
        text=True,
    )


def test_a_lock_that_may_be_somebodys_is_left_alone(killed: Engine) -> None:
    done = recovery(killed)
    assert done.returncode == 1
    assert "run this again with --unlock" in done.stderr


def test_what_was_made_is_in_the_state_and_what_was_not_is_forgotten(killed: Engine) -> None:
    done = recovery(killed, "--unlock")
    assert done.returncode == 0, done.stderr
    deployment = killed.state()["deployment"]
    assert not deployment.get("pending_operations")
    made = {one["type"].removeprefix("azure-native:") for one in deployment["resources"]}
    assert NETWORK in made
    assert IDENTITY not in made


def test_the_next_up_goes_on(killed: Engine) -> None:
    killed.up()
    killed.preview(expect_no_changes=True)

# SPDX-License-Identifier: Apache-2.0
"""Simulated Azure over HTTP, with a Private Link Service and a Grafana in it, and a clock that nobody waits for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from azure.core.pipeline.transport import RequestsTransport

from components.azure.patience import Patience
from components.roles import GRAFANA_ADMIN
from localcloud.azure.functions import DEPLOYER_OBJECT
from localcloud.azure.records import Resource
from localcloud.azure.server import Servers, serve
from localcloud.azure.store import Store
from localcloud.kube.certificates import CertificateAuthority

GROUP: Final = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg"
SERVICE_ID: Final = f"{GROUP}/providers/Microsoft.Network/privateLinkServices/pyroscope"
WORKSPACE_ID: Final = f"{GROUP}/providers/Microsoft.Dashboard/grafana/dashboards"
ENDPOINT_ID: Final = f"{WORKSPACE_ID}/managedPrivateEndpoints/pyroscope"
MESSAGE: Final = "gpuheap rg/dashboards/pyroscope"


@dataclass(kw_only=True)
class Clock:
    """Time passes only while somebody waits; `at` says what happens meanwhile."""

    now: float = 0.0
    at: dict[float, Callable[[], Any]] = field(default_factory=dict)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds
        for moment in sorted(moment for moment in self.at if moment <= self.now):
            self.at.pop(moment)()


class Hurried(RequestsTransport):
    """Real requests; the pauses between the polls of an operation pass on the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def sleep(self, duration: float) -> None:
        self._clock.sleep(duration)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[str]:
    """What was said while waiting."""
    return []


@pytest.fixture
def patience(clock: Clock, told: list[str]) -> Patience:
    return Patience(clock=clock, progress=told.append, interval_seconds=20)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.in_folder(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def azure(
    authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Servers]]:
    """Azure, and the environment in which its own libraries find it: one for the tests of a module, as processes that
    they share are told of it when they start.
    """
    folder = tmp_path_factory.mktemp("azure")
    store, issued = Store(folder / "store.db"), authority.issue(folder, "azure")
    with (
        serve(
            store,
            tls_certificate=issued.certificate,
            tls_key=issued.key,
            pyroscope_address="127.0.0.1",
            pyroscope_port=0,
        ) as servers,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("IDENTITY_ENDPOINT", servers.identity)
        environment.setenv("IDENTITY_HEADER", servers.identity_header)
        environment.setenv("REQUESTS_CA_BUNDLE", str(authority.certificate_path))
        environment.setenv("GPUHEAP_ARM_ENDPOINT", servers.arm)
        yield store, servers
    store.close()


@pytest.fixture
def servers(azure: tuple[Store, Servers]) -> Servers:
    return azure[1]


@pytest.fixture
def store(azure: tuple[Store, Servers]) -> Iterator[Store]:
    """With a Private Link Service, and nothing else."""
    store, _ = azure
    store.create_resource(
        Resource(
            id=SERVICE_ID, token="azure-native:network:PrivateLinkService", outputs={"name": "pyroscope"}
        ),
        actor="test",
    )
    yield store
    store.clear_faults()
    for resource in store.resources():
        store.delete_resource(resource.id, actor="test")


@pytest.fixture
def workspace(store: Store, servers: Servers) -> str:
    """The endpoint of a Grafana workspace in which nobody has a role yet."""
    endpoint = f"{servers.arm}/grafana/dashboards"
    store.create_resource(
        Resource(
            id=WORKSPACE_ID,
            token="azure-native:dashboard:Grafana",
            outputs={
                "name": "dashboards",
                "location": "westeurope",
                "sku": {"name": "Standard"},
                "properties": {"endpoint": endpoint},
            },
        ),
        actor="test",
    )
    return endpoint


def grant(store: Store) -> None:
    """Make whoever deploys an administrator of the workspace."""
    definition = f"/subscriptions/0/providers/Microsoft.Authorization/roleDefinitions/{GRAFANA_ADMIN}"
    outputs = {"principalId": DEPLOYER_OBJECT, "roleDefinitionId": definition, "scope": WORKSPACE_ID}
    store.create_resource(
        Resource(
            id=f"{WORKSPACE_ID}/providers/Microsoft.Authorization/roleAssignments/1",
            token="azure-native:authorization:RoleAssignment",
            outputs=outputs,
        ),
        actor="test",
    )

# SPDX-License-Identifier: Apache-2.0
"""Approves the one private endpoint connection that is ours, and has Grafana notice it.

Azure leaves this step without a declarative form: Grafana's endpoint asks for a connection under a name that
nobody knows beforehand, and whoever owns the Private Link Service has to agree. Nothing here imports pulumi.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

from azure.core.credentials import TokenCredential
from azure.core.exceptions import ResourceNotFoundError
from azure.mgmt.core.tools import parse_resource_id
from azure.mgmt.dashboard import DashboardManagementClient
from azure.mgmt.dashboard.models import ManagedPrivateEndpointModel, ManagedPrivateEndpointModelProperties
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.network.models import (
    PrivateEndpointConnection,
    PrivateEndpointConnectionProperties,
    PrivateLinkServiceConnectionState,
)

from .connection_states import APPROVED, DISCONNECTED, PENDING, REJECTED
from .patience import NotYet, Patience


class ApprovalError(Exception):
    """The connection cannot be approved safely; the text lists the connections that were seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Which connection is ours: that of this endpoint, to this service, with this message."""

    managed_private_endpoint_id: str
    private_link_service_id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A private endpoint connection as the Private Link Service shows it."""

    name: str
    status: str
    message: str
    endpoint_id: str

    @classmethod
    def of(cls, model: PrivateEndpointConnection) -> Self:
        state = model.private_link_service_connection_state
        return cls(
            name=model.name or "",
            status=_text(state and state.status),
            message=(state and state.description) or "",
            endpoint_id=(model.private_endpoint and model.private_endpoint.id) or "",
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.status}, message {self.message!r}, endpoint {self.endpoint_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointState:
    """What Grafana knows of its endpoint."""

    status: str
    private_ip: str


class PrivateEndpointApprover:
    """Talks to one Private Link Service and one Grafana workspace through the official clients, until closed."""

    def __init__(
        self,
        *,
        network: NetworkManagementClient,
        dashboard: DashboardManagementClient,
        request: Request,
        patience: Patience,
    ) -> None:
        self._network, self._dashboard, self._request, self._patience = network, dashboard, request, patience
        endpoint = _parts(request.managed_private_endpoint_id)
        self._workspace = {
            "resource_group_name": endpoint["resource_group"],
            "workspace_name": endpoint["name"],
        }
        self._endpoint_name = endpoint["resource_name"]
        # Azure names the endpoint so in its own subscription. Not documented, hence never the only criterion.
        self._endpoint_suffix = f"grafana-{endpoint['name']}-{self._endpoint_name}".lower()
        service = _parts(request.private_link_service_id)
        self._service = {"resource_group_name": service["resource_group"], "service_name": service["name"]}

    @classmethod
    def connect(
        cls,
        request: Request,
        *,
        credential: TokenCredential,
        arm_endpoint: str,
        arm_scope: str,
        patience: Patience,
        **transport: Any,
    ) -> Self:
        """An approver whose clients leave every repetition to `patience`, where it is bounded and seen."""
        options: dict[str, Any] = {
            "credential": credential,
            "base_url": arm_endpoint,
            "credential_scopes": [arm_scope],
            "retry_total": 0,
            "polling_interval": patience.interval_seconds,
            **transport,
        }
        service, endpoint = request.private_link_service_id, request.managed_private_endpoint_id
        return cls(
            network=NetworkManagementClient(subscription_id=_parts(service)["subscription"], **options),
            dashboard=DashboardManagementClient(subscription_id=_parts(endpoint)["subscription"], **options),
            request=request,
            patience=patience,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._network.close()
        self._dashboard.close()

    def approve(self) -> EndpointState:
        """Approves the connection, if that is still to be done, and waits until Grafana says so too. Safe to
        repeat.

        Raises ApprovalError when no single connection is ours, or ours was rejected; DeadlinePassed when
        Azure takes too long.
        """
        wait = self._patience.wait
        connection = wait("private endpoint connection", self._our_connection)
        if connection.status == PENDING:
            wait(f"approval of {connection.name}", lambda: self._accept(connection))
        return wait("refresh of Grafana", self._refreshed)

    def mend(self) -> EndpointState:
        """Approves a connection that was approved once. One that was rejected or removed since cannot come back: then
        the endpoint is made anew, as it was, and asks for another. Raises as `approve` does.
        """
        wait = self._patience.wait
        state = self.state()
        if state is not None and state.status in (REJECTED, DISCONNECTED):
            model = wait("managed private endpoint", self._endpoint)
            wait("removal of the endpoint that lost its connection", self._remove_endpoint)
            wait("endpoint in its place", lambda: self._make_endpoint(model))
        return self.approve()

    def state(self) -> EndpointState | None:
        """What has become of the connection; None when the endpoint is gone.

        Grafana learns only by a refresh, so that of a connection it believes to be approved the service is asked.
        """
        try:
            state = self._patience.wait("managed private endpoint", self._endpoint_state)
        except ResourceNotFoundError:
            return None
        if state.status != APPROVED:
            return state
        try:
            ours = [
                one for one in self._patience.wait("connections", self._connections) if self._is_ours(one)
            ]
        except ResourceNotFoundError:
            ours = []
        if any(one.status == APPROVED for one in ours):
            return state
        return EndpointState(status=ours[0].status if ours else DISCONNECTED, private_ip="")

    def _our_connection(self) -> Connection:
        seen = self._connections()
        ours = [c for c in seen if self._is_ours(c) and c.status != DISCONNECTED]
        if not ours:
            raise NotYet(f"none is ours among {_listed(seen)}")
        if len(ours) > 1:
            raise ApprovalError(
                f"{len(ours)} connections look like ours, and only one may be approved. Remove what is not "
                f"from {self._request.private_link_service_id} and run `pulumi up` again. "
                f"Seen: {_listed(seen)}"
            )
        if ours[0].status not in (PENDING, APPROVED):
            raise ApprovalError(
                f"the connection is {ours[0].status}, and Azure takes that back only for a new one: run "
                f"`pulumi refresh`, then `pulumi up`, which makes the endpoint anew. Seen: {_listed(seen)}"
            )
        return ours[0]

    def _connections(self) -> list[Connection]:
        service = self._network.private_link_services.get(**self._service)
        return [Connection.of(model) for model in service.private_endpoint_connections or ()]

    def _is_ours(self, connection: Connection) -> bool:
        return (
            connection.endpoint_id.lower().endswith(self._endpoint_suffix)
            and connection.message == self._request.message
        )

    def _accept(self, connection: Connection) -> PrivateEndpointConnection:
        return self._network.private_link_services.update_private_endpoint_connection(
            **self._service,
            pe_connection_name=connection.name,
            parameters=PrivateEndpointConnection(
                properties=PrivateEndpointConnectionProperties(
                    private_link_service_connection_state=PrivateLinkServiceConnectionState(
                        status=APPROVED,
                        # The message is how a repetition finds the connection: it must survive the approval.
                        description=connection.message,
                        actions_required="None",
                    )
                )
            ),
        )

    def _refreshed(self) -> EndpointState:
        self._dashboard.managed_private_endpoints.begin_refresh(**self._workspace).result()
        state = self._endpoint_state()
        if state.status == PENDING:
            raise NotYet(f"{self._endpoint_name} is still {state.status}")
        if state.status != APPROVED:
            raise ApprovalError(
                f"Grafana says that {self._endpoint_name} is {state.status}, but its connection is approved"
            )
        return state

    def _endpoint(self) -> ManagedPrivateEndpointModel:
        return self._dashboard.managed_private_endpoints.get(
            **self._workspace, managed_private_endpoint_name=self._endpoint_name
        )

    def _remove_endpoint(self) -> None:
        self._dashboard.managed_private_endpoints.begin_delete(
            **self._workspace, managed_private_endpoint_name=self._endpoint_name
        ).result()

    def _make_endpoint(self, before: ManagedPrivateEndpointModel) -> None:
        try:
            self._endpoint()
            return  # by an attempt before, whose answer was lost
        except ResourceNotFoundError:
            pass
        was = before.properties or ManagedPrivateEndpointModelProperties()
        wanted = ManagedPrivateEndpointModel(
            location=before.location,
            tags=before.tags,
            properties=ManagedPrivateEndpointModelProperties(
                private_link_resource_id=was.private_link_resource_id,
                private_link_resource_region=was.private_link_resource_region,
                group_ids=was.group_ids,
                request_message=was.request_message,
                private_link_service_url=was.private_link_service_url,
            ),
        )
        self._dashboard.managed_private_endpoints.begin_create(
            **self._workspace,
            managed_private_endpoint_name=self._endpoint_name,
            request_body_parameters=wanted,
        ).result()

    def _endpoint_state(self) -> EndpointState:
        model = self._endpoint()
        properties = model.properties
        connection = properties.connection_state if properties else None
        # The SDK gives a member of its enum for a value that it knows, and a string for one that it does not.
        status = connection.status if connection and connection.status else PENDING
        return EndpointState(
            status=str(getattr(status, "value", status)),
            private_ip=(properties and properties.private_link_service_private_ip) or "",
        )


def _text(value: str | Enum | None) -> str:
    """The clients give known words as members of an enumeration, and others as they came."""
    return str(value.value if isinstance(value, Enum) else value or "")


def _parts(resource_id: str) -> dict[str, str]:
    """`subscription`, `resource_group`, `name`, and `resource_name` of the innermost resource."""
    return {key: str(value) for key, value in parse_resource_id(resource_id).items()}


def _listed(connections: Sequence[Connection]) -> str:
    return "; ".join(map(str, connections)) or "no connection at all"

# SPDX-License-Identifier: Apache-2.0
"""The three things that Azure cannot be told declaratively, as Pulumi resources.

Thin: the work is done by `approval.py` and `grafana_api.py`. A user's state names the provider classes by
this module's path, and finds them again by it: never move or rename them. They hold no value and read their
credential from the environment of the process that runs them, so neither state nor plan contains one.
"""

import json
from typing import TYPE_CHECKING

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource, ResourceProvider, UpdateResult

from .connection_states import APPROVED
from .credentials import arm_endpoint, arm_scope, credential
from .patience import Patience
from .provider_state import Props, as_found, changed, content_diff, gone, grafana_of, looked_at

if TYPE_CHECKING:
    from .approval import EndpointState, PrivateEndpointApprover


class PrivateEndpointApprovalProvider(ResourceProvider):
    """Approves on creation, mends on update. Deleting does nothing: the connection goes with its endpoint."""

    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        replaces = changed(_olds, _news, "managedPrivateEndpointId", "privateLinkServiceId", "requestMessage")
        return DiffResult(changes=bool(replaces) or _olds.get("status") != APPROVED, replaces=replaces)

    def create(self, props: Props) -> CreateResult:
        with _approver(props) as approver:
            return CreateResult(props["managedPrivateEndpointId"], _approved(props, approver.approve()))

    def read(self, id_: str, props: Props) -> ReadResult:
        with _approver(props) as approver:
            state = approver.state()
        return gone() if state is None else ReadResult(id_, _approved(props, state))

    def update(self, _id: str, _olds: Props, _news: Props) -> UpdateResult:
        with _approver(_news) as approver:
            return UpdateResult(_approved(_news, approver.mend()))


class PrivateEndpointApproval(Resource, module="gpuheap", name="PrivateEndpointApproval"):
    """The approval of a managed private endpoint's connection. `status` is Grafana's word for it."""

    status: pulumi.Output[str]
    private_ip: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        *,
        managed_private_endpoint_id: pulumi.Input[str],
        private_link_service_id: pulumi.Input[str],
        request_message: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        inputs = {
            "managedPrivateEndpointId": managed_private_endpoint_id,
            "privateLinkServiceId": private_link_service_id,
            "requestMessage": request_message,
            "status": None,
            "privateIp": None,
        }
        super().__init__(PrivateEndpointApprovalProvider(), name, inputs, opts)


class GrafanaDataSourceProvider(ResourceProvider):
    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        return content_diff(_olds, _news)

    def create(self, props: Props) -> CreateResult:
        with grafana_of(props) as grafana:
            grafana.put_data_source(props["uid"], json.loads(props["definition"]))
        return CreateResult(props["uid"], props)

    def read(self, id_: str, props: Props) -> ReadResult:
        return looked_at(id_, props, lambda grafana: as_found(id_, props, grafana.data_source(props["uid"])))

    def update(self, _id: str, _olds: Props, _news: Props) -> UpdateResult:
        with grafana_of(_news) as grafana:
            grafana.put_data_source(_news["uid"], json.loads(_news["definition"]))
        return UpdateResult(_news)

    def delete(self, _id: str, _props: Props) -> None:
        with grafana_of(_props) as grafana:
            grafana.delete_data_source(_props["uid"])


class GrafanaDataSource(Resource, module="gpuheap", name="GrafanaDataSource"):
    """A data source; `definition` is its JSON, without uid."""

    def __init__(
        self,
        name: str,
        *,
        endpoint: pulumi.Input[str],
        private: pulumi.Input[bool],
        uid: str,
        definition: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        inputs = {"endpoint": endpoint, "private": private, "uid": uid, "definition": definition}
        super().__init__(GrafanaDataSourceProvider(), name, inputs, opts)


class GrafanaDashboardProvider(ResourceProvider):
    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        return content_diff(_olds, _news)

    def create(self, props: Props) -> CreateResult:
        with grafana_of(props) as grafana:
            grafana.put_dashboard(props["uid"], json.loads(props["definition"]), props.get("folder", ""))
        return CreateResult(props["uid"], props)

    def read(self, id_: str, props: Props) -> ReadResult:
        return looked_at(id_, props, lambda grafana: as_found(id_, props, grafana.dashboard(props["uid"])))

    def update(self, _id: str, _olds: Props, _news: Props) -> UpdateResult:
        with grafana_of(_news) as grafana:
            grafana.put_dashboard(_news["uid"], json.loads(_news["definition"]), _news.get("folder", ""))
        return UpdateResult(_news)

    def delete(self, _id: str, _props: Props) -> None:
        with grafana_of(_props) as grafana:
            grafana.delete_dashboard(_props["uid"])


class GrafanaDashboard(Resource, module="gpuheap", name="GrafanaDashboard"):
    """A dashboard; `definition` is its JSON, `folder` the uid of the folder that it is in."""

    def __init__(
        self,
        name: str,
        *,
        endpoint: pulumi.Input[str],
        private: pulumi.Input[bool],
        uid: str,
        definition: pulumi.Input[str],
        folder: str,
        opts: pulumi.ResourceOptions,
    ) -> None:
        inputs = {
            "endpoint": endpoint,
            "private": private,
            "uid": uid,
            "definition": definition,
            "folder": folder,
        }
        super().__init__(GrafanaDashboardProvider(), name, inputs, opts)


def _approver(props: Props) -> "PrivateEndpointApprover":
    # Not at the top: Azure's clients take seconds to load, in the program and in the provider, and few runs use them.
    from .approval import PrivateEndpointApprover, Request

    request = Request(
        managed_private_endpoint_id=props["managedPrivateEndpointId"],
        private_link_service_id=props["privateLinkServiceId"],
        message=props["requestMessage"],
    )
    return PrivateEndpointApprover.connect(
        request,
        credential=credential(),
        arm_endpoint=arm_endpoint(),
        arm_scope=arm_scope(),
        patience=Patience(),
    )


def _approved(props: Props, state: "EndpointState") -> Props:
    return {**props, "status": state.status, "privateIp": state.private_ip}

# SPDX-License-Identifier: Apache-2.0
"""Azure Managed Grafana: the workspace, new or existing, who may do what in it, its data sources and its
dashboard.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
from pulumi_azure_native import authorization, dashboard

from .azure.more_content import GrafanaFolder, PublishedDashboard
from .azure.providers import GrafanaDashboard, GrafanaDataSource
from .roles import GRAFANA_ADMIN, MONITORING_DATA_READER, assign

PYROSCOPE_UID: Final = "local-pyroscope"
PROMETHEUS_UID: Final = "gpuheap-prometheus"
FOLDER_UID: Final = "gpuheap"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrafanaArgs:
    workspace_name: str
    resource_group_name: pulumi.Input[str]
    existing: bool
    location: str
    major_version: str | None
    public: bool
    subscription_id: pulumi.Input[str]
    stack: str
    metrics_workspace_id: pulumi.Input[str]
    administrator_id: pulumi.Input[str]
    administrator_type: pulumi.Input[str]
    tags: Mapping[str, str] = field(default_factory=dict)


class Grafana(pulumi.ComponentResource):
    """A workspace that may read our metrics, and in which the deployer may write."""

    workspace_name: str
    resource_group_name: pulumi.Input[str]
    id: pulumi.Output[str]
    location: pulumi.Input[str]
    endpoint: pulumi.Output[str]
    private: pulumi.Input[bool]
    """Whether it answers by private endpoints alone."""
    workspace: dashboard.Grafana | None = None
    """None where it is not ours."""
    roles: tuple[pulumi.Resource, ...]

    def __init__(self, name: str, args: GrafanaArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuheap:index:Grafana", name, {}, opts)
        self.workspace_name = args.workspace_name
        self.resource_group_name = args.resource_group_name
        if args.existing:
            self.id, principal_id = self._look_up(args)
        else:
            self.id, principal_id = self._declare(name, args)
        self.roles = (
            self._role(
                f"{name}-reads-metrics",
                args,
                role=MONITORING_DATA_READER,
                principal_id=principal_id,
                principal_type="ServicePrincipal",
                scope=args.metrics_workspace_id,
            ),
            self._role(
                f"{name}-administrator",
                args,
                role=GRAFANA_ADMIN,
                principal_id=args.administrator_id,
                principal_type=args.administrator_type,
                scope=self.id,
            ),
        )
        self.register_outputs({"endpoint": self.endpoint})

    def _declare(self, name: str, args: GrafanaArgs) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        """A new workspace; returns its id and the principal of its identity."""
        workspace = dashboard.Grafana(
            name,
            resource_group_name=args.resource_group_name,
            workspace_name=args.workspace_name,
            location=args.location,
            # Managed private endpoints need this tier.
            sku=dashboard.ResourceSkuArgs(name="Standard"),
            identity=dashboard.ManagedServiceIdentityArgs(type="SystemAssigned"),
            properties=dashboard.ManagedGrafanaPropertiesArgs(
                grafana_major_version=args.major_version,
                public_network_access="Enabled" if args.public else "Disabled",
                grafana_integrations=dashboard.GrafanaIntegrationsArgs(
                    azure_monitor_workspace_integrations=[
                        dashboard.AzureMonitorWorkspaceIntegrationArgs(
                            azure_monitor_workspace_resource_id=args.metrics_workspace_id
                        )
                    ]
                ),
            ),
            tags=args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.workspace, self.private = workspace, not args.public
        self.location = args.location
        self.endpoint = workspace.properties.endpoint
        return workspace.id, workspace.identity.principal_id

    def _look_up(self, args: GrafanaArgs) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        """A workspace that is there; returns its id and the principal of its identity."""
        found = dashboard.get_grafana_output(
            resource_group_name=args.resource_group_name, workspace_name=args.workspace_name
        )
        self.private = found.properties.apply(
            lambda properties: properties.public_network_access == dashboard.PublicNetworkAccess.DISABLED
        )
        self.location = found.location
        self.endpoint = found.properties.endpoint
        return found.id, found.identity.principal_id

    def _role(
        self,
        name: str,
        args: GrafanaArgs,
        *,
        role: str,
        principal_id: pulumi.Input[str],
        principal_type: pulumi.Input[str],
        scope: pulumi.Input[str],
    ) -> authorization.RoleAssignment:
        return assign(
            name,
            role=role,
            principal_id=principal_id,
            principal_type=principal_type,
            subscription_id=args.subscription_id,
            scope=scope,
            stack=args.stack,
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A dashboard that others publish."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrafanaContentArgs:
    endpoint: pulumi.Input[str]
    private: pulumi.Input[bool]
    goes_with: pulumi.Resource | None
    """The workspace, where all content may go with it: from outside of its network nothing could be removed first."""
    pyroscope_url: str
    prometheus_url: pulumi.Input[str]
    dashboard: Mapping[str, Any]
    folder_title: str
    folder_permissions: Mapping[str, int]
    published: Published | None
    depends_on: Sequence[pulumi.Resource]
    """The approved endpoint, so that the data source works when it appears, the role that may write it, and the way
    to a private workspace.
    """


class GrafanaContent(pulumi.ComponentResource):
    """Two data sources, and a folder with the dashboards over them, kept through Grafana's own API."""

    dashboard_url: pulumi.Output[str]

    def __init__(
        self, name: str, args: GrafanaContentArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuheap:index:GrafanaContent", name, {}, opts)
        first = pulumi.ResourceOptions(parent=self, depends_on=args.depends_on, deleted_with=args.goes_with)
        sources = [
            GrafanaDataSource(
                f"{name}-{label}",
                endpoint=args.endpoint,
                private=args.private,
                uid=uid,
                definition=definition,
                opts=first,
            )
            for label, uid, definition in (
                ("pyroscope", PYROSCOPE_UID, pyroscope_data_source(args.pyroscope_url)),
                (
                    "prometheus",
                    PROMETHEUS_UID,
                    pulumi.Output.from_input(args.prometheus_url).apply(prometheus_data_source),
                ),
            )
        ]
        folder = GrafanaFolder(
            f"{name}-folder",
            endpoint=args.endpoint,
            private=args.private,
            uid=FOLDER_UID,
            title=args.folder_title,
            permissions=_json(args.folder_permissions),
            opts=first,
        )
        within = pulumi.ResourceOptions(
            parent=self, depends_on=[*sources, folder], deleted_with=args.goes_with
        )
        uid: str = args.dashboard["uid"]
        GrafanaDashboard(
            f"{name}-dashboard",
            endpoint=args.endpoint,
            private=args.private,
            uid=uid,
            definition=json.dumps(args.dashboard, sort_keys=True),
            folder=FOLDER_UID,
            opts=within,
        )
        if args.published:
            PublishedDashboard(
                f"{name}-published",
                endpoint=args.endpoint,
                private=args.private,
                url=args.published.url,
                sha256=args.published.sha256,
                folder=FOLDER_UID,
                opts=within,
            )
        self.dashboard_url = pulumi.Output.concat(args.endpoint, "/d/", uid)
        self.register_outputs({"dashboardUrl": self.dashboard_url})


def pyroscope_data_source(url: str) -> str:
    """The data source of Azure's published procedure, as JSON."""
    return _json(
        {
            "name": PYROSCOPE_UID,
            "type": "grafana-pyroscope-datasource",
            "access": "proxy",
            "url": url,
            "jsonData": {"keepCookies": ["pyroscope_git_session"]},
        }
    )


def prometheus_data_source(url: str) -> str:
    """Azure Monitor's Prometheus, read with the workspace's managed identity, as JSON."""
    return _json(
        {
            "name": PROMETHEUS_UID,
            "type": "prometheus",
            "access": "proxy",
            "url": url,
            "jsonData": {"httpMethod": "POST", "azureCredentials": {"authType": "msi"}},
        }
    )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)

# SPDX-License-Identifier: Apache-2.0
"""Metrics from the cluster to Azure Monitor: workspace, endpoint, rule, the rule's association, and what to
scrape.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_azure_native import monitor

STREAM: Final = "Microsoft-PrometheusMetrics"

# https://learn.microsoft.com/azure/azure-monitor/metrics/prometheus-metrics-scrape-configuration
SCRAPE_SETTINGS_NAME: Final = "ama-metrics-settings-configmap"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPipelineArgs:
    resource_group_name: pulumi.Input[str]
    location: str
    workspace_name: str
    cluster_name: str
    cluster_id: pulumi.Input[str]
    tags: Mapping[str, str] = field(default_factory=dict)


class MetricsPipeline(pulumi.ComponentResource):
    """An Azure Monitor workspace that receives what the metrics add-on of the cluster scrapes."""

    workspace: monitor.AzureMonitorWorkspace
    association: monitor.DataCollectionRuleAssociation
    query_endpoint: pulumi.Output[str]

    def __init__(
        self, name: str, args: MetricsPipelineArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuheap:index:MetricsPipeline", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.workspace = monitor.AzureMonitorWorkspace(
            f"{name}-workspace",
            resource_group_name=args.resource_group_name,
            azure_monitor_workspace_name=args.workspace_name,
            location=args.location,
            tags=args.tags,
            opts=child,
        )
        # The names by which Azure's own tools find the pair; 44 characters are the limit of an endpoint.
        pair = f"MSProm-{args.location}-{args.cluster_name}"[:44].rstrip("-_")
        endpoint = monitor.DataCollectionEndpoint(
            f"{name}-endpoint",
            resource_group_name=args.resource_group_name,
            data_collection_endpoint_name=pair,
            location=args.location,
            kind="Linux",
            tags=args.tags,
            opts=child,
        )
        rule = self._rule(name, args, pair, endpoint)
        # Without it the metrics add-on of the cluster crashes in a loop.
        self.association = monitor.DataCollectionRuleAssociation(
            f"{name}-association",
            resource_uri=args.cluster_id,
            association_name=pair,
            data_collection_rule_id=rule.id,
            opts=child,
        )
        self.query_endpoint = self.workspace.metrics.prometheus_query_endpoint
        self.register_outputs({"queryEndpoint": self.query_endpoint})

    def _rule(
        self, name: str, args: MetricsPipelineArgs, rule_name: str, endpoint: monitor.DataCollectionEndpoint
    ) -> monitor.DataCollectionRule:
        destination = "monitoring-account"
        return monitor.DataCollectionRule(
            f"{name}-rule",
            resource_group_name=args.resource_group_name,
            data_collection_rule_name=rule_name,
            location=args.location,
            kind="Linux",
            data_collection_endpoint_id=endpoint.id,
            data_sources=monitor.DataCollectionRuleDataSourcesArgs(
                prometheus_forwarder=[
                    monitor.PrometheusForwarderDataSourceArgs(name="prometheus", streams=[STREAM])
                ]
            ),
            destinations=monitor.DataCollectionRuleDestinationsArgs(
                monitoring_accounts=[
                    monitor.MonitoringAccountDestinationArgs(
                        name=destination, account_resource_id=self.workspace.id
                    )
                ]
            ),
            data_flows=[monitor.DataFlowArgs(streams=[STREAM], destinations=[destination])],
            tags=args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )


def scrape_annotated_pods(
    name: str, *, namespace: str, opts: pulumi.ResourceOptions
) -> kubernetes.core.v1.ConfigMap:
    """Has the metrics add-on follow `prometheus.io/scrape` annotations, which it ignores by default, in one
    namespace.
    """
    return kubernetes.core.v1.ConfigMap(
        name,
        metadata=kubernetes.meta.v1.ObjectMetaArgs(name=SCRAPE_SETTINGS_NAME, namespace="kube-system"),
        data={
            "schema-version": "v1",
            "config-version": "ver1",
            "pod-annotation-based-scraping": f'podannotationnamespaceregex = "{namespace}"',
        },
        opts=opts,
    )

# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of the cluster."""

import pulumi

from components.cluster import Cluster
from components.config import StackConfig
from components.metrics_pipeline import MetricsPipeline, MetricsPipelineArgs, scrape_annotated_pods
from components.profiler_agent import NAMESPACE as AGENT_NAMESPACE
from components.settings.cluster import NewCluster

from .place import Place


def metrics_pipeline(config: StackConfig, place: Place, cluster: Cluster) -> MetricsPipeline:
    pipeline = MetricsPipeline(
        "metrics",
        MetricsPipelineArgs(
            resource_group_name=place.resource_group.name,
            location=config.location,
            workspace_name=config.name,
            cluster_name=cluster.cluster_name,
            cluster_id=cluster.id,
            tags=config.tags,
        ),
    )
    if isinstance(config.cluster, NewCluster):
        # An existing cluster's settings are its owner's: there this one line is theirs to add.
        scrape_annotated_pods(
            "metrics-scrape-settings",
            namespace=AGENT_NAMESPACE,
            opts=pulumi.ResourceOptions(parent=pipeline, provider=cluster.provider),
        )
    return pipeline

# SPDX-License-Identifier: Apache-2.0
"""The stack, part by part, in the order in which it is made. Destroying goes the other way: dashboard and
data sources, private endpoint, load-balancer Service, extension, cluster.

Reads the configuration and exports what people and `verify` need; how each part gets its values is in
`components/wiring/`.
"""

import pulumi

from components import wiring
from components.config import load
from components.grafana import PROMETHEUS_UID, PYROSCOPE_UID
from components.profiler_agent import NAME as AGENT
from components.profiler_agent import NAMESPACE as AGENT_NAMESPACE

config = load()
place = wiring.place(config)

cluster = wiring.cluster(config, place)
gpu_pools = wiring.gpu_pools(config, cluster)
wiring.local_storage(config, cluster)
wiring.placement(config, cluster)
workspaces = wiring.workspaces(config, cluster)
plugins = wiring.device_plugins(config, cluster, gpu_pools)
readiness = wiring.readiness(config, cluster, after=[*gpu_pools, *plugins])
wiring.sample_workload(config, cluster, after=[*workspaces, *readiness])
metrics = wiring.metrics_pipeline(config, place, cluster)
gadget = wiring.inspektor_gadget(config, cluster, metrics)
pyroscope = wiring.pyroscope(config, place, cluster, gadget)
grafana = wiring.grafana(config, place, metrics)
access = wiring.grafana_access(config, place, cluster, grafana)
private_link = wiring.private_link(config, place, cluster, pyroscope, grafana, access)
content = wiring.grafana_content(config, metrics, grafana, private_link, access)
agent = wiring.profiler_agent(config, place, cluster, pyroscope, after=gpu_pools)
alerts = wiring.stack_alerts(config, place, cluster, metrics, gadget, private_link)

pulumi.export("resourceGroup", place.resource_group_name)
pulumi.export("clusterName", cluster.cluster_name)
pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("profilers", config.profilers)
if gadget:
    pulumi.export("inspektorGadgetExtensionId", gadget.extension.id)
pulumi.export("pyroscopeNamespace", wiring.pyroscope_namespace(config))
pulumi.export("pyroscopeUrl", wiring.pyroscope_url(config))
pulumi.export("privateLinkServiceId", wiring.private_link_service(config, place))
pulumi.export("managedPrivateEndpointId", private_link.endpoint.id)
pulumi.export("grafanaUrl", grafana.endpoint)
if access:
    pulumi.export("grafanaPrivateEndpointId", access.endpoint.id)
pulumi.export("dashboardUrl", content.dashboard_url)
pulumi.export("pyroscopeDataSourceUid", PYROSCOPE_UID)
pulumi.export("prometheusDataSourceUid", PROMETHEUS_UID)
if agent:
    pulumi.export("agentImage", agent.image)
    pulumi.export("agentDaemonSet", f"{AGENT_NAMESPACE}/{AGENT}")
pulumi.export("alertRuleGroupId", alerts.rule_group.id)

# SPDX-License-Identifier: Apache-2.0
"""What `docs/configuration.md` says beside the keys themselves."""

from typing import Final

STACKS: Final = ("dev", "staging", "prod")

BEFORE: Final = """\
# Configuration

A stack is one file, `Pulumi.<stack>.yaml`. [Pulumi.dev.yaml](../Pulumi.dev.yaml) runs on the local cloud,
[Pulumi.staging.yaml](../Pulumi.staging.yaml) is AKS Standard with two pools,
[Pulumi.prod.yaml](../Pulumi.prod.yaml) AKS Automatic. Copy the one that is nearest. Editors that read the
line `# yaml-language-server` complete and check the keys by
[components/config.schema.json](../components/config.schema.json).

Every value is checked before anything is created. A refusal names the key, what was given, what is allowed
and the command that sets it; all refusals come at once. An unknown key is an error. In the tables,
"must be set" counts where the group of keys is written at all.

This page and the schema are written by `python -m components.reference` from the models in
`components/settings/`.
"""

AFTER: Final = """\
## Who may deploy

Resource Manager: Contributor on the subscription or the resource group, and the right to assign roles there
(Role Based Access Control Administrator). Where only Entra identities get in (AKS Automatic, or
`localAccounts: false`), the stack gives whoever deploys the role Azure Kubernetes Service RBAC Cluster
Admin on the cluster, and Kubernetes asks [kubelogin](https://azure.github.io/kubelogin/) for a token: it
must be on the path, and `AAD_LOGIN_METHOD` says how it signs in (`azurecli` after `az login`,
`workloadidentity` in a pipeline).

## AKS Automatic

Its deployment safeguards refuse pods that see the host, as profilers must. On a new cluster the stack
excludes the namespaces `gadget` and `gpuheap`; on one that is there the owner does, since a cluster has
one such list. The group of its nodes is locked, so the Private Link Service is in the stack's own resource
group, on Standard, too. Pools are Karpenter's: a node comes when a pod waits for one, and goes when it has
been empty for five minutes.

## A private Grafana

`gpuheap:grafana.privateAccess` makes a private endpoint of the workspace and a zone
`privatelink.grafana.azure.com` in which its name leads there, for the endpoint's network and those of
`networks`; with `publicAccess: false` it is the only way. A network can be linked to one zone of that name:
where a hub has it already, `dnsZone` is that zone's id, and linking networks is its owner's. `none` is for
organisations in which a policy writes the record.

Data sources, folder and dashboards are set through Grafana itself, since Azure's own API knows none of them:
`pulumi up` and `make verify` run on a machine in such a network. Elsewhere they say, after a minute, to which
public address the name leads from there, and that it does not answer. One `up` makes everything where such a
machine is there before: name a subnet of its network, `subnetId`. In a network that comes with the stack there
is none yet: `pulumi up --continue-on-error` makes all the rest from anywhere, and the next `up`, from a
machine that is peered with it by then, ends it. `pulumi destroy` needs no way to a private workspace of the
stack: what is in it goes with it. To go from public to private, first add `privateAccess`, then set
`publicAccess: false`.

`pulumi refresh` finds an endpoint whose connection was rejected or removed, and a record or link that is gone;
`pulumi up` makes them anew. Where Grafana does not answer, `refresh` warns that what is in it was not looked at.

## What is replaced

Azure keeps some properties of a pool for life: size, driver, MIG profile, OS disk, zones, spot, capacity
reservation, subnet. A change replaces the pool, and the preview says so (`replace`): its nodes are drained
and gone before the new ones come, because a pool's name is its identity. To keep capacity meanwhile, add a
second pool, move the pods, then take the first one away. Images and versions change node by node, by
`upgrade`. A name or a region of the cluster replaces the cluster; `protect: true` makes that, and
`pulumi destroy`, an error. The system pool stays in the subnet in which it was made. Azure changes the range of
no subnet while something is in it: it refuses (`InUseSubnetCannotBeUpdated`), and the subnet stays as it is.
"""

# SPDX-License-Identifier: Apache-2.0
"""Runs a Pulumi program without an engine; keeps what it declared, and in which order that must be destroyed."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks
from pulumi.runtime.mocks import MockMonitor, set_mocks
from pulumi.runtime.settings import get_root_resource, set_root_resource
from pulumi.runtime.stack import Stack, run_pulumi_func

NETWORK = "/subscriptions/s/resourceGroups/shared-net/providers/Microsoft.Network/virtualNetworks/shared"
SUBSCRIPTION = "11111111-1111-1111-1111-111111111111"
KUBECONFIG = "apiVersion: v1\nkind: Config\n"

# What Azure computes, by type: only what a component reads.
COMPUTED: dict[str, dict[str, Any]] = {
    "azure-native:containerservice:ManagedCluster": {
        "identityProfile": {"kubeletidentity": {"objectId": "kubelet-object"}},
        # A list of ids going in, a map from ids coming out.
        "identity": {
            "userAssignedIdentities": {"/id/cluster-identity": {"principalId": "control-plane-principal"}}
        },
    },
    "azure-native:dashboard:Grafana": {
        "properties": {"endpoint": "https://grafana.example"},
        "identity": {"principalId": "grafana-principal"},
    },
    "azure-native:managedidentity:UserAssignedIdentity": {
        "principalId": "control-plane-principal",
        "clientId": "pyroscope-client",
    },
    "azure-native:monitor:AzureMonitorWorkspace": {
        "metrics": {"prometheusQueryEndpoint": "https://prometheus.example"}
    },
}

# The inputs that name a resource whose name another one uses.
NAMED_BY = {
    "azure-native:resources:ResourceGroup": "resourceGroupName",
    "azure-native:network:VirtualNetwork": "virtualNetworkName",
}

ANSWERS: dict[str, dict[str, Any]] = {
    "azure-native:authorization:getClientConfig": {
        "clientId": "22222222-2222-2222-2222-222222222222",
        "objectId": "deployer-object",
        "subscriptionId": SUBSCRIPTION,
        "tenantId": "33333333-3333-3333-3333-333333333333",
    },
    "azure-native:containerservice:listManagedClusterUserCredentials": {
        "kubeconfigs": [{"name": "clusterUser", "value": base64.b64encode(KUBECONFIG.encode()).decode()}]
    },
    "azure-native:containerservice:getManagedCluster": {
        "id": "/existing/cluster",
        "location": "northeurope",
        "agentPoolProfiles": [{"name": "system", "vnetSubnetID": f"{NETWORK}/subnets/nodes"}],
        "identityProfile": {"kubeletidentity": {"objectId": "existing-kubelet"}},
        "oidcIssuerProfile": {"enabled": True, "issuerURL": "https://issuer.example/existing/"},
        "identity": {"type": "SystemAssigned", "principalId": "existing-principal"},
    },
    "azure-native:network:getSubnet": {"name": "private-link", "addressPrefix": "10.9.16.0/24"},
    "azure-native:dashboard:getGrafana": {
        "id": "/existing/grafana",
        "location": "swedencentral",
        "properties": {"endpoint": "https://existing.example"},
        "identity": {"type": "SystemAssigned", "principalId": "existing-grafana-principal"},
    },
}


@dataclass(frozen=True, kw_only=True)
class Declared:
    """One resource as the engine would have been told of it."""

    type: str
    name: str
    inputs: Mapping[str, Any]
    needs: frozenset[str]
    """Names of the resources that must exist before it, and outlive it: dependencies and provider."""
    request: Any
    """Everything else, as the SDK sent it: the options among them."""


@dataclass(kw_only=True)
class Recording:
    """All that a program declared, asked and returned."""

    resources: dict[str, Declared] = field(default_factory=dict)
    asked: list[MockCallArgs] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    """The stack's outputs."""
    secrets: set[str] = field(default_factory=set)
    """Names of those outputs that are secret."""

    def __getitem__(self, name: str) -> Declared:
        return self.resources[name]

    def of_type(self, token: str) -> list[Declared]:
        return [resource for resource in self.resources.values() if resource.type == token]

    def only(self, token: str) -> Declared:
        (resource,) = self.of_type(token)
        return resource

    def outlived_by(self, name: str) -> frozenset[str]:
        """Everything that is destroyed only after `name` is gone."""
        seen: set[str] = set()
        open_ = [name]
        while open_:
            for need in self.resources[open_.pop()].needs - seen:
                seen.add(need)
                open_ += [need] if need in self.resources else []
        return frozenset(seen)


def record(program: Callable[[], object], *, config: Mapping[str, str] | None = None) -> Recording:
    """What `program` declares, and the stack outputs that it exports.

    Each call has its own event loop and its own stand-in of the engine. Registration is asynchronous: nothing
    may be asserted before this returns.
    """
    recording = Recording()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    mocks = _Cloud(recording)
    set_root_resource(None)  # type: ignore[arg-type]  # the next line but one makes a new one
    try:
        set_mocks(mocks, project="gpuheap", stack="test", monitor=_Monitor(mocks, recording))
        pulumi.runtime.set_all_config(dict(config or {}))
        loop.run_until_complete(run_pulumi_func(lambda: _none(program())))
        loop.run_until_complete(_keep_outputs(recording))
    finally:
        loop.close()
    return recording


class _Monitor(MockMonitor):
    """Keeps what the stand-in of the SDK throws away: dependencies and options."""

    def __init__(self, mocks: Mocks, recording: Recording) -> None:
        super().__init__(mocks)
        self._recording = recording

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802  # the name is the protocol's
        # Components are names for groups: what is made and destroyed are the resources in them.
        if not request.type.startswith(("pulumi:pulumi:Stack", "gpuheap:index:")):
            urns = [*request.dependencies, request.provider.rpartition("::")[0]]
            self._recording.resources[request.name] = Declared(
                type=request.type,
                name=request.name,
                inputs=_plain(pulumi.runtime.rpc.deserialize_properties(request.object)),
                needs=frozenset(urn.rpartition("::")[2] for urn in urns if urn),
                request=request,
            )
        return super().RegisterResource(request)  # type: ignore[no-untyped-call]


class _Cloud(Mocks):
    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        outputs = _merged(dict(args.inputs), COMPUTED.get(args.typ, {}))
        outputs["name"] = args.inputs.get(NAMED_BY.get(args.typ, "name"), args.name)
        return f"/id/{args.name}", outputs

    def call(self, args: MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        self._recording.asked.append(args)
        return ANSWERS[args.token], []


async def _keep_outputs(recording: Recording) -> None:
    stack = get_root_resource()
    assert isinstance(stack, Stack)
    for name, value in stack.outputs.items():
        output = pulumi.Output.from_input(value)
        recording.outputs[name] = await output.future()
        if await output.is_secret():
            recording.secrets.add(name)


def _none(_: object) -> None:
    """What a program returns is of no interest; an awaitable would be awaited."""


def _merged(inputs: dict[str, Any], computed: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in computed.items():
        old = inputs.get(key)
        inputs[key] = (
            _merged(dict(old), value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return inputs


def _plain(value: Any) -> Any:
    """`value` without the wrappers of secrets."""
    if pulumi.runtime.rpc.is_rpc_secret(value):
        return _plain(pulumi.runtime.rpc.unwrap_rpc_secret(value))
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value

# SPDX-License-Identifier: Apache-2.0
"""The configuration of a stack: the only reader of `pulumi.Config`.

Every value is checked before anything is created, by the models in `settings/`: unknown keys, ranges, names
that Azure would refuse an hour into a deployment. A refusal says what was given, what is allowed and how to
set it (`config_problems.py`). Values that depend on the stack's name are derived here, so that components get a
complete, frozen model and previews are the same each time.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

import pulumi
from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from .config_problems import NAMESPACE, ConfigError, Path, Problem, problems_of, unknown_key
from .settings.agent import AgentBuild, AgentImage
from .settings.base import RESOURCE_GROUP_NAME, Part, refuse
from .settings.cluster import ExistingCluster, NewCluster
from .settings.grafana import ExistingGrafana, NewGrafana
from .settings.network import Network
from .settings.placement import Placement
from .settings.pools import GpuPool
from .settings.private_link import PrivateLink
from .settings.pyroscope import Pyroscope


def _variant(key: str, present: str, absent: str) -> Discriminator:
    """Chooses a model of a union by whether the user wrote `key`. The tags begin with `<`: they are no part
    of a path.
    """
    return Discriminator(
        lambda value: f"<{present}" if isinstance(value, Mapping) and key in value else f"<{absent}"
    )


class StackConfig(Part):
    """Everything that one stack is made from. `name` and `location` are no keys of ours: the stack and
    Azure's provider give them.
    """

    name: str = Field(description="what the resources are called that the user does not name")
    location: str = Field(pattern=r"^[a-z0-9]+$", description="an Azure region", examples=["westeurope"])
    resource_group: str = Field(
        pattern=RESOURCE_GROUP_NAME,
        description="1 to 90 letters, digits, dots, hyphens, underscores and parentheses, no dot last",
        examples=["gpuheap-prod"],
    )
    cluster: Annotated[
        Annotated[NewCluster, Tag("<new")] | Annotated[ExistingCluster, Tag("<existing")],
        _variant("existing", "existing", "new"),
    ] = Field(description="a new cluster's name and pools, or `existing` alone")
    network: Network | None = Field(default=None, description="ranges of our own network, for a new cluster")
    gpu_pool: GpuPool | None = Field(
        default=None,
        description="a pool of GPU nodes; only an existing cluster can do without",
        examples=[{"vmSize": "Standard_NC24ads_A100_v4"}],
    )
    pyroscope: Pyroscope = Pyroscope()
    private_link: PrivateLink = Field(description="how Grafana reaches Pyroscope")
    grafana: Annotated[
        Annotated[NewGrafana, Tag("<new")] | Annotated[ExistingGrafana, Tag("<existing")],
        _variant("existing", "existing", "new"),
    ] = Field(description="a new workspace's name, or `existing`")
    agent: Annotated[
        Annotated[AgentImage, Tag("<image")] | Annotated[AgentBuild, Tag("<build")],
        _variant("build", "build", "image"),
    ] = Field(description="`image` or `build`", examples=[{"build": {"registry": "example.azurecr.io"}}])
    placement: Placement = Placement()
    tags: dict[str, str] = Field(
        default={}, max_length=50, description="up to 50 tags for every Azure resource"
    )

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        existing = isinstance(self.cluster, ExistingCluster)
        if existing and self.network is not None:
            raise refuse(
                "an existing cluster keeps its own network",
                at=("network",),
                given="network together with cluster.existing",
                allowed="network only for a new cluster",
                fix=f"pulumi config rm {NAMESPACE}:network",
            )
        if not existing and self.private_link.subnet is not None:
            raise refuse(
                "a new cluster gets a subnet of its own for this",
                at=("privateLink", "subnet"),
                given=self.private_link.subnet,
                allowed="a subnet only for an existing cluster",
                fix=f"pulumi config rm --path '{NAMESPACE}:privateLink.subnet'",
            )
        if not existing and self.gpu_pool is None:
            raise refuse(
                "a new cluster needs GPU nodes",
                at=("gpuPool", "vmSize"),
                given="no gpuPool",
                allowed="a size of the NC, ND, NG or NV series",
                examples=["Standard_NC24ads_A100_v4"],
            )
        return self


def load() -> StackConfig:
    """The configuration of the stack that runs. Raises ConfigError, which the engine prints without a
    traceback.
    """
    config = pulumi.Config()
    raw: dict[str, Any] = {}
    for key in _keys_of(config.name):
        field = _FIELDS.get(key)
        raw[key] = config.get(key) if field is None or field.annotation is str else config.get_object(key)
    return parse(raw, stack=pulumi.get_stack(), location=pulumi.Config("azure-native").get("location"))


def parse(raw: Mapping[str, Any], *, stack: str, location: str | None) -> StackConfig:
    """The checked model of what the user wrote. Pure; raises ConfigError with every problem found."""
    written = {key: value for key, value in raw.items() if key in _FIELDS}
    problems = [unknown_key((key,), _FIELDS) for key in sorted(raw.keys() - written.keys())]
    name = _name(stack)
    complete, derived = _with_derived(written, name)
    if location is None:
        problems.append(
            Problem(
                path="azure-native:location",
                reason="it must be set",
                allowed="an Azure region",
                fix="pulumi config set azure-native:location westeurope",
            )
        )
    try:
        config = StackConfig.model_validate(complete | {"name": name, "location": location or "unset"})
    except ValidationError as error:
        problems += problems_of(error, StackConfig, derived)
    if problems:
        raise ConfigError(problems)
    return config


def _name(stack: str) -> str:
    """A name that every Azure resource type used here accepts, whatever characters and length the stack's
    has.
    """
    return "gpuheap-" + re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-")[:32].rstrip("-")


def _with_derived(written: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[Path, str]]:
    """`written` with the names that follow from the stack's, and where each of those came from."""
    complete = dict(written)
    derived: dict[Path, str] = {}
    for path, value in (
        (("resourceGroup",), name),
        (("cluster", "name"), name),
        (("privateLink", "endpointName"), name),
        (("privateLink", "domain"), f"pyroscope.{name}.internal"),
        (("grafana", "name"), name),
    ):
        if len(path) == 1:
            if path[0] in complete:
                continue
            complete[path[0]] = value
        else:
            outer = complete.get(path[0], {})
            if not isinstance(outer, Mapping) or path[1] in outer or "existing" in outer:
                continue
            complete[path[0]] = {**outer, path[1]: value}
        derived[path] = "derived from the name of the stack"
    return complete, derived


def _keys_of(namespace: str) -> list[str]:
    """The top-level keys that are set. `pulumi.Config` reads a key by name only, so the runtime is asked."""
    prefix = f"{namespace}:"
    known = {**pulumi.runtime.config.get_config_env(), **pulumi.runtime.config.CONFIG.get()}
    return sorted(key.removeprefix(prefix) for key in known if key.startswith(prefix))


_FIELDS: Final = {
    field.alias or name: field
    for name, field in StackConfig.model_fields.items()
    if name not in ("name", "location")
}

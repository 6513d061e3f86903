# SPDX-License-Identifier: Apache-2.0
"""The configuration of a stack: the only reader of `pulumi.Config`.

Every value is checked before anything is created, by the models in `settings/`: unknown keys, ranges, names
that Azure would refuse an hour into a deployment. A refusal says what was given, what is allowed and how to
set it (`config_problems.py`). Values that depend on the stack's name are derived here, so that components get a
complete, frozen model and previews are the same each time.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import pulumi
from pydantic import Discriminator, Field, Tag, ValidationError
from pydantic.fields import FieldInfo

from .config_problems import ConfigError, Path, Problem, problem_of, problems_of, unknown_key
from .settings import combinations, sample_workload
from .settings.agent import AgentBuild, AgentImage
from .settings.alerts import Alerts
from .settings.base import RESOURCE_GROUP_NAME, Part
from .settings.cluster import ExistingCluster, NewCluster
from .settings.devices import Devices
from .settings.grafana import ExistingGrafana, NewGrafana
from .settings.grafana import problems as grafana_problems
from .settings.network import GivenSubnets, Network
from .settings.placement import Placement
from .settings.pools import GpuPool
from .settings.private_link import PrivateLink
from .settings.profilers import BOTH, InspektorGadget, Profiler
from .settings.profilers import problems as profiler_problems
from .settings.pyroscope import Pyroscope
from .settings.sample_workload import SampleWorkload
from .settings.workspaces import Workspace
from .settings.workspaces import problems as workspace_problems


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
    ] = Field(description="a new cluster, or `existing`")
    network: (
        Annotated[
            Annotated[Network, Tag("<new")] | Annotated[GivenSubnets, Tag("<existing")],
            _variant("existing", "existing", "new"),
        ]
        | None
    ) = Field(default=None, description="for a new cluster: ranges of our own network, or `existing`")
    gpu_pools: list[GpuPool] = Field(
        default=[],
        description="pools of GPU nodes; only an existing cluster can do without",
        examples=[[{"name": "gpu"}]],
    )
    pyroscope: Pyroscope = Pyroscope()
    private_link: PrivateLink = Field(description="how Grafana reaches Pyroscope")
    grafana: Annotated[
        Annotated[NewGrafana, Tag("<new")] | Annotated[ExistingGrafana, Tag("<existing")],
        _variant("existing", "existing", "new"),
    ] = Field(description="a new workspace's name, or `existing`")
    profilers: list[Profiler] = Field(
        default=list(BOTH),
        min_length=1,
        description="inspektor-gadget, gpuheap, or both",
        examples=["gpuheap"],
    )
    inspektor_gadget: InspektorGadget = Field(
        default=InspektorGadget(), description="settings of the extension"
    )
    agent: (
        Annotated[
            Annotated[AgentImage, Tag("<image")] | Annotated[AgentBuild, Tag("<build")],
            _variant("build", "build", "image"),
        ]
        | None
    ) = Field(
        default=None,
        description="`image` or `build`, where gpuheap is among the profilers",
        examples=[{"build": {"registry": "example.azurecr.io"}}],
    )
    devices: Devices = Devices()
    placement: Placement = Placement()
    workspaces: list[Workspace] | None = Field(
        default=None,
        max_length=50,
        description="namespaces for GPU workloads; default: gpu-training and gpu-inference on a new cluster, "
        "none on one that was there",
        examples=[[{"name": "gpu-training"}]],
    )
    alerts: Alerts = Field(default=Alerts(), description="whom alerts tell, and from where on")
    sample_workload: SampleWorkload | None = Field(
        default=None,
        description="one workload with a GPU, which starts when the nodes are ready",
        examples=[{"image": "docker.io/vllm/vllm-openai:v0.10.0", "pool": "gpu"}],
    )
    tags: dict[str, str] = Field(
        default={}, max_length=50, description="up to 50 tags for every Azure resource"
    )


def fields() -> dict[str, FieldInfo]:
    """The top-level keys that a user may write."""
    return {
        field.alias or name: field
        for name, field in StackConfig.model_fields.items()
        if name not in ("name", "location")
    }


def load() -> StackConfig:
    """The configuration of the stack that runs. Raises ConfigError, which the engine prints without a
    traceback.
    """
    config, known = pulumi.Config(), fields()
    raw: dict[str, Any] = {}
    for key in _keys_of(config.name):
        field = known.get(key)
        raw[key] = config.get(key) if field is None or field.annotation is str else config.get_object(key)
    return parse(raw, stack=pulumi.get_stack(), location=pulumi.Config("azure-native").get("location"))


def parse(raw: Mapping[str, Any], *, stack: str, location: str | None) -> StackConfig:
    """The checked model of what the user wrote. Pure; raises ConfigError with every problem found."""
    known = fields()
    written = {key: value for key, value in raw.items() if key in known}
    problems = [unknown_key((key,), known) for key in sorted(raw.keys() - written.keys())]
    name = _name(stack)
    complete, derived = with_derived(written, name)
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
        raise ConfigError([*problems, *problems_of(error, StackConfig, derived)]) from None
    problems += map(
        problem_of,
        combinations.problems(
            config.cluster,
            config.network,
            config.gpu_pools,
            config.private_link,
            config.grafana.private_access,
        ),
    )
    problems += map(
        problem_of,
        sample_workload.problems(
            config.sample_workload, config.placement, config.workspaces, config.gpu_pools
        ),
    )
    problems += map(problem_of, workspace_problems(config.workspaces))
    settings = config.inspektor_gadget if "inspektor_gadget" in config.model_fields_set else None
    problems += map(problem_of, profiler_problems(config.profilers, settings, config.agent))
    problems += map(problem_of, grafana_problems(config.grafana, config.cluster, config.network))
    if problems:
        raise ConfigError(problems)
    return config


def _name(stack: str) -> str:
    """A name that every Azure resource type used here accepts, whatever characters and length the stack's
    has.
    """
    return "gpuheap-" + re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-")[:32].rstrip("-")


def with_derived(written: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[Path, str]]:
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

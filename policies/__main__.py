# SPDX-License-Identifier: Apache-2.0
"""Gives the rules to the engine: `pulumi preview --policy-pack policies`. Constructing the pack starts its server."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)

# The engine runs this file by its path; the checkout is the folder above it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from policies import placement, stack

LIST: Final = {"type": "array", "items": {"type": "string"}}
TEXT: Final = {"type": "string"}
NAMES: Final = PolicyConfigSchema(properties={"names": LIST})
PLACEMENT: Final = PolicyConfigSchema(
    properties={"names": LIST, "taints": {"type": "object", "properties": {"nvidia": TEXT, "amd": TEXT}}}
)
REQUIRED_TAGS: Final = ("project", "environment")


def policy(
    name: str,
    description: str,
    find: Callable[[ResourceValidationArgs], Iterable[str]],
    config_schema: PolicyConfigSchema | None = None,
) -> ResourceValidationPolicy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for problem in find(args):
            report(problem, None)

    return ResourceValidationPolicy(
        name=name, description=description, validate=validate, config_schema=config_schema
    )


def names(args: ResourceValidationArgs, default: Iterable[str]) -> list[str]:
    """The list that the policy's configuration gives."""
    given: Any = args.get_config().get("names")
    return list(default if given is None else given)


PolicyPack(
    name="gpuheap",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[
        policy(
            "gpu-placement",
            "Pods go to GPU nodes if and only if they ask for a GPU. Config `names`: namespaces that are spared; "
            "`taints`: those of GPU nodes, by vendor.",
            lambda args: placement.problems(
                args.resource_type,
                args.props,
                exempt=names(args, ()),
                vendors=placement.vendors_with(args.get_config().get("taints") or {}),
            ),
            PLACEMENT,
        ),
        policy(
            "no-public-pyroscope",
            "Pyroscope, which has no log-in, is reached by Private Link alone.",
            lambda args: stack.public_pyroscope(args.resource_type, args.props),
        ),
        policy(
            "no-self-approving-link",
            "A Private Link Service that all may see approves no connection by itself.",
            lambda args: stack.self_approving_link(args.resource_type, args.props),
        ),
        policy(
            "no-privileged-agent",
            "The agent has the rights that it names, not all.",
            lambda args: stack.privileged_agent(args.resource_type, args.props),
        ),
        policy(
            "protected-cluster",
            "A cluster with the tag environment: prod is protected.",
            lambda args: stack.unprotected_cluster(
                args.resource_type, args.props, protected=args.opts.protect
            ),
        ),
        policy(
            "tags",
            "What costs money has tags. Config `names`: which; default project and environment.",
            lambda args: stack.missing_tags(
                args.resource_type, args.props, required=names(args, REQUIRED_TAGS)
            ),
            NAMES,
        ),
    ],
)

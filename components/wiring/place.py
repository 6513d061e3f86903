# SPDX-License-Identifier: Apache-2.0
"""Where everything of ours goes, and who puts it there."""

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization, resources

from components.config import StackConfig
from components.roles import AZURE_CLI_APPLICATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where everything of ours goes, and who puts it there."""

    resource_group_name: str
    resource_group: resources.ResourceGroup
    subscription_id: pulumi.Output[str]
    deployer_id: pulumi.Output[str]
    deployer_type: pulumi.Output[str]


def place(config: StackConfig) -> Place:
    deployer = authorization.get_client_config_output()
    return Place(
        resource_group_name=config.resource_group,
        resource_group=resources.ResourceGroup(
            "resource-group",
            resource_group_name=config.resource_group,
            location=config.location,
            tags=config.tags,
        ),
        subscription_id=deployer.subscription_id,
        deployer_id=deployer.object_id,
        deployer_type=deployer.client_id.apply(
            lambda application: "User" if application == AZURE_CLI_APPLICATION else "ServicePrincipal"
        ),
    )

# SPDX-License-Identifier: Apache-2.0
"""What the parts of the configuration are made of: a group of keys, and how a value is refused."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

# https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
RESOURCE_GROUP_NAME: Final = r"^[a-zA-Z0-9._()-]{0,89}[a-zA-Z0-9_()-]$"


def refuse(reason: str, **context: Any) -> PydanticCustomError:
    """An error whose context reaches the user: `allowed`, `examples`, `given`, `fix`; `at`, another path, or
    `under`, keys below the one that is refused; `remove`, where taking the key away is the way out.
    """
    return PydanticCustomError("refused", reason.replace("{", "(").replace("}", ")"), context)


class Part(BaseModel):
    """A group of keys, in YAML written in camelCase. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class ExistingResource(Part):
    """Something that is there already and stays when the stack is destroyed."""

    name: str = Field(min_length=1, description="the name of the existing resource", examples=["shared"])
    resource_group: str = Field(
        pattern=RESOURCE_GROUP_NAME, description="the resource group in which it is", examples=["shared-rg"]
    )

# SPDX-License-Identifier: Apache-2.0
"""How Grafana reaches Pyroscope."""

from typing import Final

from pydantic import Field

from .base import Part
from .network import Cidr

# https://learn.microsoft.com/azure/managed-grafana/how-to-connect-to-data-source-privately
ENDPOINT_NAME: Final = r"^[a-zA-Z][a-zA-Z0-9-]{0,18}[a-zA-Z0-9]$"
DOMAIN: Final = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$"


class PrivateLink(Part):
    endpoint_name: str = Field(
        pattern=ENDPOINT_NAME,
        description="the private endpoint's name: 2 to 20 letters, digits and hyphens, a letter first",
        examples=["gpuheap-prod"],
    )
    domain: str = Field(
        pattern=DOMAIN,
        max_length=253,
        description="a lower-case domain name by which Grafana reaches Pyroscope; it needs no public DNS",
        examples=["pyroscope.gpuheap.internal"],
    )
    subnet: str | None = Field(
        default=None,
        min_length=1,
        description="only for an existing cluster: a subnet of its network, for the Private Link Service",
        examples=["private-link"],
    )
    source_range: Cidr | None = Field(
        default=None,
        description="the range of a subnet that is not ours: only from there is Pyroscope reached through the service; "
        "default: looked up in Azure; in a network that AKS has made for itself, every private range but the pods'",
        examples=["10.40.16.0/24"],
    )

# SPDX-License-Identifier: Apache-2.0
"""The virtual network of a new cluster, and the ranges that its addresses come from."""

import ipaddress
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from .base import Part, refuse

# What AKS uses for services and pods when a cluster with overlay networking does not say otherwise.
SERVICE_RANGE: Final = ipaddress.ip_network("10.0.0.0/16")
POD_RANGE: Final = ipaddress.ip_network("10.244.0.0/16")


def _cidr(value: str) -> str:
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        raise refuse(f"this is no IPv4 range: {error}") from None
    if not network.is_private:
        raise refuse(
            "the range is not private", allowed="a range inside 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
        )
    return value


Cidr = Annotated[str, AfterValidator(_cidr)]


class Network(Part):
    """Our own virtual network, for a new cluster. The second subnet is for the Private Link Service's
    addresses alone.
    """

    address_space: Cidr = Field(
        default="10.40.0.0/16", description="a private IPv4 range, /8 to /24", examples=["10.40.0.0/16"]
    )
    node_subnet: Cidr = Field(
        default="10.40.0.0/20", description="a range inside addressSpace", examples=["10.40.0.0/20"]
    )
    private_link_subnet: Cidr = Field(
        default="10.40.16.0/24",
        description="a range inside addressSpace, beside nodeSubnet",
        examples=["10.40.16.0/24"],
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        space, nodes, link = (
            ipaddress.ip_network(value)
            for value in (self.address_space, self.node_subnet, self.private_link_subnet)
        )
        for key, subnet in (("nodeSubnet", nodes), ("privateLinkSubnet", link)):
            if not subnet.subnet_of(space):  # type: ignore[arg-type]
                raise refuse(
                    "the subnet is not inside the address space",
                    at=("network", key),
                    given=str(subnet),
                    allowed=f"a range inside {space}",
                    examples=[str(next(space.subnets(prefixlen_diff=max(0, 24 - space.prefixlen))))],
                )
        if nodes.overlaps(link):
            raise refuse(
                "the two subnets overlap",
                at=("network", "privateLinkSubnet"),
                given=str(link),
                allowed=f"a range outside {nodes}",
                examples=["10.40.16.0/24"],
            )
        for taken, what in ((SERVICE_RANGE, "services"), (POD_RANGE, "pods")):
            if space.overlaps(taken):
                raise refuse(
                    f"the address space overlaps {taken}, which the cluster uses for {what}",
                    at=("network", "addressSpace"),
                    given=str(space),
                    allowed=f"a private range outside {SERVICE_RANGE} and {POD_RANGE}",
                    examples=["10.40.0.0/16"],
                )
        return self

# SPDX-License-Identifier: Apache-2.0
"""The virtual network of a new cluster, and the ranges that its addresses come from."""

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from .base import Part, refuse

# What AKS uses for services and pods when a cluster with overlay networking does not say otherwise.
SERVICE_RANGE: Final = ipaddress.ip_network("10.0.0.0/16")
POD_RANGE: Final = ipaddress.ip_network("10.244.0.0/16")
# https://learn.microsoft.com/azure/aks/api-server-vnet-integration
SMALLEST_API_SERVER_PREFIX: Final = 28
# https://learn.microsoft.com/azure/virtual-network/virtual-networks-faq#how-small-and-how-large-can-virtual-networks-and-subnets-be
SMALLEST_PREFIX: Final = 29
_NETWORK: Final = (
    r"(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/virtualNetworks/[^/]+"
)
NETWORK_ID: Final = rf"{_NETWORK}$"
SUBNET_ID: Final = rf"{_NETWORK}/subnets/[^/]+$"

_SMALLEST: Final = {
    "apiServerSubnet": (SMALLEST_API_SERVER_PREFIX, "the API server", "10.40.255.240/28"),
    "privateEndpointSubnet": (SMALLEST_PREFIX, "a private endpoint", "10.40.255.224/28"),
}


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
    addresses alone, the third, which only AKS Automatic has, for the API server's, the fourth, which comes with
    `grafana.privateAccess`, for Grafana's private endpoint.
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
    api_server_subnet: Cidr | None = Field(
        default=None,
        description="for AKS Automatic: a range inside addressSpace, /28 or larger; default: its last /28",
        examples=["10.40.255.240/28"],
    )

    private_endpoint_subnet: Cidr | None = Field(
        default=None,
        description="for grafana.privateAccess: a range inside addressSpace, /29 or larger; default: the /28 before "
        "its last",
        examples=["10.40.255.224/28"],
    )

    @property
    def api_server_range(self) -> str:
        """The range of the API server's subnet, which only AKS Automatic has."""
        return self.api_server_subnet or self._from_the_end(1)

    @property
    def private_endpoint_range(self) -> str:
        """The range of the subnet for Grafana's private endpoint, which only private access has."""
        return self.private_endpoint_subnet or self._from_the_end(2)

    def _from_the_end(self, place: int) -> str:
        """The smallest range that AKS takes for an API server, this far from the end of the address space."""
        space = ipaddress.IPv4Network(self.address_space)
        first = space.broadcast_address - place * 2 ** (32 - SMALLEST_API_SERVER_PREFIX) + 1
        return f"{first}/{SMALLEST_API_SERVER_PREFIX}"


class Subnets(Part):
    """Subnets that are there. They stay as they are, but for the policies of the one for the Private Link
    Service, which AKS's cloud controller turns off.
    """

    node_subnet_id: str = Field(
        pattern=SUBNET_ID,
        description="the id of a subnet",
        examples=["/subscriptions/…/virtualNetworks/shared/subnets/nodes"],
    )
    private_link_subnet: str = Field(
        min_length=1,
        description="the name of a subnet of the same network, for the Private Link Service",
        examples=["private-link"],
    )
    api_server_subnet_id: str | None = Field(
        default=None,
        pattern=SUBNET_ID,
        description="for AKS Automatic: the id of a subnet that is delegated to AKS",
        examples=["/subscriptions/…/virtualNetworks/shared/subnets/api-server"],
    )


class GivenSubnets(Part):
    """A network that is there."""

    existing: Subnets = Field(description="subnets of a network that is there")


def problems(network: Network, *, api_server: bool, private_endpoint: bool) -> Iterator[PydanticCustomError]:
    """Of its ranges, and of those of the subnets that a stack has that needs one for an API server, or a private
    endpoint.
    """
    space = ipaddress.IPv4Network(network.address_space)
    before: list[ipaddress.IPv4Network] = []
    ranges = {"nodeSubnet": network.node_subnet, "privateLinkSubnet": network.private_link_subnet}
    if api_server:
        ranges["apiServerSubnet"] = network.api_server_range
    if private_endpoint:
        ranges["privateEndpointSubnet"] = network.private_endpoint_range
    for key, text in ranges.items():
        subnet = ipaddress.IPv4Network(text)
        smallest, whose, usual = _SMALLEST.get(key, (32, "", ""))
        if subnet.prefixlen > smallest:
            yield _refused(
                key, subnet, f"the subnet is too small for {whose}", f"/{smallest} or larger", usual
            )
        elif not subnet.subnet_of(space):
            example = next(space.subnets(prefixlen_diff=max(0, 24 - space.prefixlen)))
            yield _refused(
                key,
                subnet,
                "the subnet is not inside the address space",
                f"a range inside {space}",
                str(example),
            )
        elif any(subnet.overlaps(other) for other in before):
            others = " and ".join(map(str, before))
            yield _refused(
                key,
                subnet,
                "subnets overlap",
                f"a range outside {others}",
                str(_free(space, before) or subnet),
            )
        before.append(subnet)
    for taken, what in ((SERVICE_RANGE, "services"), (POD_RANGE, "pods")):
        if space.overlaps(taken):
            yield _refused(
                "addressSpace",
                space,
                f"the address space overlaps {taken}, which the cluster uses for {what}",
                f"a private range outside {SERVICE_RANGE} and {POD_RANGE}",
                "10.40.0.0/16",
            )
            return


def _refused(
    key: str, given: ipaddress.IPv4Network, reason: str, allowed: str, example: str
) -> PydanticCustomError:
    return refuse(reason, at=("network", key), given=str(given), allowed=allowed, examples=[example])


def _free(
    space: ipaddress.IPv4Network, taken: Sequence[ipaddress.IPv4Network]
) -> ipaddress.IPv4Network | None:
    candidates = space.subnets(new_prefix=max(24, space.prefixlen))
    return next((one for one in candidates if not any(one.overlaps(other) for other in taken)), None)

# SPDX-License-Identifier: Apache-2.0
"""The addresses from which requests reach Pyroscope through a Private Link Service: those of the service's subnet.

Looked up where the subnet is not ours. A network policy that named more than that would let in other pods, too: most
policy engines compare the addresses of pods with such ranges as well.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final

import pulumi
from pulumi_azure_native import network

PRIVATE: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")


def of_subnet(subnet_id: str) -> pulumi.Output[Sequence[str]]:
    """The IPv4 ranges of a subnet that is there."""
    parts = subnet_id.split("/")
    found = network.get_subnet_output(
        resource_group_name=parts[4], virtual_network_name=parts[8], subnet_name=parts[10]
    )
    return found.apply(lambda subnet: _version_4([subnet.address_prefix, *(subnet.address_prefixes or ())]))


def private_without(pods: Sequence[str]) -> Sequence[str]:
    """Every private range but those of pods."""
    left = [ipaddress.IPv4Network(range_) for range_ in PRIVATE]
    for taken in map(ipaddress.IPv4Network, _version_4(pods)):
        left = [part for whole in left for part in _without(whole, taken)]
    return [str(range_) for range_ in sorted(left)]


def _without(whole: ipaddress.IPv4Network, taken: ipaddress.IPv4Network) -> list[ipaddress.IPv4Network]:
    if whole.subnet_of(taken):
        return []
    return list(whole.address_exclude(taken)) if taken.subnet_of(whole) else [whole]


def _version_4(ranges: Sequence[str | None]) -> list[str]:
    """Each once, without those of version 6: Private Link has none."""
    return sorted({range_ for range_ in ranges if range_ and ":" not in range_})

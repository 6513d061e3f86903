# SPDX-License-Identifier: Apache-2.0
"""Can a Grafana without public access be reached from this machine? Nothing here imports pulumi.

Its name is public, and leads to a public address that refuses everybody; to the private endpoint it leads only where a
private zone says so. Asked beforehand, because such a refusal looks like a role that has not spread yet. Networks may
have public addresses of their own inside: what answers is reached, whatever its address.
"""

import ipaddress
import socket
import urllib.request
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from azure.core import PipelineClient
from azure.core.exceptions import AzureError
from azure.core.pipeline.policies import UserAgentPolicy
from azure.core.rest import HttpRequest

from .patience import DeadlinePassed, NotYet, Patience

SECONDS: Final = 60.0
"""A record that was just written is not everywhere yet: resolvers keep the answer of before."""

HEALTH_SECONDS: Final = 10.0

NO_SUCH_NAME: Final = (socket.EAI_NONAME, socket.EAI_NODATA)

Resolve = Callable[..., list[Any]]
Answers = Callable[[str], bool]


class NotReachable(Exception):
    """The workspace's name leads to no private address from here; the text says what to do."""


def answers(endpoint: str) -> bool:
    """Whether a workspace says how it is, which it tells whoever reaches it."""
    whole: PipelineClient[Any, Any] = PipelineClient(endpoint, policies=[UserAgentPolicy("gpuheap")])
    with whole as client:
        request = HttpRequest("GET", client.format_url("/api/health"))
        try:
            answer = client.send_request(
                request, connection_timeout=HEALTH_SECONDS, read_timeout=HEALTH_SECONDS
            )
        except AzureError:  # no way there
            return False
        return bool(answer.status_code == 200)


def await_private_address(
    endpoint: str,
    patience: Patience,
    *,
    resolve: Resolve = socket.getaddrinfo,
    answers: Answers = answers,
) -> None:
    """Returns when the name of a private workspace leads to a private address. Raises NotReachable if it never does.

    Behind a proxy the question is the proxy's, and not asked here.
    """
    host = urlsplit(endpoint).hostname or ""
    if _is_the_proxys(host):
        return

    def attempt() -> None:
        public = _public_addresses(host, resolve)
        if public and not answers(endpoint):
            raise NotYet(
                f"{host} leads to {', '.join(public)}, which is no private address, and does not answer"
            )

    try:
        patience.wait(f"Grafana {host}: its private address", attempt)
    except DeadlinePassed as passed:
        raise NotReachable(
            f"Grafana {host} has no public access, and this machine does not reach its private endpoint: "
            f"{passed.__cause__}. Run `pulumi up` on a machine whose network is, or is peered with, that of the "
            "endpoint, and linked to the zone privatelink.grafana.azure.com (gpuheap:grafana.privateAccess.networks). "
            "What needs no Grafana is made from anywhere by `pulumi up --continue-on-error`. Or set "
            "gpuheap:grafana.publicAccess to true."
        ) from None


def leads_nowhere(endpoint: str, *, resolve: Resolve = socket.getaddrinfo) -> bool:
    """Whether there is no such name: a workspace's goes with it. That no answer came is not yet an answer."""
    host = urlsplit(endpoint).hostname or ""
    if _is_the_proxys(host):
        return False
    try:
        resolve(host, 443, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return error.errno in NO_SUCH_NAME
    return False


def _is_the_proxys(host: str) -> bool:
    return "https" in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)


def _public_addresses(host: str, resolve: Resolve) -> list[str]:
    """The addresses that are not private. Raises NotYet when there are none at all."""
    try:
        found = {str(answer[4][0]) for answer in resolve(host, 443, type=socket.SOCK_STREAM)}
    except socket.gaierror as error:
        raise NotYet(f"{host} leads nowhere ({error.strerror})") from error
    return sorted(address for address in found if ipaddress.ip_address(address).is_global)

# SPDX-License-Identifier: Apache-2.0
"""The identity endpoint as the official azure-identity uses it, and the tokens it gives out."""

import time

import httpx
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import DefaultAzureCredential, ManagedIdentityCredential
from starlette.requests import Request

from localcloud.azure.errors import AzureError
from localcloud.azure.functions import DEPLOYER_OBJECT
from localcloud.azure.identity import LIFETIME_SECONDS, Tokens
from localcloud.azure.server import Servers

SCOPE = "https://management.azure.com/.default"
VNET = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/v"


@pytest.mark.parametrize("credential", [ManagedIdentityCredential, DefaultAzureCredential])
def test_azure_s_own_credentials_get_a_token(
    servers: Servers, credential: type[ManagedIdentityCredential | DefaultAzureCredential]
) -> None:
    token = credential().get_token(SCOPE)
    assert token.token.count(".") == 2
    assert 0 < token.expires_on - time.time() <= LIFETIME_SECONDS


def test_a_wrong_header_gets_no_token(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY_HEADER", "wrong")
    with pytest.raises(ClientAuthenticationError):
        ManagedIdentityCredential().get_token(SCOPE)


def test_a_request_without_resource_or_version_is_refused(servers: Servers) -> None:
    headers = {"X-IDENTITY-HEADER": servers.identity_header}
    assert httpx.get(servers.identity, headers=headers).status_code == 400
    query = {"resource": "https://management.azure.com", "api-version": "2017-09-01"}
    assert httpx.get(servers.identity, headers=headers, params=query).status_code == 400


def _status(servers: Servers, token: str | None) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(f"{servers.arm}{VNET}?api-version=1", headers=headers)
    return answer.status_code, answer.json()["error"]["code"]


def test_resource_manager_takes_only_tokens_for_itself(servers: Servers) -> None:
    credential = ManagedIdentityCredential()
    good = credential.get_token(SCOPE).token
    grafana = credential.get_token("ce34e7e5-485f-4d76-964f-b3d2b16d1e4f/.default").token
    assert _status(servers, good) == (404, "ResourceNotFound")
    assert _status(servers, grafana) == (401, "InvalidAuthenticationTokenAudience")
    assert _status(servers, None) == (401, "AuthenticationFailed")
    assert _status(servers, good[:-2]) == (401, "InvalidAuthenticationToken")
    forged, _ = Tokens(key=b"x" * 32).issue("https://management.azure.com")
    assert _status(servers, forged) == (401, "InvalidAuthenticationToken")


def test_an_old_token_is_refused(servers: Servers) -> None:
    tokens = Tokens(key=b"k" * 32)

    def caller(issued: float) -> str:
        token, _ = tokens.issue("https://management.azure.com/", now=issued)
        scope = {"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]}
        return tokens.caller(Request(scope), frozenset({"https://management.azure.com"}))

    assert caller(time.time()) == DEPLOYER_OBJECT
    with pytest.raises(AzureError, match="expiry"):
        caller(time.time() - LIFETIME_SECONDS - 1)

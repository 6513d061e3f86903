# SPDX-License-Identifier: Apache-2.0
"""The managed identity of whoever deploys: an endpoint that gives out tokens, as Azure App Service has it, and
their verification.

The official `azure-identity` finds it through IDENTITY_ENDPOINT and IDENTITY_HEADER.
https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference
"""

import hmac
import time
from dataclasses import dataclass
from typing import Final

import jwt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from localcloud.azure.errors import AzureError
from localcloud.azure.functions import DEPLOYER_CLIENT, DEPLOYER_OBJECT
from localcloud.azure.knowledge import TENANT

API_VERSION: Final = "2019-08-01"
LIFETIME_SECONDS: Final = 3600
ALGORITHM: Final = "HS256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Gives out tokens and knows them again, by one key."""

    key: bytes

    def issue(self, audience: str, *, now: float | None = None) -> tuple[str, int]:
        """A token for `audience`, and when it ends (seconds since the epoch)."""
        start = int(time.time() if now is None else now)
        claims = {
            "aud": audience,
            "iss": f"https://sts.windows.net/{TENANT}/",
            "tid": TENANT,
            "oid": DEPLOYER_OBJECT,
            "appid": DEPLOYER_CLIENT,
            "iat": start,
            "nbf": start,
            "exp": start + LIFETIME_SECONDS,
        }
        return jwt.encode(claims, self.key, algorithm=ALGORITHM), start + LIFETIME_SECONDS

    def caller(self, request: Request, audiences: frozenset[str]) -> str:
        """The object id of who calls. Raises AzureError 401."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise AzureError(
                401, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing."
            )
        try:
            claims = jwt.decode(token, self.key, algorithms=[ALGORITHM], options={"verify_aud": False})
        except jwt.ExpiredSignatureError:
            raise AzureError(
                401, "ExpiredAuthenticationToken", "The access token expiry is in the past."
            ) from None
        except jwt.InvalidTokenError as error:
            raise AzureError(
                401, "InvalidAuthenticationToken", f"The access token is invalid: {error}"
            ) from None
        if _bare(claims["aud"]) not in audiences:
            allowed = ", ".join(sorted(audiences))
            raise AzureError(
                401,
                "InvalidAuthenticationTokenAudience",
                f"The access token has been obtained for the wrong audience or resource '{claims['aud']}'."
                f" It should be one of: {allowed}",
            )
        return str(claims["oid"])


def _bare(audience: str) -> str:
    return audience.removesuffix("/.default").rstrip("/")


def application(tokens: Tokens, header: str) -> Starlette:
    """The endpoint `/identity`, open to callers who send `header` as X-IDENTITY-HEADER."""

    def token(request: Request) -> JSONResponse:
        if not hmac.compare_digest(request.headers.get("x-identity-header", ""), header):
            return JSONResponse({"statusCode": 401, "message": "X-IDENTITY-HEADER is missing or wrong."}, 401)
        query = request.query_params
        if query.get("api-version") != API_VERSION or not query.get("resource"):
            message = f"resource and api-version={API_VERSION} are required."
            return JSONResponse({"statusCode": 400, "message": message}, 400)
        access_token, expires = tokens.issue(query["resource"])
        return JSONResponse(
            {
                "access_token": access_token,
                "client_id": DEPLOYER_CLIENT,
                "expires_on": str(expires),
                "resource": query["resource"],
                "token_type": "Bearer",
            }
        )

    return Starlette(routes=[Route("/identity", token)])

# SPDX-License-Identifier: Apache-2.0
"""Stand-in for the random provider: RandomId, RandomUuid, RandomString, RandomPassword.

As in the official one, a value is drawn once and kept until an input changes. Not here: the other types, imports, and
`bcryptHash` of a password.
"""

import base64
import random
import secrets
import string
import uuid
from typing import ClassVar, Final

from localcloud.plugin.provider import Failure, Input, Provider, ResourceType
from localcloud.plugin.values import UNKNOWN, Values

SPECIAL: Final = "!@#$%&*()-_=+[]{}<>:?"
KEEPERS: Final = {"keepers": Input(type="object")}
KINDS: Final = {
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "numeric": string.digits,
    "special": SPECIAL,
}
TEXT: Final = {
    **KEEPERS,
    "length": Input(type="integer", required=True),
    "number": Input(type="boolean"),
    "overrideSpecial": Input(type="string"),
    **{kind: Input(type="boolean", default=True) for kind in KINDS},
    **{f"min{kind.capitalize()}": Input(type="integer", default=0) for kind in KINDS},
}


class RandomId(ResourceType):
    """A number of random bytes, in several notations."""

    token = "random:index/randomId:RandomId"
    inputs: ClassVar = {
        **KEEPERS,
        "byteLength": Input(type="integer", required=True),
        "prefix": Input(type="string"),
    }

    def check(self, values: Values) -> list[Failure]:
        if values["byteLength"] != UNKNOWN and values["byteLength"] < 1:
            return [Failure(property="byteLength", reason=f"must be 1 or more, not {values['byteLength']}")]
        return []

    def make(self, name: str, inputs: Values, *, preview: bool) -> tuple[str, Values]:
        if preview:
            return "", dict.fromkeys(("b64Std", "b64Url", "dec", "hex"), UNKNOWN)
        drawn = secrets.token_bytes(inputs["byteLength"])
        url = base64.urlsafe_b64encode(drawn).decode().rstrip("=")
        notations = {
            "b64Std": base64.b64encode(drawn).decode(),
            "b64Url": url,
            "dec": str(int.from_bytes(drawn, "big")),
            "hex": drawn.hex(),
        }
        prefix = inputs.get("prefix", "")
        return url, {notation: prefix + value for notation, value in notations.items()}


class RandomUuid(ResourceType):
    token = "random:index/randomUuid:RandomUuid"
    inputs = KEEPERS

    def make(self, name: str, inputs: Values, *, preview: bool) -> tuple[str, Values]:
        drawn = str(uuid.uuid4())
        return drawn, {"result": UNKNOWN if preview else drawn}


class RandomString(ResourceType):
    """Random characters of the kinds that are switched on, with at least so many of each."""

    token = "random:index/randomString:RandomString"
    inputs = TEXT

    def check(self, values: Values) -> list[Failure]:
        if UNKNOWN in values.values():
            return []
        if values["length"] < 1:
            return [Failure(property="length", reason=f"must be 1 or more, not {values['length']}")]
        least = sum(values[f"min{kind.capitalize()}"] for kind in KINDS)
        if values["length"] < least:
            reason = f"must not be below the sum of the minimums, {least}; it is {values['length']}"
            return [Failure(property="length", reason=reason)]
        if not any(_alphabets(values).values()):
            return [Failure(property="lower", reason=f"one of {', '.join(KINDS)} must be true")]
        return []

    def make(self, name: str, inputs: Values, *, preview: bool) -> tuple[str, Values]:
        if preview:
            return "", {"result": UNKNOWN}
        alphabets = _alphabets(inputs)
        # The official provider counts a minimum even for a kind that is switched off.
        drawn = [
            secrets.choice(alphabets[kind] or KINDS[kind])
            for kind in KINDS
            for _ in range(inputs[f"min{kind.capitalize()}"])
        ]
        every = "".join(alphabets.values())
        drawn += [secrets.choice(every) for _ in range(inputs["length"] - len(drawn))]
        random.SystemRandom().shuffle(drawn)
        result = "".join(drawn)
        return self._identity(result), {"result": result}

    def _identity(self, result: str) -> str:
        return result


class RandomPassword(RandomString):
    """The same, kept out of the id; the SDK makes the result a secret."""

    token = "random:index/randomPassword:RandomPassword"

    def _identity(self, result: str) -> str:
        return "none"


def random_provider(version: str) -> Provider:
    return Provider(
        name="random", version=version, types=[RandomId(), RandomUuid(), RandomString(), RandomPassword()]
    )


def _alphabets(inputs: Values) -> dict[str, str]:
    """The characters of each kind; empty for one that is switched off."""
    on = {kind: inputs[kind] for kind in KINDS}
    on["numeric"] = inputs.get("number", inputs["numeric"])  # `number` is the old name of `numeric`
    characters = {**KINDS, "special": inputs.get("overrideSpecial") or SPECIAL}
    return {kind: characters[kind] if on[kind] else "" for kind in KINDS}

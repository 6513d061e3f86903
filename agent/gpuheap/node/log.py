# SPDX-License-Identifier: Apache-2.0
"""The service's log: one line an event, key=value, on standard error."""

import json
import logging
import sys
import time
from typing import Final

LOGGER: Final = logging.getLogger("gpuheap")
_PLAIN_VALUE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/+@%,")


def line(event: str, **fields: object) -> str:
    """`event=… key=value …`; a value with other than plain characters is quoted as JSON does it."""
    return " ".join(f"{key}={_value(value)}" for key, value in {"event": event, **fields}.items())


def set_up() -> None:
    """Send the log to standard error. Times are UTC."""
    formatter = logging.Formatter(
        "time=%(asctime)s level=%(levelname)s %(message)s", datefmt="%Y-%m-%dT%H:%M:%SZ"
    )
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False


def _value(value: object) -> str:
    text = str(value)
    return text if text and set(text) <= _PLAIN_VALUE else json.dumps(text)

# SPDX-License-Identifier: Apache-2.0
"""The settings of `gpuheap agent`, checked. The command line and the environment are the only sources."""

from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from gpuheap.stacks.display import Detail

PYROSCOPE_URL: Final = "GPUHEAP_PYROSCOPE_URL"
INTERVAL: Final = "GPUHEAP_INTERVAL_SECONDS"
METRICS_ADDRESS: Final = "GPUHEAP_METRICS_ADDRESS"
NODE: Final = "GPUHEAP_NODE"
CLUSTER: Final = "GPUHEAP_CLUSTER"
LIVE_ALLOCATIONS: Final = "GPUHEAP_LIVE_ALLOCATIONS"
FRAMES: Final = "GPUHEAP_FRAMES"

MAX_INTERVAL_SECONDS: Final = 3600
DEFAULT_LIVE_ALLOCATIONS: Final = 1 << 20
MAX_LIVE_ALLOCATIONS: Final = 1 << 24


class SettingsError(Exception):
    """A setting that cannot work. The text says what was given, what is allowed and how to set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """`pyroscope_url` is None when profiles are not pushed. `cluster` may be empty.

    `live_allocations` is the size of the kernel's table of allocations in use, about 150 bytes each when in use.
    `frames` says which frames of a stack are pushed.
    """

    pyroscope_url: str | None
    interval_seconds: int
    metrics_host: str
    metrics_port: int
    node: str
    cluster: str
    live_allocations: int = DEFAULT_LIVE_ALLOCATIONS
    frames: Detail = Detail.PLAIN

    @classmethod
    def checked(
        cls,
        *,
        pyroscope_url: str | None,
        interval_seconds: int,
        metrics_address: str,
        node: str,
        cluster: str,
        live_allocations: int = DEFAULT_LIVE_ALLOCATIONS,
        frames: Detail = Detail.PLAIN,
    ) -> Self:
        """Raises `SettingsError`."""
        if not 1 <= interval_seconds <= MAX_INTERVAL_SECONDS:
            raise SettingsError(
                f"interval of {interval_seconds} s: allowed are 1 to {MAX_INTERVAL_SECONDS} "
                f"(--interval or {INTERVAL}; 15 suits Pyroscope's timelines)"
            )
        if not node:
            raise SettingsError(f"the node's name is empty: give it with --node or {NODE}")
        if not 1 <= live_allocations <= MAX_LIVE_ALLOCATIONS:
            raise SettingsError(
                f"table of {live_allocations} allocations: allowed are 1 to {MAX_LIVE_ALLOCATIONS} "
                f"(--live-allocations or {LIVE_ALLOCATIONS})"
            )
        host, port = _address(metrics_address)
        return cls(
            pyroscope_url=_url(pyroscope_url) if pyroscope_url else None,
            interval_seconds=interval_seconds,
            metrics_host=host,
            metrics_port=port,
            node=node,
            cluster=cluster,
            live_allocations=live_allocations,
            frames=frames,
        )


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        valid = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:  # a port that is no number
        valid = False
    if not valid:
        raise SettingsError(
            f"Pyroscope address {text!r}: allowed is http://HOST:PORT or https://HOST:PORT, such as "
            f"http://pyroscope:4040 (--pyroscope-url or {PYROSCOPE_URL})"
        )
    if parts.query or parts.fragment:
        raise SettingsError(
            f"Pyroscope address {text!r}: it may not have a query or a fragment (--pyroscope-url or {PYROSCOPE_URL})"
        )
    return text.rstrip("/")


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise SettingsError(
            f"metrics address {text!r}: allowed is HOST:PORT with a port up to 65535, such as 0.0.0.0:9408 "
            f"(--metrics-address or {METRICS_ADDRESS})"
        )
    return host.strip("[]"), int(port)

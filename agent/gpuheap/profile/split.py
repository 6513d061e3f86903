# SPDX-License-Identifier: Apache-2.0
"""Cuts a profile into parts that a Pyroscope server takes with its default limits.

Measured: a profile over 2 MiB uncompressed never passes the rate limiter's burst, one over 16,000 samples is refused.
"""

from dataclasses import replace
from typing import Final

from gpuheap.profile.encode import encode
from gpuheap.profile.model import Profile

MAX_SAMPLES: Final = 16_000
MAX_BYTES: Final = 2 * 1024 * 1024 - 64 * 1024
"""Uncompressed. The labels of the series are counted with the profile: 64 KiB are left for them."""


def split(profile: Profile, *, max_samples: int = MAX_SAMPLES, max_bytes: int = MAX_BYTES) -> list[bytes]:
    """The profile's pprof message, or those of parts that together hold the same samples; none when it has no samples.

    A single sample that is too large by itself stays: the server's refusal is then counted.
    """
    if not profile.samples:
        return []
    count = len(profile.samples)
    if count <= max_samples:
        message = encode(profile)
        if count == 1 or len(message) <= max_bytes:
            return [message]
    middle = count // 2
    halves = (profile.samples[:middle], profile.samples[middle:])
    return [
        message
        for half in halves
        for message in split(replace(profile, samples=half), max_samples=max_samples, max_bytes=max_bytes)
    ]

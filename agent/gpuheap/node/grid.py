# SPDX-License-Identifier: Apache-2.0
"""When the service reads: at multiples of the interval since the epoch.

Pyroscope draws timelines in steps; one push in each step, at the same point of it, is shown as it was sent, while two
pushes within one step are summed. Pure: the clock is passed in.
"""

from typing import Final

NANOSECONDS: Final = 1_000_000_000


class Grid:
    """Tells which point of the grid is due; each is handed out once."""

    def __init__(self, interval_seconds: int, start_unix_ns: int) -> None:
        self.interval_ns = interval_seconds * NANOSECONDS
        self._last = self._point(start_unix_ns)

    def seconds_left(self, now_unix_ns: int) -> float:
        """Until the next point. Never more than an interval, even when the clock was set back."""
        return (self._point(now_unix_ns) + self.interval_ns - now_unix_ns) / NANOSECONDS

    def due(self, now_unix_ns: int) -> int | None:
        """The newest point that has passed since the last one handed out; None when there is none.

        Points that were missed (a slow reading, a suspended machine) are left out: the next interval is longer.
        A clock that was set back starts again from where it is.
        """
        point = self._point(now_unix_ns)
        if point == self._last:
            return None
        went_back = point < self._last
        self._last = point
        return None if went_back else point

    def _point(self, now_unix_ns: int) -> int:
        return now_unix_ns // self.interval_ns * self.interval_ns

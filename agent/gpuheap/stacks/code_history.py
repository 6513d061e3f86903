# SPDX-License-Identifier: Apache-2.0
"""Whether addresses in a process stand for other code than they once did: a library in the place of a closed one.

What has gone and left its place empty means no harm: nothing is on a stack there. So a library that is opened and
closed again and again makes nothing void, as long as it is the same file.
"""

from collections.abc import Iterable

from .memory_map import NoFile, Region

_Origin = tuple[object, ...] | None
"""The very file, and where it would begin; None for memory without a file, which has no names that could be wrong."""


class CodeHistory:
    """Of one process image."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, int, _Origin]] = []

    def replaced(self, regions: Iterable[Region]) -> bool:
        """Whether code lies where other code was at an earlier call. Then only these regions count from now on."""
        now = sorted({(one.begin, one.end, _origin(one)) for one in regions if one.executable}, key=_place)
        both = sorted({*self._seen, *now}, key=_place)
        merged: list[tuple[int, int, _Origin]] = []
        for begin, end, origin in both:
            if not merged or begin >= merged[-1][1]:
                merged.append((begin, end, origin))
            elif merged[-1][2] != origin:
                self._seen = now
                return True
            else:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]), origin)
        self._seen = merged
        return False


def _place(one: tuple[int, int, _Origin]) -> tuple[int, int]:
    return one[:2]


def _origin(region: Region) -> _Origin:
    if not region.inode:
        return None
    identity = region.file.identity if not isinstance(region.file, NoFile) else None
    return region.device, region.inode, identity, region.begin - region.offset

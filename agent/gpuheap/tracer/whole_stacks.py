# SPDX-License-Identifier: Apache-2.0
"""The stack of a site as it is shown: Python and native frames in one, and what could not be had."""

from typing import Final

from gpuheap.heap.model import Frame
from gpuheap.stacks.merge import in_place_of_evaluation, merge

from .abi import StackReason
from .names import Names, unknown
from .native_images import NativeStack
from .native_stacks import NativeStacks
from .releases import SiteKey

CUT_FRAME: Final = "<outer native frames not known>"

_SAID_BY_NATIVE_FRAMES: Final = frozenset(
    {StackReason.NO_INTERPRETER, StackReason.NO_THREAD_STATE, StackReason.EMPTY}
)
"""Reasons for which there is no Python function to be shown: the native frames are all that there is."""

_Key = tuple[int, int, int]


class WholeStacks:
    """Merges once for each pair of stacks."""

    def __init__(self, names: Names, natives: NativeStacks | None) -> None:
        self._names = names
        self._natives = natives
        self._merged: dict[_Key, tuple[Frame, ...]] = {}
        self._uncertain: set[_Key] = set()

    @property
    def uncertain(self) -> int:
        """Stacks that show the Python frames before the native ones, as they did not fit."""
        return len(self._uncertain)

    def lacks_native(self, site: SiteKey) -> bool:
        """Whether its native stack was to be had, and is not known."""
        if self._natives is None or site.stack == StackReason.NO_SITE:
            return False
        return self._natives.stack(site.image, site.native) is None

    def stack(self, site: SiteKey, missing: str | None) -> tuple[Frame, ...]:
        """Frames from the thread's root inwards. `missing`: why the process has no Python stacks."""
        key = (site.image, site.stack, site.native)
        known = self._merged.get(key)
        if known is not None:
            return known
        native = self._natives.stack(site.image, site.native) if self._natives else None
        if native is None:
            return self._names.stack(site.image, site.stack, missing)
        frames = self._merge(key, native, missing)
        if not native.whole:
            frames = (unknown(CUT_FRAME), *frames)
        self._merged[key] = frames
        return frames

    def _merge(self, key: _Key, native: NativeStack, missing: str | None) -> tuple[Frame, ...]:
        image, stack, _ = key
        runs = self._names.runs(image, stack)
        if runs is not None:
            merged = merge(native.frames, runs, native_is_whole=native.whole, evaluations=native.evaluations)
            if not merged.exact:
                self._uncertain.add(key)
            return merged.frames
        if stack in _SAID_BY_NATIVE_FRAMES and not (stack == StackReason.NO_INTERPRETER and missing):
            return native.frames
        (reason,) = self._names.stack(image, stack, missing)
        return in_place_of_evaluation(native.frames, reason)

    def forget(self, images: set[int]) -> None:
        self._merged = {key: frames for key, frames in self._merged.items() if key[0] not in images}
        self._uncertain = {key for key in self._uncertain if key[0] not in images}

# SPDX-License-Identifier: Apache-2.0
"""One stack from two: native frames, with Python frames in the place of the interpreter's evaluation frames.

Pure. CPython executes Python functions in a C function, `_PyEval_EvalFrameDefault`. Up to 3.10 each Python frame has a
call of it; from 3.11 on a run of several has one, until C is called that calls Python again. So the runs belong to the
evaluation frames in their order. Which these are is known from the kernel side, or by their names. Where the two do not
fit, no frame is dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpuheap.heap.model import Frame, FrameKind

EVALUATION: Final = "_PyEval_EvalFrameDefault"
_PARTS: Final = ("_TAIL_CALL_", f"{EVALUATION}.")
"""What compilers make of it: CPython 3.14 can be built as one function for each instruction, which jump to one another;
and parts of a function have its name with a suffix (`.cold`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Python frames that one evaluation frame executes, outermost first.

    `cut_at`: the place of the frame that stands for others which are not known, with all their evaluation frames.
    """

    frames: tuple[Frame, ...]
    cut_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """`exact` False: which Python frames belong where among the native ones is not certain."""

    frames: tuple[Frame, ...]
    exact: bool = True


def merge(
    native: Sequence[Frame],
    runs: Sequence[Run],
    *,
    native_is_whole: bool = True,
    evaluations: Sequence[int] | None = None,
) -> Merged:
    """All from the thread's root to the caller of the driver. `native_is_whole` False: its outer frames are missing.

    `evaluations` are the places of the native frames that evaluate Python functions, where these are known without
    their names.

    Of native frames that are not whole, the evaluation frames are those of the innermost runs. The other runs stand
    before all native frames.
    """
    places = (
        list(evaluations)
        if evaluations is not None
        else [place for place, frame in enumerate(native) if is_evaluation(frame)]
    )
    if not native or not runs:
        return Merged(frames=(*_all(runs), *native))
    if not native_is_whole and len(places) < len(runs):
        # What is missing between these runs and the native frames says itself that it is.
        outer = len(runs) - len(places)
        inner = merge(native, runs[outer:], evaluations=places)
        return Merged(frames=(*_all(runs[:outer]), *inner.frames), exact=inner.exact)
    cut = next((number for number, run in enumerate(runs) if run.cut_at is not None), None)
    if len(places) > len(runs) and cut is not None:
        runs = _divided(runs, cut, len(places))
    if len(places) == len(runs):
        return Merged(frames=_in_places(native, places, runs))
    return Merged(frames=(*_all(runs), *native), exact=False)


def is_evaluation(frame: Frame) -> bool:
    """Whether this native frame executes Python functions."""
    return frame.function == EVALUATION or frame.function.startswith(_PARTS)


def in_place_of_evaluation(native: Sequence[Frame], reason: Frame) -> tuple[Frame, ...]:
    """For a Python stack that could not be had: the reason, where its outermost frames would be, or outside."""
    for place, frame in enumerate(native):
        if is_evaluation(frame):
            return (*native[:place], reason, *native[place:])
    return (reason, *native)


def _divided(runs: Sequence[Run], cut: int, count: int) -> list[Run]:
    """As many runs as evaluation frames: those of the functions that are not known have none of their own."""
    frames, at = runs[cut].frames, runs[cut].cut_at or 0
    outer, inner = Run(frames=frames[: at + 1]), Run(frames=frames[at + 1 :])
    unknown = [Run(frames=())] * (count - len(runs) - 1)
    return [*runs[:cut], outer, *unknown, inner, *runs[cut + 1 :]]


def _in_places(native: Sequence[Frame], places: Sequence[int], runs: Sequence[Run]) -> tuple[Frame, ...]:
    """An evaluation frame without a function stays what it is."""
    merged = list[Frame]()
    executed = dict(zip(places, runs, strict=True))
    for place, frame in enumerate(native):
        run = executed.get(place)
        merged.extend(run.frames if run is not None and run.frames else (frame,))
    return tuple(merged)


def _all(runs: Sequence[Run]) -> tuple[Frame, ...]:
    return tuple(frame for run in runs for frame in run.frames)


def native_frame(function: str, library: str, build_id: str = "", source: str = "", line: int = 0) -> Frame:
    """`library` is the path of the file that the code is of, `source` empty where that is not known."""
    return Frame(
        function=function,
        file=source or library,
        line=line if source else 0,
        kind=FrameKind.NATIVE,
        library=library if source else "",
        build_id=build_id,
    )

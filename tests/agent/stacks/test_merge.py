# SPDX-License-Identifier: Apache-2.0
"""Native and Python frames as one stack. Expected: written by hand, as a debugger that knows both would show them."""

from gpuheap.heap.model import Frame, FrameKind
from gpuheap.stacks.merge import Run, in_place_of_evaluation, merge, native_frame

EVALUATES = "_PyEval_EvalFrameDefault"
CUT = Frame(function="<cut>", kind=FrameKind.UNKNOWN)


def native(text: str) -> list[Frame]:
    """Names from the root; `*` is an evaluation frame."""
    return [native_frame(EVALUATES if name == "*" else name, "/bin/python") for name in text.split()]


def run(text: str, cut_at: int | None = None) -> Run:
    frames = tuple(CUT if name == "<cut>" else Frame(function=name, file="a.py") for name in text.split())
    return Run(frames=frames, cut_at=cut_at)


def names(frames: tuple[Frame, ...]) -> str:
    return " ".join("*" if frame.function == EVALUATES else frame.function for frame in frames)


def test_a_run_of_python_functions_stands_where_its_evaluation_frame_was() -> None:
    merged = merge(native("_start main * ffi_call allocate"), [run("<module> train step")])
    assert names(merged.frames) == "_start main <module> train step ffi_call allocate"
    assert merged.exact


def test_each_run_has_an_evaluation_frame_of_its_own_in_their_order() -> None:
    merged = merge(native("_start * builtin_map * list_sort * ffi_call"), [run("a"), run("b c"), run("d")])
    assert names(merged.frames) == "_start a builtin_map b c list_sort d ffi_call"
    assert merged.exact


def test_a_part_of_the_evaluation_function_and_a_tail_calling_one_count_as_it() -> None:
    frames = native("_start _PyEval_EvalFrameDefault.cold _TAIL_CALL_CALL_PY_EXACT_ARGS ffi_call")
    assert names(merge(frames, [run("a"), run("b")]).frames) == "_start a b ffi_call"


def test_without_python_the_stack_is_native() -> None:
    assert names(merge(native("_start main allocate"), []).frames) == "_start main allocate"


def test_without_native_frames_the_stack_is_python() -> None:
    assert names(merge([], [run("a"), run("b")]).frames) == "a b"


def test_where_outer_native_frames_are_missing_the_inner_runs_keep_their_places() -> None:
    merged = merge(native("list_sort * ffi_call"), [run("a b"), run("c"), run("d")], native_is_whole=False)
    assert names(merged.frames) == "a b c list_sort d ffi_call"
    assert merged.exact


def test_no_frame_is_dropped_where_there_are_more_runs_than_evaluation_frames() -> None:
    merged = merge(native("_start * ffi_call"), [run("a"), run("b")])
    assert names(merged.frames) == "a b _start * ffi_call"
    assert not merged.exact


def test_no_frame_is_dropped_where_there_are_more_evaluation_frames_than_runs() -> None:
    merged = merge(native("_start * map * ffi_call"), [run("a")])
    assert names(merged.frames) == "a _start * map * ffi_call"
    assert not merged.exact


def test_what_was_cut_off_stands_for_the_evaluation_frames_that_are_left() -> None:
    merged = merge(native("_start * map * map * ffi_call"), [run("<cut> b", cut_at=0), run("c")])
    assert names(merged.frames) == "_start <cut> map b map c ffi_call"
    assert merged.exact


def test_what_was_cut_out_of_the_middle_leaves_both_ends_in_their_places() -> None:
    stack = native("_start * map * map * map * ffi_call")
    merged = merge(stack, [run("a <cut> b", cut_at=1), run("c")])
    assert names(merged.frames) == "_start a <cut> map * map b map c ffi_call"
    assert merged.exact


def test_a_cut_within_one_run_leaves_it_in_one_place() -> None:
    merged = merge(native("_start * ffi_call"), [run("a <cut> b", cut_at=1)])
    assert names(merged.frames) == "_start a <cut> b ffi_call"


def test_the_reason_for_a_missing_python_stack_stands_where_python_would_begin() -> None:
    reason = Frame(function="<CPython 3.7 is not supported>", kind=FrameKind.UNKNOWN)
    frames = in_place_of_evaluation(native("_start main * map * allocate"), reason)
    assert names(frames) == f"_start main {reason.function} * map * allocate"
    assert (
        names(in_place_of_evaluation(native("clone allocate"), reason)) == f"{reason.function} clone allocate"
    )


def test_frames_without_names_are_in_their_places_where_these_are_known() -> None:
    frames = native("_start python+0x10 builtin_map python+0x20 * ffi_call")
    merged = merge(frames, [run("a"), run("b c")], evaluations=[1, 3])
    assert names(merged.frames) == "_start a builtin_map b c * ffi_call"
    assert merged.exact


def test_places_that_are_known_do_not_fit_more_functions_than_there_are() -> None:
    merged = merge(native("_start * map * ffi_call"), [run("a"), run("b")], evaluations=[1])
    assert names(merged.frames) == "a b _start * map * ffi_call"
    assert not merged.exact

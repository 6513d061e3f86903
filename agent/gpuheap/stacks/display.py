# SPDX-License-Identifier: Apache-2.0
"""Which frames of a stack are shown: the rules, and nothing else. Stacks themselves always keep all of their frames.

Pure. *Plumbing* is what executes Python functions and starts threads: it says nothing about who asks for memory, and is
left out unless someone wants to see all. *Internals* are PyTorch's and CUDA's own functions, which can be folded to one
frame each time. A stack of nothing but plumbing is shown as it is: no byte loses its stack. What stands for frames that
could not be had is always shown.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import chain, groupby
from pathlib import PurePath
from typing import Final

from gpuheap.heap.model import Frame, FrameKind


class Detail(StrEnum):
    """How much of a stack is shown."""

    ALL = "all"
    """Every frame."""
    PLAIN = "plain"
    """Without plumbing."""
    FOLDED = "folded"
    """The program's own functions: besides, internals that follow one another are one frame, and those at the end none:
    they ask for memory in the name of the function that called them."""


PLUMBING: Final = "plumbing"
TORCH: Final = "[torch]"
CUDA: Final = "[cuda]"
_INTERNALS: Final = frozenset({TORCH, CUDA})

_LIBRARIES: Final = (
    # The interpreter: its file may have any suffix (python3.13t, libpython3.11.so.1.0, a path that was replaced).
    (re.compile(r"(lib)?python\d?(\.\d+)?[td]*(\.so[\w.]*)?( \(deleted\))?"), PLUMBING),
    (re.compile(r"(_ctypes|_cffi_backend)[\w.-]*\.so|libffi[\w.-]*\.so[\w.]*"), PLUMBING),
    (re.compile(r"lib(torch(_\w+)?|c10(_\w+)?|caffe2\w*|shm)\.so[\w.]*"), TORCH),
    (
        re.compile(r"lib(cudart|cublas|cudnn|cufft|curand|cusolver|cusparse|nvrtc|nccl)\w*[\w.-]*\.so[\w.]*"),
        CUDA,
    ),
)
"""By the name of the file that the code is of."""

_FUNCTIONS: Final = (
    # CPython's C interface, wherever it is linked in: Py_RunMain, PyObject_Call, _PyEval_EvalFrameDefault.
    (re.compile(r"_?Py_[A-Z]\w*|_?Py[A-Z][A-Za-z]*_[A-Z]\w*|pymain_\w+"), PLUMBING),
    (re.compile(r"ffi_(call|closure|go_closure)\w*"), PLUMBING),
    (
        re.compile(r"_start|__libc_start_(main|call_main)[\w@.]*|start_thread|(__)?clone3?|thread_start"),
        PLUMBING,
    ),
    # Without a symbol: a C library's start of threads, and libstdc++'s, which has none in most builds.
    (re.compile(r"(libc|libpthread|libstdc\+\+|ld-\w+)[.-][\w.-]*\+0x[0-9a-f]+"), PLUMBING),
    (re.compile(r"execute_native_thread_routine"), PLUMBING),
    (re.compile(r"([^(<]* )?(c10|at|torch|caffe2)::.*|THP\w+"), TORCH),
    (re.compile(r"([^(<]* )?cudart::.*"), CUDA),
    (re.compile(r"cuda(Malloc|Host|MemPool|MemCreate|Array|Import|Graph)\w*"), CUDA),
)
"""By the function's name; of C++ functions, after the type that they return, but not by their parameters."""

_TORCH_FILE: Final = re.compile(r"/(site|dist)-packages/torch/")


def shown(stack: Sequence[Frame], detail: Detail) -> tuple[Frame, ...]:
    """The frames that are shown, from the root to the leaf; never none of a stack that has some."""
    if detail is Detail.ALL:
        return tuple(stack)
    plain = tuple(frame for frame in stack if _sort(frame) != PLUMBING) or tuple(stack)
    return _folded(plain) if detail is Detail.FOLDED else plain


def _folded(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    runs = [(sort, tuple(frames)) for sort, frames in groupby(stack, _sort)]
    has_own = any(sort not in _INTERNALS for sort, _ in runs)
    while len(runs) > 1 and (runs[-1][0] == CUDA or (runs[-1][0] == TORCH and has_own)):
        runs.pop()
    folded = (
        (Frame(function=sort, kind=FrameKind.NATIVE),) if sort in _INTERNALS else frames
        for sort, frames in runs
    )
    return tuple(chain.from_iterable(folded))


@lru_cache(maxsize=1 << 16)
def _sort(frame: Frame) -> str:
    """PLUMBING, TORCH or CUDA; empty for all else."""
    if frame.kind is FrameKind.PYTHON:
        return TORCH if _TORCH_FILE.search(frame.file) else ""
    if frame.kind is not FrameKind.NATIVE:
        return ""
    library = PurePath(frame.code_file).name
    by_library = (sort for pattern, sort in _LIBRARIES if pattern.fullmatch(library))
    by_function = (sort for pattern, sort in _FUNCTIONS if pattern.fullmatch(frame.function))
    return next(by_library, "") or next(by_function, "")

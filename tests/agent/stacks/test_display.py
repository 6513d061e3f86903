# SPDX-License-Identifier: Apache-2.0
"""Display rules by example: names of functions and files as debuggers and loaders show them."""

import pytest

from gpuheap.heap.model import Frame, FrameKind
from gpuheap.stacks.display import CUDA, TORCH, Detail, shown

LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
PYTHON = "/usr/bin/python3.11"
LIBPYTHON = "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0"
PACKAGES = "/srv/venv/lib/python3.12/site-packages"
TORCH_CPU = f"{PACKAGES}/torch/lib/libtorch_cpu.so"
TORCH_CUDA = f"{PACKAGES}/torch/lib/libtorch_cuda.so"
TORCH_PYTHON = f"{PACKAGES}/torch/lib/libtorch_python.so"
C10_CUDA = f"{PACKAGES}/torch/lib/libc10_cuda.so"
CUDART = f"{PACKAGES}/nvidia/cu13/lib/libcudart.so.13"


def native(function: str, file: str) -> Frame:
    return Frame(function=function, file=file, kind=FrameKind.NATIVE)


def python(function: str, file: str = "/srv/train.py", line: int = 7) -> Frame:
    return Frame(function=function, file=file, line=line)


MAIN = python("<module>")
STEP = python("Trainer.step")
ASKED = native("my_allocator", "/srv/libmine.so")
GONE = Frame(function="<no Python stack: the process has ended>", kind=FrameKind.UNKNOWN)


@pytest.mark.parametrize(
    "frame",
    [
        native("_PyEval_EvalFrameDefault", PYTHON),
        native("cfunction_call", PYTHON),
        native("python3.11+0x1d2f40", PYTHON),
        native("libpython3.11.so.1.0+0x1d2f40", LIBPYTHON),
        native("python3.13t+0x9a0", "/opt/python/bin/python3.13t"),
        native("slot_tp_call", "/usr/bin/python3.11 (deleted)"),
        native("Py_RunMain", "/srv/program-that-embeds"),
        native("_PyObject_MakeTpCall", "/srv/program-that-embeds"),
        native("PyObject_Call", "/srv/program-that-embeds"),
        native("pymain_run_python", "/srv/program-that-embeds"),
        native("_ctypes_callproc", "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"),
        native("ffi_call_unix64", "/usr/lib/x86_64-linux-gnu/libffi.so.8.1.2"),
        native("ffi_closure_unix64", "/srv/_cffi_backend.cpython-312-x86_64-linux-gnu.so"),
        native("clone3", LIBC),
        native("start_thread", LIBC),
        native("_start", "/srv/program"),
        native("__libc_start_main@@GLIBC_2.34", LIBC),
        native("__libc_start_call_main", LIBC),
        native("execute_native_thread_routine", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"),
        native("libstdc++.so.6.0.30+0xd44a2", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"),
        native("libc.so.6+0x1098eb", LIBC),
        native("libc.musl-x86_64.so.1+0x5a2f0", "/lib/libc.musl-x86_64.so.1"),
        native("__libc_start_main@GLIBC_2.2.5", LIBC),
    ],
    ids=lambda frame: frame.function,
)
def test_plumbing_is_left_out_and_can_be_had_back(frame: Frame) -> None:
    stack = (MAIN, frame, STEP)
    assert shown(stack, Detail.PLAIN) == (MAIN, STEP)
    assert shown(stack, Detail.ALL) == stack


@pytest.mark.parametrize(
    "frame",
    [
        ASKED,
        native("main", "/srv/program"),
        native("PyInit_model", "/srv/model.cpython-311-x86_64-linux-gnu.so"),
        native("Pyramid::level", "/srv/program"),
        native("pythonic_cache", "/srv/libpythonic.so"),
        native("startle", "/srv/program"),
        native("void mine::copy(int, at::Tensor)", "/srv/program"),
        native("mine::Copy<at::Half, c10::Half>::run()", "/srv/program"),
        native("cudaAllocatorOfMine", "/srv/program"),
        native("cuddle", "/srv/program"),
        native("libmine.so+0x10", "/srv/libmine.so"),
        native("libcache.so+0x10", "/srv/libcache.so"),
        native("libshmem.so+0x10", "/srv/libshmem.so"),
        native("std::function<void ()>::operator()()", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"),
        python("PyObject_Call"),
        python("Module.forward", "/srv/torch/model.py"),
        GONE,
    ],
    ids=lambda frame: frame.function,
)
def test_what_a_program_does_itself_is_shown_at_every_detail(frame: Frame) -> None:
    for detail in Detail:
        assert shown((MAIN, frame, STEP), detail) == (MAIN, frame, STEP)


@pytest.mark.parametrize(
    ("frame", "folded"),
    [
        (native("at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)", TORCH_CPU), TORCH),
        (native("libtorch_cuda.so+0x2a31b0", TORCH_CUDA), TORCH),
        (native("torch::autograd::THPVariable_to(_object*, _object*, _object*)", TORCH_PYTHON), TORCH),
        (native("c10::cuda::CUDACachingAllocator::Native::malloc(int)", C10_CUDA), TORCH),
        (native("at::Tensor my_op()", "/srv/my_extension.so"), TORCH),
        (native("void at::native::gpu_kernel<int>()", "/srv/my_extension.so"), TORCH),
        (native("THPFunction_apply", "/srv/statically-linked"), TORCH),
        (python("Module._apply", f"{PACKAGES}/torch/nn/modules/module.py"), TORCH),
        (python("to", "/usr/lib/python3/dist-packages/torch/_tensor.py"), TORCH),
        (native("cudaMalloc", CUDART), CUDA),
        (native("libcudart.so.13+0x51f00", CUDART), CUDA),
        (native("cudaMallocAsync", "/srv/statically-linked"), CUDA),
        (native("cublasCreate_v2", f"{PACKAGES}/nvidia/cu13/lib/libcublas.so.13"), CUDA),
        (native("ncclCommInitRank", f"{PACKAGES}/nvidia/nccl/lib/libnccl.so.2"), CUDA),
    ],
    ids=lambda value: value.function if isinstance(value, Frame) else value,
)
def test_internals_are_shown_unless_they_are_to_be_folded(frame: Frame, folded: str) -> None:
    stack = (MAIN, frame, STEP)
    assert shown(stack, Detail.PLAIN) == stack
    assert shown(stack, Detail.FOLDED) == (MAIN, Frame(function=folded, kind=FrameKind.NATIVE), STEP)


def test_internals_that_follow_one_another_are_one_frame() -> None:
    backward = python("Gate.backward")
    engine = native("torch::autograd::Engine::thread_main()", TORCH_CPU)
    call = native("_PyObject_Call", PYTHON)
    empty = native("at::empty(c10::IntArrayRef)", TORCH_CPU)
    allocate = native("c10::cuda::malloc()", C10_CUDA)
    stack = (native("clone3", LIBC), engine, engine, call, backward, empty, allocate)
    names = [frame.function for frame in shown(stack, Detail.FOLDED)]
    assert names == [TORCH, "Gate.backward"]


def test_plumbing_between_internals_does_not_divide_them() -> None:
    stack = (
        MAIN,
        native("at::a()", TORCH_CPU),
        native("PyObject_Call", PYTHON),
        native("at::b()", TORCH_CPU),
        STEP,
    )
    assert [frame.function for frame in shown(stack, Detail.FOLDED)] == ["<module>", TORCH, "Trainer.step"]


@pytest.mark.parametrize("detail", Detail)
def test_a_stack_of_nothing_but_plumbing_stays_what_it_is(detail: Detail) -> None:
    stack = (native("clone3", LIBC), native("start_thread", LIBC))
    assert shown(stack, detail) == stack


@pytest.mark.parametrize("detail", Detail)
def test_no_stack_is_no_stack(detail: Detail) -> None:
    assert shown((), detail) == ()


def test_internals_ask_in_the_name_of_who_called_them() -> None:
    allocate = native("c10::cuda::malloc()", C10_CUDA)
    malloc = native("cudaMalloc", CUDART)
    assert shown((MAIN, STEP, allocate, malloc), Detail.FOLDED) == (MAIN, STEP)


def test_internals_that_nobody_called_are_named() -> None:
    engine = native("torch::autograd::Engine::thread_main()", TORCH_CPU)
    start, malloc = native("clone3", LIBC), native("cudaMalloc", CUDART)
    assert [frame.function for frame in shown((start, engine, malloc), Detail.FOLDED)] == [TORCH]
    assert [frame.function for frame in shown((start, malloc), Detail.FOLDED)] == [CUDA]


def test_a_function_whose_source_is_known_is_of_its_library_all_the_same() -> None:
    def of(library: str) -> Frame:
        return Frame(function="ask", file="/src/ask.c", line=7, kind=FrameKind.NATIVE, library=library)

    own = of("/srv/libmine.so")
    stack = (MAIN, of("/usr/lib/libpython3.12.so.1.0"), of(TORCH_PYTHON), own)
    assert shown(stack, Detail.FOLDED) == (MAIN, Frame(function="[torch]", kind=FrameKind.NATIVE), own)

# SPDX-License-Identifier: Apache-2.0
"""The driver's functions that are probed, by their exported names: mirror of `enum call` in bpf/gpuheap.h.

A driver that lacks some of them (an old one) is probed at those that it has.
"""

from enum import IntEnum

from gpuheap.heap.model import MemoryKind


class Call(IntEnum):
    """The names are the symbols of libcuda.so.1; the numbers are the kernel side's."""

    cuInit = 1
    # Linear memory
    cuMemAlloc_v2 = 2
    cuMemAllocPitch_v2 = 3
    cuMemFree_v2 = 4
    cuMemAlloc = 5  # of the 32-bit API of CUDA 3
    cuMemAllocPitch = 6
    cuMemFree = 7
    cuMemAllocManaged = 8
    # Stream-ordered
    cuMemAllocAsync = 9
    cuMemAllocAsync_ptsz = 10
    cuMemAllocFromPoolAsync = 11
    cuMemAllocFromPoolAsync_ptsz = 12
    cuMemFreeAsync = 13
    cuMemFreeAsync_ptsz = 14
    cuMemPoolCreate = 15
    cuMemPoolDestroy = 16
    cuMemPoolTrimTo = 17
    cuMemPoolSetAttribute = 18
    cuMemPoolGetAttribute = 19
    cuDeviceGetDefaultMemPool = 20
    cuDeviceGetMemPool = 21
    cuDeviceSetMemPool = 22
    # Virtual memory management
    cuMemCreate = 23
    cuMemRelease = 24
    cuMemMap = 25
    cuMemUnmap = 26
    cuMemRetainAllocationHandle = 27
    cuMemImportFromShareableHandle = 28
    cuMulticastCreate = 29
    # Host memory
    cuMemAllocHost_v2 = 30
    cuMemHostAlloc = 31
    cuMemFreeHost = 32
    cuMemHostRegister_v2 = 33
    cuMemHostUnregister = 34
    # Arrays
    cuArrayCreate_v2 = 35
    cuArray3DCreate_v2 = 36
    cuMipmappedArrayCreate = 37
    cuArrayDestroy = 38
    cuMipmappedArrayDestroy = 39
    # Memory of others
    cuIpcGetMemHandle = 40
    cuIpcOpenMemHandle_v2 = 41
    cuIpcCloseMemHandle = 42
    cuImportExternalMemory = 43
    cuDestroyExternalMemory = 44
    # Graphs
    cuGraphAddMemAllocNode = 45
    cuGraphDestroy = 46
    # Contexts
    cuCtxCreate_v2 = 47
    cuCtxCreate_v3 = 48
    cuCtxCreate_v4 = 49
    cuCtxDestroy_v2 = 50
    cuDevicePrimaryCtxRetain = 51
    cuDevicePrimaryCtxRelease_v2 = 52
    cuDevicePrimaryCtxReset_v2 = 53
    cuCtxSetCurrent = 54
    cuCtxPushCurrent_v2 = 55
    cuCtxPopCurrent_v2 = 56
    cuCtxGetCurrent = 57
    cuCtxGetDevice = 58
    cuGreenCtxCreate = 59
    cuGreenCtxDestroy = 60
    cuCtxFromGreenCtx = 61


KINDS: dict[int, MemoryKind] = dict(enumerate(MemoryKind))
"""`enum kind` of bpf/gpuheap.h: in the order of `MemoryKind`."""

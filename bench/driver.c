/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that does nothing, at the same speed however much is allocated: what a call costs is what its probes cost.
 *
 * Built so that each function begins with `push %rbp`, which the kernel emulates in a probe. Most other instructions it
 * single-steps, and that can cost twenty times as much, most of all in a virtual machine.
 */
#include <stddef.h>

#define API __attribute__((visibility("default"), noinline))

typedef unsigned long long CUdeviceptr;

static CUdeviceptr next_address = 0x700000000000;
static char primary;

API int cuInit(unsigned int flags)
{
	return flags ? 1 : 0;
}

API int cuDriverGetVersion(int *version)
{
	*version = 12080;
	return 0;
}

API int cuDeviceGetCount(int *count)
{
	*count = 1;
	return 0;
}

API int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal ? 101 : 0;
}

API int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = &primary;
	return device ? 101 : 0;
}

API int cuCtxSetCurrent(void *context)
{
	return context ? 0 : 201;
}

API int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	*address = __atomic_fetch_add(&next_address, 512, __ATOMIC_RELAXED);
	return bytes ? 0 : 1;
}

API int cuMemFree_v2(CUdeviceptr address)
{
	return address == 1;
}

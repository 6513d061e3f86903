/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the NVIDIA driver library, for machines without a GPU: libcuda.so.1 with the calls that the tests make,
 * written from the public driver API. "Device" memory is address space of the process that nobody touches.
 *
 * It keeps a ledger of its own, which tests hold against what the tracer says. It knows no kernels, streams or copies.
 *
 *   STANDIN_CUDA_MIB       capacity of its one device (default 8192); beyond it allocations fail with
 *                          CUDA_ERROR_OUT_OF_MEMORY
 *   STANDIN_CUDA_INIT_MS   how long cuInit takes (default 0); a real driver's first call is slow, too
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default"), noinline))
#define SLOTS (1u << 20)
#define GRANULE 512 /* allocations are aligned like the driver's small ones */

typedef enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_LAUNCH_FAILED = 719,
} CUresult;

typedef unsigned long long CUdeviceptr;
typedef int CUdevice;
typedef struct context *CUcontext;

struct slot {
	CUdeviceptr address; /* 0: never used; 1: freed */
	size_t bytes;
};

struct ledger {
	uint64_t allocated_bytes, allocated_objects, freed_bytes, freed_objects, failed,
		unknown_frees;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *slots;
static struct ledger ledger;
static size_t capacity;
static int initialized;
static int frees_to_refuse;

static struct slot *find(CUdeviceptr address)
{
	size_t at = (address / GRANULE) * 0x9e3779b97f4a7c15ull >> 44;

	for (size_t i = 0; i < SLOTS && slots[at].address; i++, at = (at + 1) % SLOTS)
		if (slots[at].address == address)
			return &slots[at];
	return NULL;
}

static void remember(CUdeviceptr address, size_t bytes)
{
	size_t at = (address / GRANULE) * 0x9e3779b97f4a7c15ull >> 44;

	while (slots[at].address > 1)
		at = (at + 1) % SLOTS;
	slots[at] = (struct slot){ address, bytes };
}

API CUresult cuInit(unsigned int flags)
{
	const char *mib = getenv("STANDIN_CUDA_MIB");
	const char *milliseconds = getenv("STANDIN_CUDA_INIT_MS");

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (milliseconds && !initialized)
		usleep(1000 * strtoul(milliseconds, NULL, 10));
	pthread_mutex_lock(&lock);
	if (!initialized) {
		capacity = (mib ? strtoull(mib, NULL, 10) : 8192) << 20;
		slots = mmap(NULL, SLOTS * sizeof(*slots), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		initialized = slots != MAP_FAILED;
	}
	pthread_mutex_unlock(&lock);
	return initialized ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuDeviceGetCount(int *count)
{
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	*count = 1;
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (ordinal)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = 0;
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	static char primary;

	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (device)
		return CUDA_ERROR_INVALID_DEVICE;
	*context = (CUcontext)&primary;
	return CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(CUcontext context)
{
	(void)context;
	return initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	void *memory;

	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (ledger.allocated_bytes - ledger.freed_bytes + bytes <= capacity &&
	    ledger.allocated_objects - ledger.freed_objects < SLOTS / 2) {
		/* The kernel gives the addresses of unmapped memory again at once, like the driver does. */
		memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			      -1, 0);
		if (memory != MAP_FAILED) {
			*address = (CUdeviceptr)(uintptr_t)memory;
			remember(*address, bytes);
			ledger.allocated_bytes += bytes;
			ledger.allocated_objects++;
			result = CUDA_SUCCESS;
		}
	}
	ledger.failed += result != CUDA_SUCCESS;
	pthread_mutex_unlock(&lock);
	return result;
}

API CUresult cuMemFree_v2(CUdeviceptr address)
{
	CUresult result = CUDA_SUCCESS;
	struct slot *slot;

	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!address)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	slot = find(address);
	if (slot && frees_to_refuse) {
		frees_to_refuse--;
		result =
			CUDA_ERROR_LAUNCH_FAILED; /* what an earlier kernel's fault makes of every later call */
	} else if (slot) {
		munmap((void *)(uintptr_t)address, slot->bytes);
		ledger.freed_bytes += slot->bytes;
		ledger.freed_objects++;
		slot->address = 1;
	} else {
		ledger.unknown_frees++;
		result = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&lock);
	*free_bytes = capacity - (ledger.allocated_bytes - ledger.freed_bytes);
	*total_bytes = capacity;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* Not of the driver: what has really happened. */
API void standin_ledger(struct ledger *into)
{
	pthread_mutex_lock(&lock);
	*into = ledger;
	pthread_mutex_unlock(&lock);
}

/* Not of the driver: the next `count` frees of known addresses fail. */
API void standin_refuse_frees(int count)
{
	pthread_mutex_lock(&lock);
	frees_to_refuse = count;
	pthread_mutex_unlock(&lock);
}

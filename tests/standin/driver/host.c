/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned host memory: what the driver allocates, and what a program has allocated itself and registers. */
#include <stdlib.h>
#include <sys/mman.h>

#include "standin.h"

/* Registered ranges, in no order: there are few, and a new one may overlap none of them. */
static struct object **ranges;
static size_t range_count, range_room;

static struct object *host_object(struct context *context, enum space space, void *memory,
				  size_t bytes)
{
	struct object *object = create(sizeof(*object), space, (uintptr_t)memory);

	object->kind = PINNED_HOST;
	object->bytes = bytes;
	own(&context->home->owned, object);
	account_allocation(object);
	return object;
}

static CUresult allocate(void **memory, size_t bytes)
{
	struct context *context;
	CUresult result = current(&context);
	void *mapped;

	if (result)
		return result;
	if (!memory || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	host_object(context, HOST_ADDRESS, mapped, bytes);
	*memory = mapped;
	return CUDA_SUCCESS;
}

API CUresult cuMemAllocHost_v2(void **memory, size_t bytes)
{
	return ALLOCATION(allocate(memory, bytes));
}

API CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
	(void)flags;
	return ALLOCATION(allocate(memory, bytes));
}

static CUresult release(enum space space, void *memory, CUresult unknown)
{
	struct context *context;
	struct object *object;
	CUresult result = current(&context);

	if (result)
		return result;
	object = find(space, (uintptr_t)memory);
	if (!object)
		return unknown;
	result = refusal();
	if (!result)
		drop(object);
	return result;
}

API CUresult cuMemFreeHost(void *memory)
{
	return RELEASE(release(HOST_ADDRESS, memory, CUDA_ERROR_INVALID_VALUE));
}

static bool overlaps(uintptr_t address, size_t bytes)
{
	for (size_t i = 0; i < range_count; i++)
		if (address < ranges[i]->key + ranges[i]->bytes && ranges[i]->key < address + bytes)
			return true;
	return false;
}

void unregistered(const struct object *object)
{
	size_t at = range_count - 1;

	while (ranges[at] != object)
		at--;
	ranges[at] = ranges[--range_count];
}

static CUresult add_range(void *memory, size_t bytes)
{
	struct context *context;
	CUresult result = current(&context);

	if (result)
		return result;
	if (!memory || !bytes || (uintptr_t)memory + bytes < bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (overlaps((uintptr_t)memory, bytes))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (range_count == range_room) {
		range_room = 2 * range_room + 64;
		ranges = realloc(ranges, range_room * sizeof(struct object *));
		if (!ranges)
			abort();
	}
	ranges[range_count++] = host_object(context, REGISTERED, memory, bytes);
	return CUDA_SUCCESS;
}

API CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	(void)flags;
	return ALLOCATION(add_range(memory, bytes));
}

API CUresult cuMemHostUnregister(void *memory)
{
	return RELEASE(release(REGISTERED, memory, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
}

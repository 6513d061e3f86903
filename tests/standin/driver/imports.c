/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is another's: opened by an IPC handle, or imported from another interface.
 *
 * A process may open what it has exported itself, which the real driver refuses; only then the size is known. Opening the
 * same memory again in the same context gives the same address, to be closed as often.
 */
#include <string.h>
#include <unistd.h>

#include "standin.h"

#define MARK 0x5ad05ad05ad05ad0ull
#define UNKNOWN_SIZE_BYTES PAGE /* of address space, for memory of another process */

struct ipc_handle {
	uint64_t mark, process, address, serial;
	char unused[32];
};

_Static_assert(sizeof(struct ipc_handle) == 64, "CUipcMemHandle");

struct external_descriptor {
	int type;
	union {
		int descriptor;
		void *pointers[2];
	} handle;
	unsigned long long bytes;
	unsigned int flags;
};

_Static_assert(offsetof(struct external_descriptor, bytes) == 24, "cuda.h");

struct buffer_descriptor {
	unsigned long long offset, bytes;
	unsigned int flags;
};

static CUresult tell(struct ipc_handle *into, CUdeviceptr address)
{
	struct context *context;
	struct object *object;
	CUresult result = current(&context);

	if (result)
		return result;
	object = find(ADDRESS, address);
	if (!into || !object || object->kind != DEVICE || object->pool)
		return CUDA_ERROR_INVALID_VALUE;
	*into = (struct ipc_handle){
		.mark = MARK,
		.process = getpid(),
		.address = address,
		.serial = object->serial,
	};
	return CUDA_SUCCESS;
}

API CUresult cuIpcGetMemHandle(struct ipc_handle *into, CUdeviceptr address)
{
	return ANSWER(tell(into, address));
}

static struct object *opened(struct context *context, uint64_t source)
{
	struct object *object = context->home->owned;

	while (object && (object->space != IPC_ADDRESS || object->source != source))
		object = object->next;
	return object;
}

static CUresult open_memory(CUdeviceptr *address, const struct ipc_handle *of)
{
	struct context *context;
	struct object *object, *exported = NULL;
	uint64_t source = of->serial ^ of->process << 40;
	CUresult result = current(&context);
	CUdeviceptr key;
	size_t bytes;

	if (result)
		return result;
	if (of->mark != MARK)
		return CUDA_ERROR_INVALID_HANDLE;
	if (of->process == (uint64_t)getpid()) {
		exported = find(ADDRESS, of->address);
		if (!exported || exported->serial != of->serial)
			return CUDA_ERROR_INVALID_VALUE;
	}
	object = opened(context, source);
	if (object) {
		object->references++;
		*address = object->key;
		return CUDA_SUCCESS;
	}
	bytes = exported ? exported->bytes : 0;
	key = place(bytes ?: UNKNOWN_SIZE_BYTES);
	if (!key)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object = create(sizeof(*object), IPC_ADDRESS, key);
	object->kind = IMPORTED;
	object->device = context->base.device;
	object->bytes = bytes;
	object->references = 1;
	object->source = source;
	own(&context->home->owned, object);
	account_allocation(object);
	*address = key;
	return CUDA_SUCCESS;
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, struct ipc_handle of, unsigned int flags)
{
	(void)flags;
	return ALLOCATION(open_memory(address, &of));
}

static CUresult close_memory(CUdeviceptr address)
{
	struct context *context;
	struct object *object;
	CUresult result = current(&context);

	if (result)
		return result;
	object = find(IPC_ADDRESS, address);
	if (!object)
		return CUDA_ERROR_INVALID_VALUE;
	result = refusal();
	if (!result && !--object->references)
		drop(object);
	return result;
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	return RELEASE(close_memory(address));
}

static CUresult import(handle *memory, const struct external_descriptor *descriptor)
{
	struct context *context;
	CUresult result = current(&context);

	if (result)
		return result;
	if (!memory || descriptor->type < 1 || !descriptor->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	return hold(&context->home->owned, EXTERNAL, IMPORTED, context->base.device,
		    descriptor->bytes, memory);
}

API CUresult cuImportExternalMemory(handle *memory, const struct external_descriptor *descriptor)
{
	return ALLOCATION(import(memory, descriptor));
}

static CUresult destroy(handle memory)
{
	struct context *context;
	struct object *object;
	CUresult result = current(&context);

	if (result)
		return result;
	object = find(EXTERNAL, memory);
	if (!object)
		return CUDA_ERROR_INVALID_HANDLE;
	result = refusal();
	if (!result)
		drop(object);
	return result;
}

API CUresult cuDestroyExternalMemory(handle memory)
{
	return RELEASE(destroy(memory));
}

/* An address for it, to be freed by cuMemFree: no memory beyond what is imported. */
static CUresult map(CUdeviceptr *address, handle memory, const struct buffer_descriptor *buffer)
{
	struct context *context;
	struct object *object;
	CUresult result = current(&context);
	uint64_t key;

	if (result)
		return result;
	object = find(EXTERNAL, memory);
	if (!object)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!address || !buffer->bytes || buffer->offset > object->bytes ||
	    buffer->bytes > object->bytes - buffer->offset)
		return CUDA_ERROR_INVALID_VALUE;
	result = hold(&context->home->owned, ADDRESS, NO_MEMORY, context->base.device,
		      buffer->bytes, &key);
	if (!result)
		*address = key;
	return result;
}

API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, handle memory,
					     const struct buffer_descriptor *buffer)
{
	return ANSWER(map(address, memory, buffer));
}

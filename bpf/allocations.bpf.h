/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls that allocate: what each asks for, where its result is, and who called it.
 *
 * Bytes are what the program asks for. The driver rounds up, and tells nobody by how much.
 */
#ifndef GPUHEAP_ALLOCATIONS_BPF_H
#define GPUHEAP_ALLOCATIONS_BPF_H

#include "failures.bpf.h"
#include "handles.bpf.h"
#include "pools.bpf.h"

#define IPC_WORDS 8 /* CUipcMemHandle: 64 bytes */

/* What processes let others open, by digest of the handle that they hand out. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64); /* bytes */
} exports SEC(".maps");

/* Bytes of an array, from what describes it. `three` 1: CUDA_ARRAY3D_DESCRIPTOR. */
static __noinline __u64 array_bytes(__u64 descriptor, __u32 three, __u32 levels)
{
	__u64 size[3] = {}, bytes = 0;
	__u32 format[2] = {};

	if (bpf_probe_read_user(size, three ? 24 : 16, (const void *)descriptor) ||
	    bpf_probe_read_user(format, 8, (const void *)(descriptor + (three ? 24 : 16))))
		return 0;
	/* The sides of each level are half of those before. */
	for (__u32 level = 0; level < 32; level++) {
		if (level >= levels)
			break;
		bytes +=
			(size[0] ? size[0] : 1) * (size[1] ? size[1] : 1) * (size[2] ? size[2] : 1);
		if (size[0] <= 1 && size[1] <= 1 && size[2] <= 1) /* there are no more */
			break;
		size[0] >>= 1;
		size[1] >>= 1;
		size[2] >>= 1;
	}
	/* CUarray_format: the low bits tell the width of a channel, but for half (0x10) and float (0x20). */
	switch (format[0]) {
	case 0x01:
	case 0x08:
		return bytes * format[1];
	case 0x02:
	case 0x09:
	case 0x10:
		return bytes * format[1] * 2;
	case 0x03:
	case 0x0a:
	case 0x20:
		return bytes * format[1] * 4;
	default: /* block-compressed and planar ones: a byte a channel is near enough to be seen */
		return bytes * (format[1] ? format[1] : 1);
	}
}

/*
 * What an allocating call asks for: bytes, kind, device, owner, pool and space. Returns where its result is:
 * 0: it is no such call. The handles of VMM are not here.
 */
enum result {
	RESULT_NONE,
	RESULT_POINTER, /* 8 bytes, where the first argument points */
	RESULT_POINTER_32,
	RESULT_ARGUMENT, /* the first argument is the address */
	RESULT_NODE, /* in the parameters of a graph's node */
};

static __noinline int allocation(struct thread *thread, struct pending *pending)
{
	struct live_value *value;
	struct pool *pool;
	__u64 *arguments;
	int result = RESULT_POINTER;

	if (!thread || !pending)
		return RESULT_NONE;
	value = &pending->value;
	arguments = pending->arguments;
	locate(thread);
	value->bytes = arguments[1];
	value->owner = thread->owner;
	value->pool = NO_POOL;
	value->reopened = value->returned = 0;
	value->site.device = thread->device;
	value->site.kind = KIND_DEVICE;
	pending->key.space = SPACE_DEVICE;
	switch (pending->call) {
	case CALL_cuMemAlloc_v2:
		break;
	case CALL_cuMemAlloc:
		value->bytes = (__u32)arguments[1];
		result = RESULT_POINTER_32;
		break;
	case CALL_cuMemAllocPitch_v2:
		value->bytes = arguments[2] * arguments[3];
		break;
	case CALL_cuMemAllocPitch:
		value->bytes = (__u64)(__u32)arguments[2] * (__u32)arguments[3];
		result = RESULT_POINTER_32;
		break;
	case CALL_cuMemAllocManaged:
		value->site.kind = KIND_MANAGED;
		break;
	case CALL_cuMemAllocAsync:
	case CALL_cuMemAllocAsync_ptsz:
		value->owner = 0;
		value->pool = current_pool(thread->image, thread->device);
		break;
	case CALL_cuMemAllocFromPoolAsync:
	case CALL_cuMemAllocFromPoolAsync_ptsz:
		value->owner = 0;
		value->pool = pool_address(thread->image, arguments[2]);
		pool = pool_with(thread->image, arguments[2]);
		value->site.device = pool ? pool->device : DEVICE_UNKNOWN;
		if (value->site.device == DEVICE_HOST)
			value->site.kind = KIND_PINNED_HOST;
		break;
	case CALL_cuMemAllocHost_v2:
	case CALL_cuMemHostAlloc:
		pending->key.space = SPACE_HOST;
		value->site.kind = KIND_PINNED_HOST;
		value->site.device = DEVICE_HOST;
		break;
	case CALL_cuMemHostRegister_v2:
		pending->key.space = SPACE_REGISTERED;
		value->site.kind = KIND_PINNED_HOST;
		value->site.device = DEVICE_HOST;
		result = RESULT_ARGUMENT;
		break;
	case CALL_cuArrayCreate_v2:
	case CALL_cuArray3DCreate_v2:
	case CALL_cuMipmappedArrayCreate:
		pending->key.space = SPACE_ARRAY;
		value->site.kind = KIND_ARRAY;
		value->bytes = array_bytes(
			arguments[1], pending->call != CALL_cuArrayCreate_v2,
			pending->call == CALL_cuMipmappedArrayCreate ? (__u32)arguments[2] : 1);
		break;
	case CALL_cuIpcOpenMemHandle_v2:
		pending->key.space = SPACE_IPC;
		value->site.kind = KIND_IMPORTED;
		value->bytes = arguments[4]; /* found at the entry */
		break;
	case CALL_cuImportExternalMemory:
		pending->key.space = SPACE_EXTERNAL;
		value->site.kind = KIND_IMPORTED;
		value->bytes = 0;
		READ(value->bytes, arguments[1] + 24); /* CUDA_EXTERNAL_MEMORY_HANDLE_DESC.size */
		break;
	case CALL_cuGraphAddMemAllocNode:
		pending->key.space = SPACE_GRAPH;
		value->site.kind = KIND_GRAPH;
		value->bytes = 0;
		READ(value->bytes, arguments[4] + 104); /* CUDA_MEM_ALLOC_NODE_PARAMS.bytesize */
		value->site.device = device_at(arguments[4] + 8);
		value->owner = 0;
		result = RESULT_NODE;
		break;
	default:
		return RESULT_NONE;
	}
	return result;
}

/* Bytes, the pool or the graph, now that the call has succeeded. */
static __noinline void complete(struct thread *thread, struct pending *pending)
{
	struct live_value *value;
	struct owner *graph;
	__u64 pitch = 0;

	if (!thread || !pending)
		return;
	value = &pending->value;
	switch (pending->call) {
	case CALL_cuMemAllocPitch_v2:
		READ(pitch, pending->arguments[1]);
		value->bytes = pitch * pending->arguments[3];
		break;
	case CALL_cuMemAllocPitch:
		bpf_probe_read_user(&pitch, sizeof(__u32), (const void *)pending->arguments[1]);
		value->bytes = pitch * (__u32)pending->arguments[3];
		break;
	case CALL_cuGraphAddMemAllocNode:
		graph = learn_owner(thread->image, OWNER_GRAPH, pending->arguments[1],
				    DEVICE_UNKNOWN);
		if (graph)
			value->owner = graph->id;
		break;
	}
	if (value->pool != NO_POOL)
		learn_pool(thread->image, value->pool, value->site.device);
}

static __noinline int result_address(struct pending *pending, int result)
{
	__u32 low = 0;
	long error = 0;

	if (!pending)
		return -1;
	switch (result) {
	case RESULT_POINTER:
		error = READ(pending->key.address, pending->arguments[0]);
		break;
	case RESULT_POINTER_32:
		error = READ(low, pending->arguments[0]);
		pending->key.address = low;
		break;
	case RESULT_ARGUMENT:
		pending->key.address = pending->arguments[0];
		break;
	case RESULT_NODE:
		error = READ(pending->key.address, pending->arguments[4] + 112); /* dptr */
		break;
	}
	return error;
}

/* Memory of another process that is open already: it counts once, until it was closed as often as opened. */
static __always_inline int opened_again(struct pending *pending)
{
	struct live_value *value = bpf_map_lookup_elem(&live, &pending->key);

	if (!value || value->owner != pending->value.owner)
		return 0;
	ADD(value->reopened, 1);
	return 1;
}

static __noinline void allocated(struct thread *thread, struct pending *pending, int result)
{
	__u64 id = bpf_get_current_pid_tgid();
	int fault;

	if (!thread || !pending)
		return;
	pending->key.image = thread->image;
	fault = result_address(pending, result);
	if (!fault && pending->key.space == SPACE_IPC && opened_again(pending))
		return;
	complete(thread, pending);
	sign(&pending->value.site, thread, pending->call, id);
	if (pending->value.site.device == DEVICE_UNKNOWN)
		lost(LOSS_UNKNOWN_DEVICE);
	charge(&pending->value);
	if (fault)
		lost(LOSS_FAULT);
	else
		remember(thread, pending);
}

/* cuMemCreate, and handles that are not this process's memory. */
static __always_inline void handle_made(struct thread *thread, struct pending *pending, int code)
{
	__u64 id = bpf_get_current_pid_tgid(), value = 0;
	struct handle *handle;
	__s32 device;

	if (!thread || !pending)
		return;
	handle = &pending->handle;
	handle->bytes = 0;
	handle->site.kind = KIND_NOTHING;
	handle->site.device = DEVICE_UNKNOWN;
	if (pending->call == CALL_cuMemCreate) {
		device = device_at(pending->arguments[2] + 8); /* CUmemAllocationProp.location */
		handle->bytes = pending->arguments[1];
		handle->site.device = device;
		handle->site.kind = device == DEVICE_HOST ? KIND_PINNED_HOST : KIND_DEVICE;
	} else if (pending->call == CALL_cuMemImportFromShareableHandle) {
		locate(thread);
		handle->site.kind = KIND_IMPORTED;
		handle->site.device = thread->device;
	}
	if (code) {
		failed(thread, pending, &handle->site, handle->bytes, code);
		return;
	}
	sign(&handle->site, thread, pending->call, id);
	if (READ(value, pending->arguments[0]))
		lost(LOSS_FAULT);
	else
		add_handle(pending, value);
}

static __noinline __u64 ipc_digest(__u64 handle)
{
	__u64 words[IPC_WORDS] = {}, hash = 0;

	if (READ(words, handle))
		return 0;
	for (int i = 0; i < IPC_WORDS; i++)
		hash = mix(hash, words[i]);
	return hash;
}

static __noinline void exported(struct thread *thread, struct pending *pending)
{
	struct live_value *value;
	__u64 hash;

	if (!thread || !pending)
		return;
	pending->key.address = pending->arguments[1];
	pending->key.image = thread->image;
	pending->key.space = SPACE_DEVICE;
	hash = ipc_digest(pending->arguments[0]);
	value = bpf_map_lookup_elem(&live, &pending->key);
	if (hash && value)
		bpf_map_update_elem(&exports, &hash, &value->bytes, BPF_ANY);
}

#endif

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Accounts for GPU memory that processes ask of the CUDA driver.
 *
 * Probed, in every libcuda on the machine: the functions of GPUHEAP_CALLS (gpuheap.h), at entry and at return; in every
 * CPython: the start of its initialisation. Tracepoints: fork, exec and exit.
 *
 *   accounting.bpf.h   bytes and objects by site, address and pool
 *   handles.bpf.h      virtual memory management
 *   owners.bpf.h       contexts, graphs, and the device of a thread
 *   pools.bpf.h        stream-ordered pools
 *   python.bpf.h       the stack of a thread
 *   threads.bpf.h      the calls under way
 *   images.bpf.h       processes
 *   losses.bpf.h       what could not be kept
 *
 * One program sees all calls begin, another all return: which function it is, the probe's cookie says. Kernels before 5.15
 * have no cookies; there each function has an entry program of its own (enter_NAME), and a return belongs to the call
 * that began last.
 *
 * Kernel 5.10 or newer: the ring buffer is of 5.8.
 */
#include "handles.bpf.h"
#include "owners.bpf.h"
#include "pools.bpf.h"
#include "python.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define IPC_WORDS 8 /* CUipcMemHandle: 64 bytes */

/* By cookie: what the agent found in the file of an interpreter, for processes that start from now on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct interpreter);
} interpreter_files SEC(".maps");

/* What processes let others open, by digest of the handle that they hand out. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64); /* bytes */
} exports SEC(".maps");

/* Keep the types of events in the object's BTF, where the agent's mirrors are compared with them. */
struct code_event *code_event_type __attribute__((unused));
struct image_event *image_event_type __attribute__((unused));

struct memory_event *memory_event_type __attribute__((unused));
struct spill_event *spill_event_type __attribute__((unused));

static __always_inline void count_failure(__u64 image, __u32 code)
{
	struct failure_key key = { .image = image, .code = code };
	__u64 *calls = bpf_map_lookup_elem(&failures, &key);
	__u64 none = 0;

	if (!calls) {
		bpf_map_update_elem(&failures, &key, &none, BPF_NOEXIST);
		calls = bpf_map_lookup_elem(&failures, &key);
	}
	if (calls)
		ADD(*calls, 1);
	else
		lost(LOSS_FAILURES_FULL);
}

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

/* Where a CUmemLocation says that memory is. */
static __always_inline __s32 device_at(__u64 location)
{
	__u32 place[2] = {};

	if (bpf_probe_read_user(place, sizeof(place), (const void *)location))
		return DEVICE_UNKNOWN;
	return place[0] == 1 ? (__s32)place[1] : DEVICE_HOST;
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

/* Who: the same for every kind. */
static __always_inline void sign(struct site *site, struct thread *thread, __u32 call, __u64 id)
{
	site->image = thread->image;
	site->tid = id;
	site->call = call;
	site->stack = python_stack(id, thread->image);
}

static __noinline void out_of_memory(struct site *site, __u64 asked)
{
	struct memory_event *event;

	if (!site)
		return;
	ADD(moment, 1);
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		lost(LOSS_RING_FULL);
		return;
	}
	event->type = EVENT_OUT_OF_MEMORY;
	event->moment = moment;
	event->asked = asked;
	event->site = *site;
	bpf_ringbuf_submit(event, 0);
}

static __noinline void failed(struct thread *thread, struct pending *pending, struct site *site,
			      __u64 asked, int code)
{
	__u64 id = bpf_get_current_pid_tgid();

	if (!thread || !pending || !site)
		return;
	count_failure(thread->image, code);
	if (code != OUT_OF_MEMORY)
		return;
	sign(site, thread, pending->call, id);
	out_of_memory(site, asked);
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
static __noinline void handle_made(struct thread *thread, struct pending *pending, int code)
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

/* The address is not in `live`. */
static __noinline void free_of_other(struct pending *pending, __u32 space)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct image *image = bpf_map_lookup_elem(&images, &tgid);

	if (!pending)
		return;
	if (image && image->spilled) {
		pending->known = KNOWN_SPILLED;
		tell_spill(EVENT_SPILL_FREE, pending);
	} else if (space == SPACE_DEVICE) {
		pending->key.space = SPACE_GRAPH; /* which keeps it until it is destroyed */
		if (bpf_map_lookup_elem(&live, &pending->key))
			pending->known = KNOWN_NOTHING;
		pending->key.space = SPACE_DEVICE;
	}
}

static __noinline void free_begins(struct thread *thread, struct pending *pending, __u32 space)
{
	struct live_value *found;

	if (!thread || !pending)
		return;
	pending->key.address = pending->arguments[0];
	pending->key.image = thread->image;
	pending->key.space = space;
	pending->claims = claims_made;
	if (!pending->key.address) { /* allowed, and does nothing */
		pending->known = KNOWN_NOTHING;
		return;
	}
	found = bpf_map_lookup_elem(&live, &pending->key);
	if (!found) {
		free_of_other(pending, space);
		return;
	}
	if (found->reopened) {
		ADD(found->reopened, -1);
		pending->known = KNOWN_REOPENED;
		return;
	}
	pending->value = *found;
	if (found->returned) /* claims since it was first taken count */
		pending->claims = found->returned - 1;
	/* Of two threads that free the same address, one deletes it. */
	if (bpf_map_delete_elem(&live, &pending->key))
		return;
	pending->known = KNOWN_LIVE;
	credit(&pending->value, 1);
	count_live(thread, -1);
}

/* A free that the driver took, of what was not in `live`: another thread's free of the same may have it, and fail. */
static __noinline void claim(struct thread *thread, struct pending *pending)
{
	struct live_value *found;
	__u32 number;

	if (!thread || !pending)
		return;
	ADD(claims_made, 1);
	number = claims_made;
	bpf_map_update_elem(&claims, &pending->key, &number, BPF_ANY);
	found = bpf_map_lookup_elem(&live, &pending->key);
	if (found && found->returned) {
		pending->value = *found;
		if (!bpf_map_delete_elem(&live, &pending->key)) {
			credit(&pending->value, 1);
			count_live(thread, -1);
			return;
		}
	}
	lost(LOSS_UNKNOWN_FREE);
}

/* A free that failed: the memory is there, unless the same free of another thread was taken meanwhile. */
static __noinline void put_back(struct thread *thread, struct pending *pending)
{
	__u32 *claimed;

	if (!thread || !pending)
		return;
	pending->value.returned = pending->claims + 1;
	credit(&pending->value, -1);
	if (bpf_map_update_elem(&live, &pending->key, &pending->value, BPF_ANY)) {
		lost(LOSS_LIVE_FULL);
		return;
	}
	count_live(thread, 1);
	if (pending->claims == claims_made)
		return;
	claimed = bpf_map_lookup_elem(&claims, &pending->key);
	if (!claimed || (__s32)(*claimed - pending->claims) <= 0)
		return;
	if (!bpf_map_delete_elem(&live, &pending->key)) { /* else the other did it */
		credit(&pending->value, 1);
		count_live(thread, -1);
		count_loss(LOSS_UNKNOWN_FREE, -1);
	}
}

static __noinline void free_ends(struct thread *thread, struct pending *pending, int code)
{
	if (!thread || !pending)
		return;
	if (pending->known == KNOWN_NOT && !code)
		claim(thread, pending);
	if (!code)
		return;
	if (pending->known == KNOWN_SPILLED)
		tell_spill(EVENT_SPILL_KEEP, pending);
	if (pending->known == KNOWN_REOPENED)
		opened_again(pending);
	if (pending->known == KNOWN_LIVE)
		put_back(thread, pending);
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

/* A context that the call has written to where its first argument points. */
static __always_inline __u64 context_at(struct pending *pending)
{
	__u64 context = 0;

	if (READ(context, pending->arguments[0]))
		lost(LOSS_FAULT);
	return context;
}

/* Calls that have succeeded and say something about contexts. */
static __noinline void context_call(struct thread *thread, struct pending *pending)
{
	struct owner *green;
	__u64 *arguments;
	__u64 context;
	__s32 device;

	if (!thread || !pending)
		return;
	arguments = pending->arguments;
	switch (pending->call) {
	case CALL_cuCtxCreate_v2:
	case CALL_cuCtxCreate_v3:
	case CALL_cuCtxCreate_v4:
		device = pending->call == CALL_cuCtxCreate_v2	? arguments[2]
			 : pending->call == CALL_cuCtxCreate_v3 ? arguments[4]
								: arguments[3];
		context = context_at(pending);
		end_owner(thread->image, OWNER_CONTEXT,
			  context); /* of one whose end was not seen */
		learn_owner(thread->image, OWNER_CONTEXT, context, device);
		push_context(thread, context);
		break;
	case CALL_cuCtxDestroy_v2:
		end_owner(thread->image, OWNER_CONTEXT, arguments[0]);
		if (current_context(thread) == arguments[0])
			pop_context(thread);
		break;
	case CALL_cuDevicePrimaryCtxRetain:
		retain_primary(thread->image, arguments[1]);
		learn_primary(thread->image, context_at(pending), arguments[1]);
		break;
	case CALL_cuDevicePrimaryCtxRelease_v2:
		release_primary(thread->image, arguments[0]);
		break;
	case CALL_cuDevicePrimaryCtxReset_v2:
		end_primary(thread->image, arguments[0]);
		break;
	case CALL_cuCtxSetCurrent:
		set_context(thread, arguments[0]);
		break;
	case CALL_cuCtxPushCurrent_v2:
		push_context(thread, arguments[0]);
		break;
	case CALL_cuCtxPopCurrent_v2:
		pop_context(thread);
		break;
	case CALL_cuCtxGetCurrent:
		context = context_at(pending);
		if (context != current_context(thread))
			set_context(thread, context);
		break;
	case CALL_cuCtxGetDevice:
		device = DEVICE_UNKNOWN;
		if (!READ(device, arguments[0]))
			learn_device(thread, device);
		break;
	case CALL_cuGreenCtxCreate:
		/* It retains the primary context for as long as it exists. */
		retain_primary(thread->image, arguments[2]);
		learn_owner(thread->image, OWNER_GREEN, context_at(pending), arguments[2]);
		break;
	case CALL_cuGreenCtxDestroy:
		green = owner_of(thread->image, OWNER_GREEN, arguments[0]);
		if (!green)
			break;
		device = green->device;
		end_owner(thread->image, OWNER_GREEN, arguments[0]);
		release_primary(thread->image, device);
		break;
	case CALL_cuCtxFromGreenCtx:
		green = owner_of(thread->image, OWNER_GREEN, arguments[1]);
		if (green)
			learn_primary(thread->image, context_at(pending), green->device);
		break;
	case CALL_cuGraphDestroy:
		end_owner(thread->image, OWNER_GRAPH, arguments[0]);
		break;
	}
}

/* Calls that have succeeded and say something about pools. */
static __noinline void pool_call(struct thread *thread, struct pending *pending)
{
	__u64 *arguments;
	__u64 handle = 0;

	if (!thread || !pending)
		return;
	arguments = pending->arguments;
	switch (pending->call) {
	case CALL_cuMemPoolCreate:
		if (READ(handle, arguments[0]))
			break;
		end_pool(thread->image, handle); /* of one whose end was not seen */
		learn_pool(thread->image, handle,
			   device_at(arguments[1] + 8)); /* CUmemPoolProps.location */
		break;
	case CALL_cuMemPoolDestroy:
		end_pool(thread->image, arguments[0]);
		break;
	case CALL_cuMemPoolTrimTo:
		trim_pool(thread->image, arguments[0], arguments[1]);
		break;
	case CALL_cuMemPoolSetAttribute:
	case CALL_cuMemPoolGetAttribute:
		pool_attribute(thread->image, arguments[0], arguments[1], arguments[2]);
		break;
	case CALL_cuDeviceGetDefaultMemPool:
		if (!READ(handle, arguments[0]))
			set_default_pool(thread->image, arguments[1], handle);
		break;
	case CALL_cuDeviceGetMemPool:
		if (!READ(handle, arguments[0]))
			learn_current_pool(thread->image, arguments[1], handle);
		break;
	case CALL_cuDeviceSetMemPool:
		set_current_pool(thread->image, arguments[0], arguments[1]);
		break;
	}
}

static __always_inline int call_begins(struct pt_regs *ctx, __u32 call)
{
	__u64 id = bpf_get_current_pid_tgid(), hash;
	struct thread *thread = thread_of(id);
	struct pending *pending;
	__u64 *bytes;

	if (!thread || call == CALL_cuInit)
		return 0;
	pending = push_call(thread, call, PT_REGS_SP(ctx));
	if (pending->known == KNOWN_FORWARDED)
		return 0;
	pending->arguments[0] = PT_REGS_PARM1(ctx);
	pending->arguments[1] = PT_REGS_PARM2(ctx);
	pending->arguments[2] = PT_REGS_PARM3(ctx);
	pending->arguments[3] = PT_REGS_PARM4(ctx);
	pending->arguments[4] = PT_REGS_PARM5(ctx);
	switch (call) {
	case CALL_cuMemFree:
		pending->arguments[0] = (__u32)pending->arguments[0];
		free_begins(thread, pending, SPACE_DEVICE);
		break;
	case CALL_cuMemFree_v2:
	case CALL_cuMemFreeAsync:
	case CALL_cuMemFreeAsync_ptsz:
		free_begins(thread, pending, SPACE_DEVICE);
		break;
	case CALL_cuMemFreeHost:
		free_begins(thread, pending, SPACE_HOST);
		break;
	case CALL_cuMemHostUnregister:
		free_begins(thread, pending, SPACE_REGISTERED);
		break;
	case CALL_cuArrayDestroy:
	case CALL_cuMipmappedArrayDestroy:
		free_begins(thread, pending, SPACE_ARRAY);
		break;
	case CALL_cuIpcCloseMemHandle:
		free_begins(thread, pending, SPACE_IPC);
		break;
	case CALL_cuDestroyExternalMemory:
		free_begins(thread, pending, SPACE_EXTERNAL);
		break;
	case CALL_cuMemRelease:
		handle_release_begins(pending, thread->image);
		break;
	case CALL_cuIpcOpenMemHandle_v2:
		/* The handle is passed by value: on the stack, above the return address. */
		hash = ipc_digest(PT_REGS_SP(ctx) + 8);
		bytes = bpf_map_lookup_elem(&exports, &hash);
		pending->arguments[4] = bytes ? *bytes : 0;
		break;
	}
	return 0;
}

static __always_inline int call_returns(int code, __u32 call)
{
	__u64 id = bpf_get_current_pid_tgid(), handle = 0;
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	struct pending *pending;
	int result;

	if (!thread) {
		lost(LOSS_UNMATCHED_RETURN);
		return 0;
	}
	pending = pop_call(thread, call);
	if (!pending || pending->known == KNOWN_FORWARDED)
		return 0;
	switch (pending->call) {
	case CALL_cuMemFree:
	case CALL_cuMemFree_v2:
	case CALL_cuMemFreeAsync:
	case CALL_cuMemFreeAsync_ptsz:
	case CALL_cuMemFreeHost:
	case CALL_cuMemHostUnregister:
	case CALL_cuArrayDestroy:
	case CALL_cuMipmappedArrayDestroy:
	case CALL_cuIpcCloseMemHandle:
	case CALL_cuDestroyExternalMemory:
		free_ends(thread, pending, code);
		return 0;
	case CALL_cuMemRelease:
		handle_release_ends(pending, thread->image, code);
		return 0;
	case CALL_cuMemCreate:
	case CALL_cuMemImportFromShareableHandle:
	case CALL_cuMulticastCreate:
		handle_made(thread, pending, code);
		return 0;
	}
	result = allocation(thread, pending);
	if (result) {
		if (code)
			failed(thread, pending, &pending->value.site, pending->value.bytes, code);
		else
			allocated(thread, pending, result);
		return 0;
	}
	if (code)
		return 0;
	switch (pending->call) {
	case CALL_cuMemMap:
		add_mapping(pending, thread->image);
		break;
	case CALL_cuMemUnmap:
		remove_mappings();
		break;
	case CALL_cuMemRetainAllocationHandle:
		if (!READ(handle, pending->arguments[0]))
			handle_retained(thread->image, handle);
		break;
	case CALL_cuIpcGetMemHandle:
		exported(thread, pending);
		break;
	default:
		context_call(thread, pending);
		pool_call(thread, pending);
	}
	return 0;
}

SEC("uprobe")
int enter(struct pt_regs *ctx)
{
	return call_begins(ctx, bpf_get_attach_cookie(ctx));
}

SEC("uretprobe")
int leave(struct pt_regs *ctx)
{
	return call_returns(PT_REGS_RC(ctx), bpf_get_attach_cookie(ctx));
}

/* For kernels without cookies. */
#define ENTER(number, name)                      \
	SEC("uprobe")                            \
	int enter_##name(struct pt_regs *ctx)    \
	{                                        \
		return call_begins(ctx, number); \
	}
GPUHEAP_CALLS(ENTER)

SEC("uretprobe")
int leave_last(struct pt_regs *ctx)
{
	return call_returns(PT_REGS_RC(ctx), 0);
}

/* An interpreter starts: its place in memory follows from where the probe is, before it can have allocated anything. */
SEC("uprobe")
int interpreter_starts(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	struct interpreter *file = bpf_map_lookup_elem(&interpreter_files, &cookie);
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct interpreter interpreter;

	if (!file)
		return 0;
	interpreter = *file;
	interpreter.runtime += PT_REGS_IP(ctx);
	if (bpf_map_update_elem(&interpreters, &tgid, &interpreter, BPF_ANY))
		lost(LOSS_IMAGES_FULL);
	return 0;
}

/* A forked child runs the same interpreter at the same place. */
SEC("raw_tracepoint/sched_process_fork")
int process_forks(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent_task = (void *)ctx->args[0];
	struct task_struct *child_task = (void *)ctx->args[1];
	__u32 parent = BPF_CORE_READ(parent_task, tgid);
	__u32 child = BPF_CORE_READ(child_task, tgid);
	struct interpreter *interpreter;

	if (parent == child) /* a thread */
		return 0;
	interpreter = bpf_map_lookup_elem(&interpreters, &parent);
	if (interpreter && bpf_map_update_elem(&interpreters, &child, interpreter, BPF_ANY))
		lost(LOSS_IMAGES_FULL);
	return 0;
}

static __always_inline void forget_thread(__u64 id)
{
	bpf_map_delete_elem(&threads, &id);
	bpf_map_delete_elem(&walks, &id);
}

/* The thread that execs goes on with the id of the process; the others have exited. */
SEC("raw_tracepoint/sched_process_exec")
int process_execs(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = ctx->args[1];

	forget_thread(id);
	forget_thread((id & ~0xffffffffULL) | tid);
	renew_image(id >> 32);
	return 0;
}

SEC("raw_tracepoint/sched_process_exit")
int thread_exits(void *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);

	if (thread && thread->live)
		settle_live(thread, id >> 32);
	forget_thread(id);
	if (!BPF_CORE_READ(task, signal, live.counter)) /* the last thread */
		end_image(id >> 32);
	return 0;
}

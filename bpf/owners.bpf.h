/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What memory goes with: contexts and graphs; and the context, hence the device, of each thread.
 *
 *   map     key                     value                       removed by
 *   owners  image, type, object     id, device, references      its end; the agent, after the image's
 *
 * When an owner ends, its id, which is in each entry of `live` that goes with it and is never given again, is told to the
 * agent (`ended_owners`).
 * Contexts from before tracing are learnt when a call names them.
 */
#ifndef GPUHEAP_OWNERS_BPF_H
#define GPUHEAP_OWNERS_BPF_H

#include "accounting.bpf.h"

enum owner_type {
	OWNER_CONTEXT,
	OWNER_PRIMARY, /* by device: how often it is retained */
	OWNER_GREEN, /* by green context: its device */
	OWNER_GRAPH,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct owner_key);
	__type(value, struct owner);
} owners SEC(".maps");

/* Raised when an owner ends: what threads know of their contexts is then looked up anew. */
__u32 owners_epoch = 0;

static __noinline struct owner *owner_of(__u64 image, __u32 type, __u64 object)
{
	struct owner_key key = { .object = object, .image = image, .type = type };

	return bpf_map_lookup_elem(&owners, &key);
}

/* The owner, made if it is new. `device` DEVICE_UNKNOWN: what is known of it stays. NULL without room. */
static __noinline struct owner *learn_owner(__u64 image, __u32 type, __u64 object, __s32 device)
{
	struct owner_key key = { .object = object, .image = image, .type = type };
	struct owner made = { .device = device };
	struct owner *owner = bpf_map_lookup_elem(&owners, &key);

	if (!owner) {
		made.id = unique();
		bpf_map_update_elem(&owners, &key, &made, BPF_NOEXIST);
		owner = bpf_map_lookup_elem(&owners, &key);
		if (!owner)
			lost(LOSS_CONTEXTS_FULL);
	} else if (device != DEVICE_UNKNOWN && owner->device != device) {
		owner->device = device;
		ADD(owners_epoch, 1);
	}
	return owner;
}

static __noinline void tell_owner_end(__u64 owner)
{
	__u32 when = moment;

	if (bpf_map_update_elem(&ended_owners, &owner, &when, BPF_ANY))
		lost(LOSS_CONTEXTS_FULL);
}

static __noinline void end_owner(__u64 image, __u32 type, __u64 object)
{
	struct owner_key key = { .object = object, .image = image, .type = type };
	struct owner *owner = bpf_map_lookup_elem(&owners, &key);
	__u64 id;

	if (!owner)
		return;
	id = owner->id;
	if (bpf_map_delete_elem(&owners, &key)) /* another thread was first */
		return;
	ADD(owners_epoch, 1);
	tell_owner_end(id);
}
/* The thread's current context; 0 when it is not known. */
static __always_inline __u64 current_context(const struct thread *thread)
{
	if (thread->contexts <= thread->forgotten)
		return 0;
	return thread->stack[(thread->contexts - 1) & (CONTEXT_DEPTH - 1)];
}

static __always_inline void push_context(struct thread *thread, __u64 context)
{
	thread->stack[thread->contexts & (CONTEXT_DEPTH - 1)] = context;
	if (thread->forgotten > thread->contexts)
		thread->forgotten = thread->contexts;
	thread->contexts++;
	if (thread->contexts - thread->forgotten > CONTEXT_DEPTH)
		thread->forgotten = thread->contexts - CONTEXT_DEPTH;
}

static __always_inline void pop_context(struct thread *thread)
{
	if (thread->contexts)
		thread->contexts--;
}

static __always_inline void set_context(struct thread *thread, __u64 context)
{
	pop_context(thread);
	if (context)
		push_context(thread, context);
}

/* Set `owner` and `device` of the thread to those of its current context. */
static __noinline void locate(struct thread *thread)
{
	__u32 epoch = owners_epoch;
	struct owner *owner;
	__u64 context;

	if (!thread)
		return;
	context = current_context(thread);
	if (context == thread->located && epoch == thread->epoch && thread->owner)
		return;
	thread->located = context;
	thread->epoch = epoch;
	thread->owner = 0;
	thread->device = DEVICE_UNKNOWN;
	owner = context ? learn_owner(thread->image, OWNER_CONTEXT, context, DEVICE_UNKNOWN) : NULL;
	if (!owner)
		return;
	thread->device = owner->device;
	if (owner->primary)
		owner = learn_owner(thread->image, OWNER_PRIMARY, owner->device, owner->device);
	if (owner)
		thread->owner = owner->id;
}

/* The thread's current context is on this device: the driver has said so. */
static __always_inline void learn_device(struct thread *thread, __s32 device)
{
	__u64 context = current_context(thread);

	if (context)
		learn_owner(thread->image, OWNER_CONTEXT, context, device);
	thread->located = context;
	thread->epoch = owners_epoch;
	if (!context) {
		/* Enough for the device, until the thread changes its context. */
		thread->owner = ~0ULL;
		thread->device = device;
	} else {
		thread->owner = 0;
	}
}

/* What a primary context owned is gone; it may go on, with what comes. */
static __noinline void end_primary(__u64 image, __s32 device)
{
	struct owner *primary = owner_of(image, OWNER_PRIMARY, device);
	__u64 id;

	if (!primary)
		return;
	id = primary->id;
	primary->id = unique();
	ADD(owners_epoch, 1);
	tell_owner_end(id);
}

static __noinline void retain_primary(__u64 image, __s32 device)
{
	struct owner *primary = learn_owner(image, OWNER_PRIMARY, device, device);

	if (primary)
		ADD(primary->references, 1);
}

/* In a process that is older than the tracing, some references may never have been seen. */
static __noinline void release_primary(__u64 image, __s32 device)
{
	struct owner *primary = owner_of(image, OWNER_PRIMARY, device);
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct image *process = bpf_map_lookup_elem(&images, &tgid);

	if (!primary || !process || primary->references <= 0)
		return;
	ADD(primary->references, -1);
	if (primary->references <= 0 && !process->late)
		end_primary(image, device);
}

/* This context is the primary one of its device, or a green one's: what it owns is the primary one's. */
static __noinline void learn_primary(__u64 image, __u64 context, __s32 device)
{
	struct owner *owner = owner_of(image, OWNER_CONTEXT, context);

	if (owner && !owner->primary) /* of a context whose end was not seen */
		end_owner(image, OWNER_CONTEXT, context);
	owner = learn_owner(image, OWNER_CONTEXT, context, device);
	if (owner)
		owner->primary = 1;
}

/* Where a CUmemLocation says that memory is. */
static __always_inline __s32 device_at(__u64 location)
{
	__u32 place[2] = {};

	if (bpf_probe_read_user(place, sizeof(place), (const void *)location))
		return DEVICE_UNKNOWN;
	return place[0] == 1 ? (__s32)place[1] : DEVICE_HOST;
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

#endif

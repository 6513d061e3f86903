/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is kept for each thread that calls the driver: the calls under way and its contexts.
 *
 * Programs of uprobe_multi can be preempted, and another thread's program run on the same CPU meanwhile. So everything
 * that outlives a helper call is the thread's own, nothing is the CPU's.
 */
#ifndef GPUHEAP_THREADS_BPF_H
#define GPUHEAP_THREADS_BPF_H

#include "images.bpf.h"

#define CALL_DEPTH 4 /* probed calls of one thread that are inside one another */
#define CONTEXT_DEPTH 8
#define ARGUMENTS 5
#define LIVE_STEP 16

/* What is known of the memory that a call frees. */
enum known {
	KNOWN_NOT,
	KNOWN_LIVE, /* its entry was taken out; `value` has it */
	KNOWN_SPILLED, /* perhaps to the agent */
	KNOWN_NOTHING, /* there is nothing to free */
	KNOWN_REOPENED, /* it was opened more often than closed */
	KNOWN_FORWARDED, /* a library in front of the driver has passed on the same call */
	KNOWN_REFERENCE, /* one reference less to a handle */
	KNOWN_HANDLE, /* ... which was the last */
};

/* A call under way. Of an allocation, `key` and `value` are filled at its return, of a free at its entry. */
struct pending {
	__u32 call;
	__u32 known;
	__u64 stack; /* the thread's stack pointer */
	__u32 claims; /* `claims_made` when a free began */
	__u32 pad;
	__u64 arguments[ARGUMENTS];
	struct live_key key;
	struct live_value value;
	struct handle handle;
};

struct thread {
	__u64 image;
	__s32 live; /* entries of map `live` that the image is not charged with yet */
	__u32 full; /* 1: the image has its share of them */
	__u32 depth; /* of `pending` */
	__u32 contexts; /* how many are on the stack, as far as that was seen; the top is current */
	__u32 forgotten; /* how many at the bottom had to make room */
	__u32 pad;
	__u64 stack[CONTEXT_DEPTH];
	/* What is known of `located`, when `epoch` is that of owners. */
	__u64 located;
	__u64 owner;
	__s32 device;
	__u32 epoch;
	struct registers registers; /* when the call that allocates has returned */
	struct pending pending[CALL_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* tgid and tid */
	__type(value, struct thread);
} threads SEC(".maps");

/* All zero: what a new thread begins with. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread);
} new_thread SEC(".maps");

/* Hand on what the image is not charged with yet. */
static __always_inline void settle_live(struct thread *thread, __u32 tgid)
{
	struct image *image = bpf_map_lookup_elem(&images, &tgid);
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);

	if (image && set) {
		ADD(image->live, thread->live);
		thread->full = image->live >= set->live_share;
	}
	thread->live = 0;
}

/* So many more entries of map `live`, or fewer. By the dozen: looking up the image costs as much as all the rest. */
static __always_inline void count_live(struct thread *thread, __s32 more)
{
	thread->live += more;
	if (thread->live >= LIVE_STEP || thread->live <= -LIVE_STEP)
		settle_live(thread, bpf_get_current_pid_tgid() >> 32);
}

/* The calling thread; NULL when there is no room for it. */
static __always_inline struct thread *thread_of(__u64 id)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	struct thread *made;
	struct image *image;
	__u32 zero = 0;

	if (thread)
		return thread;
	image = image_of(id >> 32);
	made = bpf_map_lookup_elem(&new_thread, &zero);
	if (!image || !made)
		return NULL;
	bpf_map_update_elem(&threads, &id, made, BPF_NOEXIST);
	thread = bpf_map_lookup_elem(&threads, &id);
	if (thread)
		thread->image = image->id;
	else
		lost(LOSS_THREADS_FULL);
	return thread;
}

static __always_inline struct pending *last_call(struct thread *thread)
{
	return &thread->pending[(thread->depth - 1) & (CALL_DEPTH - 1)];
}

/*
 * Whether a call that begins will return to the kernel's trampoline: then one that began at the same place of the stack is
 * under way, and has jumped here. One that was left by longjmp has no trampoline.
 */
static __noinline int returns_to_probe(__u64 stack)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 area = BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr), address = 0;

	return !READ(address, stack) && area && (address & ~4095ULL) == area;
}

/*
 * Room for a call that begins. Those that began further down the stack were left by longjmp. The same call inside itself
 * is one, passed on by a library that stands before the driver; the outer one counts, as the program sees its result.
 */
static __always_inline struct pending *push_call(struct thread *thread, __u32 call, __u64 stack)
{
	struct pending *pending;
	__u32 known = KNOWN_NOT;

	for (int i = 0; i < CALL_DEPTH && thread->depth && last_call(thread)->stack <= stack; i++) {
		if (last_call(thread)->stack == stack && last_call(thread)->call == call &&
		    returns_to_probe(stack))
			break;
		thread->depth--;
	}
	if (thread->depth >= CALL_DEPTH) {
		lost(LOSS_PENDING_FULL);
		thread->depth = 0;
	}
	if (thread->depth && last_call(thread)->call == call)
		known = KNOWN_FORWARDED;
	pending = &thread->pending[thread->depth & (CALL_DEPTH - 1)];
	thread->depth++;
	pending->call = call;
	pending->known = known;
	pending->stack = stack;
	return pending;
}

/* The call that returns: the last one, but for those that were left by longjmp. `call` 0: it is not known which. */
static __always_inline struct pending *pop_call(struct thread *thread, __u32 call)
{
	struct pending *pending;

	for (int i = 0; i < CALL_DEPTH && thread->depth; i++) {
		thread->depth--;
		pending = &thread->pending[thread->depth & (CALL_DEPTH - 1)];
		if (!call || pending->call == call)
			return pending;
	}
	lost(LOSS_UNMATCHED_RETURN);
	return NULL;
}

/* The one that pop_call() has just given. */
static __always_inline struct pending *popped_call(struct thread *thread)
{
	return &thread->pending[thread->depth & (CALL_DEPTH - 1)];
}

#endif

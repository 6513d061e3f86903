/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which PyThreadState is the calling thread's.
 *
 * It is the one whose thread_id is the thread's pthread_self(), which glibc and musl keep in the FS base: that holds inside
 * pid namespaces, and whether or not the thread has the GIL (callers release it before they allocate).
 *
 * A thread that runs code of another interpreter has one in each. Then the innermost counts: of those that run something,
 * the one that entered the evaluation function last, that is, furthest down the C stack. 3.8 and 3.9 keep nothing that
 * lies there; of them the newest interpreter is taken.
 */
#ifndef GPUHEAP_STATES_BPF_H
#define GPUHEAP_STATES_BPF_H

#include "codes.bpf.h"

#define OWNED_BY_C 3 /* entry frames of the interpreter; not a Python function */
#define SEARCH_STEP 64
#define SEARCH_STEPS 128 /* 8192 thread states, and frames below which one may be the innermost */
#define NOWHERE (~0ULL)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* tgid and tid */
	__type(value, struct walk);
} walks SEC(".maps");

/* All zero: what a new walk begins with. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} new_walk SEC(".maps");

static __always_inline struct walk *walk_of(__u64 id)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	__u32 zero = 0, tgid = id >> 32;
	struct interpreter *interpreter;
	struct thread *thread;
	struct walk *made;

	if (walk)
		return walk;
	thread = bpf_map_lookup_elem(&threads, &id);
	interpreter = bpf_map_lookup_elem(&interpreters, &tgid);
	made = bpf_map_lookup_elem(&new_walk, &zero);
	if (!thread || !interpreter || !made)
		return NULL;
	bpf_map_update_elem(&walks, &id, made, BPF_NOEXIST);
	walk = bpf_map_lookup_elem(&walks, &id);
	if (!walk) {
		lost(LOSS_THREADS_FULL);
		return NULL;
	}
	walk->interpreter = *interpreter;
	walk->self = BPF_CORE_READ(task, thread.fsbase);
	walk->image = thread->image;
	walk->tgid = tgid;
	return walk;
}

/* A state that is this thread's, where it entered the evaluation function. */
static __always_inline void consider(struct search *search, __u64 place)
{
	if (place >= search->place && search->found)
		return;
	search->place = place;
	search->found = search->state;
	search->found_in = search->interpreter;
}

/* One of this thread's states, while there are several interpreters: 1 if the next step is to look at its frames. */
static __always_inline int look_at_state(struct walk *walk)
{
	struct interpreter *at = &walk->interpreter;
	struct search *search = &walk->search;
	__u64 frame = 0, current = 0, place = 0;

	if (READ(frame, search->state + at->thread_frame))
		return 0;
	current = frame;
	if (at->cframe_frame >= 0 && READ(current, frame + at->cframe_frame))
		return 0;
	if (!current) {
		consider(search, NOWHERE);
		return 0;
	}
	if (at->cframe_frame >= 0) {
		consider(search, frame);
	} else if (at->thread_cframe) {
		READ(place, search->state + at->thread_cframe);
		consider(search, place);
	} else if (at->frame_owner < 0) {
		consider(search, 1);
	} else {
		search->frame = frame;
		return 1;
	}
	return 0;
}

/* A frame further out, until one is on the C stack. */
static __always_inline void look_at_frame(struct walk *walk)
{
	struct interpreter *at = &walk->interpreter;
	struct search *search = &walk->search;
	__u8 owner = 0;

	if (READ(owner, search->frame + (__u32)at->frame_owner)) {
		search->frame = 0;
	} else if (owner >= OWNED_BY_C) {
		consider(search, search->frame);
		search->frame = 0;
	} else if (READ(search->frame, search->frame + at->frame_previous) || !search->frame) {
		consider(search, NOWHERE - 1);
		search->frame = 0;
	}
}

/* Some steps of the search; 1 ends it. A global function: verified once. */
__noinline int search_states(void)
{
	__u64 id = bpf_get_current_pid_tgid(), owner;
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	struct interpreter *at;
	struct search *search;

	if (!walk)
		return 1;
	at = &walk->interpreter;
	search = &walk->search;
	for (int i = 0; i < SEARCH_STEP; i++) {
		if (search->frame) {
			look_at_frame(walk);
			if (search->frame)
				continue;
		} else if (search->state) {
			if (READ(owner, search->state + at->thread_id)) {
				search->fault = 1;
				return 1;
			}
			if (owner == walk->self && search->alone) {
				consider(search, 0);
				return 1;
			}
			if (owner == walk->self && look_at_state(walk))
				continue;
		} else {
			if (READ(search->interpreter, search->interpreter + at->interpreter_next) ||
			    !search->interpreter)
				return 1;
			READ(search->state, search->interpreter + at->threads_head);
			continue;
		}
		if (READ(search->state, search->state + at->thread_next))
			search->state = 0;
	}
	return 0;
}

/* Whether the thread state that was found before is still this thread's, and its only one; then walk->frame is its frame. */
static __always_inline int state_is_known(struct walk *walk)
{
	struct interpreter *at = &walk->interpreter;
	__u32 begin = at->thread_id < at->thread_frame ? at->thread_id : at->thread_frame;
	__u64 newest = 0,
	      bytes = (at->thread_id < at->thread_frame ? at->thread_frame : at->thread_id) + 8 -
		      begin;

	asm volatile("%0 &= 255" : "+r"(bytes)); /* for the verifier; the layout was checked */
	if (!walk->thread_state ||
	    bpf_probe_read_user(walk->code, bytes, (const void *)(walk->thread_state + begin)))
		return 0;
	walk->frame = CODE_U64(walk, at->thread_frame - begin);
	if (CODE_U64(walk, at->thread_id - begin) != walk->self)
		return 0;
	/* New interpreters come first in the list: while the first is the one that was alone, it is. */
	return !READ(newest, at->runtime + at->interpreters_head) &&
	       newest == walk->only_interpreter;
}

/* Leaves the state in walk->thread_state. Returns 0 or an enum stack_reason. */
static __always_inline __u64 find_state(struct walk *walk)
{
	struct interpreter *at = &walk->interpreter;
	struct search *search = &walk->search;
	__u64 next = 0;
	__u32 turn;

	__builtin_memset(search, 0, sizeof(*search));
	walk->thread_state = walk->only_interpreter = 0;
	if (READ(search->interpreter, at->runtime + at->interpreters_head) || !search->interpreter)
		goto none;
	if (READ(next, search->interpreter + at->interpreter_next) ||
	    READ(search->state, search->interpreter + at->threads_head))
		goto none;
	search->alone = !next;
	for (turn = 0; turn < SEARCH_STEPS; turn++)
		if (search_states())
			break;
	if (turn == SEARCH_STEPS) {
		lost(LOSS_THREAD_UNSEARCHED);
		return STACK_UNSEARCHED;
	}
	walk->thread_state = search->found;
	walk->interpreter_state = search->found_in;
	if (search->alone)
		walk->only_interpreter = search->found_in;
	if (walk->thread_state)
		return 0;
none:
	lost(search->fault ? LOSS_FAULT : LOSS_NO_THREAD_STATE);
	return search->fault ? STACK_FAULT : STACK_NO_THREAD_STATE;
}

#endif

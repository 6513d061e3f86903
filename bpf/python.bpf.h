/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of the calling thread, read from the process's memory (CPython 3.11 and newer).
 *
 * The thread state is the one whose thread_id is the thread's pthread_self(), which glibc and musl keep in the FS base: that
 * holds inside pid namespaces, and whether or not the thread has the GIL (callers release it before they allocate).
 *
 * A frame is named by a digest of its code object (codes.bpf.h). Making them for all frames is dear, so a stack that was
 * seen before is recognised without:
 *
 *   known_stacks   addresses and versions of the frames -> key of `stacks`
 *   stacks         digests of the frames                -> the frames
 *
 * An address alone tells nothing: memory of freed code objects is used again, often with the same strings at the same
 * addresses. What is added to it is one number for the whole stack: how many code objects the interpreter has made (3.12,
 * 3.13) or freed (3.14) so far. While that stands still, an address is the same code. Where there is no such number, or it
 * has moved, each frame has one that is never given again: of its function (3.11) or its code object (3.12, 3.13). And
 * where that is missing, the digest itself.
 */
#ifndef GPUHEAP_PYTHON_BPF_H
#define GPUHEAP_PYTHON_BPF_H

#include "codes.bpf.h"

#define MAX_THREADS 512
#define FRAME_BYTES 80 /* covers the fields of _PyInterpreterFrame that are read */
#define OWNED_BY_C 3 /* entry frames of the interpreter; not a Python function */
#define WALK_STEP 32
#define RUNTIME_BYTES (4 << 20) /* more than a _PyRuntime has */
#define NAME_STEP 4
#define FRAME_FACTOR 0xff51afd7ed558ccdULL /* any odd number with many bits */

/* A field of the frame that begins at `at` in the window. */
#define FRAME_U64(walk, at, offset) \
	(*(__u64 *)((walk)->window + (((at) + (offset)) & (WINDOW - 8))))
#define FRAME_U8(walk, at, offset) (*(__u8 *)((walk)->window + (((at) + (offset)) & (WINDOW - 1))))

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* hash of image and frames */
	__type(value, struct stack);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64); /* hash of image, addresses and versions */
	__type(value, __u64); /* key of `stacks` */
} known_stacks SEC(".maps");

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

/* Have the frame in the window. Frames are in pages that are theirs from the beginning; before that may be nothing. */
static __always_inline int read_frame(struct walk *walk)
{
	__u64 begin = walk->frame & ~4095ULL, end = walk->frame + FRAME_BYTES, bytes;

	if (walk->frame >= walk->window_begin && end <= walk->window_end)
		return 0;
	if (end - begin > WINDOW)
		begin = end - WINDOW;
	bytes = end - begin;
	asm volatile("%0 &= 8191"
		     : "+r"(bytes)); /* for the verifier: clang 14 loses the bound above */
	if (bytes > WINDOW)
		return -1;
	walk->window_begin = begin;
	walk->window_end = end;
	return bpf_probe_read_user(walk->window, bytes, (const void *)begin);
}

/* The number of this frame's function or code object; without one, the digest goes into the hash. */
static __always_inline __u32 version_of(struct walk *walk, __u64 code, __u64 at)
{
	struct interpreter *layout;
	__u32 version = 0;
	__u64 object = code;

	if (!walk)
		return 0;
	layout = &walk->interpreter;
	if (layout->frame_versioned != layout->frame_code)
		object = FRAME_U64(walk, at, layout->frame_versioned);
	if (layout->version)
		READ(version, object + layout->version);
	if (!version)
		walk->hash = mix(walk->hash, digest_of(walk, code));
	return version;
}

/* The last frame that was added is the outermost of its run of the evaluation function. */
static __always_inline void ends_run(struct walk *walk)
{
	if (!walk->stack.depth)
		return;
	walk->stack.frames[(walk->stack.depth - 1) & (GPUHEAP_MAX_FRAMES - 1)].flags =
		FRAME_OUTERMOST;
	walk->hash = mix(walk->hash, FRAME_OUTERMOST);
}

/*
 * A few frames; 1 ends the walk. A global function: the verifier looks at it once, not once for each turn of the loop; it
 * has no pointers for arguments, as kernels before 5.12 do not take them.
 */
__noinline int walk_frames(void)
{
	__u64 id = bpf_get_current_pid_tgid(), code, at;
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	struct interpreter *layout;
	struct frame *frame;
	__u32 version;

	if (!walk)
		return 1;
	layout = &walk->interpreter;
	for (int i = 0; i < WALK_STEP; i++) {
		if (!walk->frame || walk->stack.depth >= GPUHEAP_MAX_FRAMES)
			return 1;
		if (read_frame(walk)) {
			lost(LOSS_FAULT);
			return 1;
		}
		at = walk->frame - walk->window_begin;
		code = FRAME_U64(walk, at, layout->frame_code) & ~(__u64)layout->code_tag;
		walk->frame = FRAME_U64(walk, at, layout->frame_previous);
		if (!code || FRAME_U8(walk, at, layout->frame_owner) >= OWNED_BY_C) {
			if (layout->frame_entry < 0)
				ends_run(walk);
			continue;
		}
		frame = &walk->stack.frames[walk->stack.depth & (GPUHEAP_MAX_FRAMES - 1)];
		frame->code = code;
		frame->flags = 0;
		frame->instruction = FRAME_U64(walk, at, layout->frame_instruction) -
				     (code + layout->code_instructions);
		version = walk->counted ? 0 : version_of(walk, code, at);
		walk->hash = mix(walk->hash, code * FRAME_FACTOR +
						     (((__u64)version << 32) | frame->instruction));
		walk->stack.depth++;
		if (layout->frame_entry >= 0 && FRAME_U8(walk, at, layout->frame_entry))
			ends_run(walk);
	}
	return 0;
}

/* Digests for a few frames; 1 when all have theirs. */
__noinline int name_frames(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	struct frame *frame;

	if (!walk)
		return 1;
	for (int i = 0; i < NAME_STEP; i++) {
		if (walk->named >= walk->stack.depth)
			return 1;
		frame = &walk->stack.frames[walk->named & (GPUHEAP_MAX_FRAMES - 1)];
		frame->code = name_of(walk, frame->code);
		walk->unnamed += !frame->code;
		walk->hash = mix(mix(walk->hash, frame->code),
				 ((__u64)frame->flags << 32) | frame->instruction);
		walk->named++;
	}
	return 0;
}

/* Whether the thread state that was found before is still this thread's; then walk->frame is its frame. */
static __always_inline int state_is_known(struct walk *walk)
{
	struct interpreter *at = &walk->interpreter;
	__u32 begin = at->thread_id < at->thread_frame ? at->thread_id : at->thread_frame;
	__u64 bytes =
		(at->thread_id < at->thread_frame ? at->thread_frame : at->thread_id) + 8 - begin;

	asm volatile("%0 &= 255" : "+r"(bytes)); /* for the verifier; the layout was checked */
	if (!walk->thread_state ||
	    bpf_probe_read_user(walk->code, bytes, (const void *)(walk->thread_state + begin)))
		return 0;
	walk->frame = CODE_U64(walk, at->thread_frame - begin);
	return CODE_U64(walk, at->thread_id - begin) == walk->self;
}

static __noinline __u64 find_state(struct walk *walk)
{
	__u64 state = 0, owner = 0;
	struct interpreter *at;

	if (!walk)
		return 0;
	at = &walk->interpreter;
	walk->interpreter_state = 0;
	if (READ(walk->interpreter_state, at->runtime + at->interpreters_head) ||
	    !walk->interpreter_state)
		return 0;
	if (READ(state, walk->interpreter_state + at->threads_head))
		return 0;
	for (int turn = 0; turn < MAX_THREADS && state; turn++) {
		if (READ(owner, state + at->thread_id))
			return 0;
		if (owner == walk->self)
			return state;
		if (READ(state, state + at->thread_next))
			return 0;
	}
	return 0;
}

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

/* What the interpreter counts of its code objects; 0: nothing that could be relied on. */
static __always_inline __u64 code_count(struct walk *walk)
{
	struct interpreter *at = &walk->interpreter;
	__u64 count = 0;
	__u32 made = 0;

	if (at->code_generation) {
		if (READ(count, walk->interpreter_state + at->code_generation))
			return 0;
		return count + 1;
	}
	/* It is in _PyRuntime for the main interpreter only, and is 0 when it has run over. */
	if (at->code_counter && walk->interpreter_state - at->runtime < RUNTIME_BYTES)
		READ(made, at->runtime + at->code_counter);
	return made;
}

/*
 * The frames, with what distinguishes them, are in walk->stack and walk->hash. `counted` 0: by the frames' own numbers.
 * Returns 0 or an enum stack_reason.
 */
static __always_inline __u64 walk_stack(struct walk *walk, __u32 counted)
{
	struct interpreter *at;
	__u64 count = 0;

	if (!walk)
		return STACK_FAULT;
	at = &walk->interpreter;
	if (!state_is_known(walk)) {
		walk->thread_state = find_state(walk);
		if (!walk->thread_state) {
			lost(LOSS_NO_THREAD_STATE);
			return STACK_NO_THREAD_STATE;
		}
		if (!state_is_known(walk)) {
			lost(LOSS_FAULT);
			return STACK_FAULT;
		}
	}
	if (at->cframe_frame >= 0 && READ(walk->frame, walk->frame + at->cframe_frame)) {
		lost(LOSS_FAULT);
		return STACK_FAULT;
	}
	if (counted)
		count = code_count(walk);
	walk->counted = count != 0;
	walk->hash = mix(walk->image, count);
	walk->window_begin = walk->window_end = walk->file = 0;
	walk->stack.depth = 0;
	/* More than the frames: the interpreter's own lie between. */
	for (__u32 turn = 0; turn < GPUHEAP_MAX_FRAMES / WALK_STEP + 2; turn++)
		if (walk_frames())
			break;
	if (!walk->stack.depth)
		return STACK_EMPTY;
	walk->stack.truncated = walk->frame != 0;
	return 0;
}

/* A stack that was not recognised: named, and kept. */
static __always_inline __u64 keep_stack(struct walk *walk)
{
	long error;

	if (!walk)
		return STACK_FAULT;
	walk->hash = mix(walk->image, walk->stack.truncated);
	walk->named = walk->unnamed = 0;
	for (__u32 turn = 0; turn < GPUHEAP_MAX_FRAMES / NAME_STEP + 1; turn++)
		if (name_frames())
			break;
	if (walk->hash < STACK_REASONS)
		walk->hash += STACK_REASONS;
	error = bpf_map_update_elem(&stacks, &walk->hash, &walk->stack, BPF_NOEXIST);
	if (error && error != -EEXIST) {
		lost(LOSS_STACKS_FULL);
		return STACK_NO_ROOM;
	}
	return walk->hash;
}

/*
 * The key of the calling thread's stack in `stacks`, or the reason why there is none. A global function, so that the
 * verifier looks at it once and not after each way to it.
 */
__noinline __u64 python_stack(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct walk *walk = walk_of(id);
	__u64 reason, key, counted = 0, seen;
	__u64 *known;

	if (!walk)
		return STACK_NO_INTERPRETER;
	reason = walk_stack(walk, 1);
	if (reason)
		return reason;
	if (walk->stack.truncated)
		lost(LOSS_TRUNCATED_STACK);
	seen = walk->hash;
	known = bpf_map_lookup_elem(&known_stacks, &seen);
	if (known)
		return *known;
	if (walk->counted) {
		counted = seen;
		if (walk_stack(walk, 0))
			return STACK_FAULT;
		seen = walk->hash;
		known = bpf_map_lookup_elem(&known_stacks, &seen);
	}
	key = known ? *known : keep_stack(walk);
	/* With a frame that could not be named, or no room, it is tried again the next time. */
	if (!known && (key < STACK_REASONS || walk->unnamed))
		return key;
	if (!known)
		bpf_map_update_elem(&known_stacks, &seen, &key, BPF_ANY);
	if (counted)
		bpf_map_update_elem(&known_stacks, &counted, &key, BPF_ANY);
	return key;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of the calling thread, read from the process's memory (CPython 3.8 and newer).
 *
 * A frame is named by a digest of its code object (codes.bpf.h). Making them for all frames is dear, so a stack that was
 * seen before is recognised without:
 *
 *   known_stacks   addresses and versions of the frames -> key of `stacks`
 *   stacks         digests of the frames                -> the frames
 *
 * An address alone tells nothing: memory of freed code objects is used again, often with the same strings at the same
 * addresses. What is added to it is one number for the whole stack: how many code objects the interpreter has made (3.13)
 * or freed (3.14 and newer) so far, or how many were freed since a probe counts them (3.9 to 3.12). While that stands
 * still, an address is the same code. Where there is no such number, or it has moved, each frame has one that is never
 * given again: of its function (3.11) or its code object (3.12, 3.13). And where that is missing, the digest itself.
 */
#ifndef GPUHEAP_PYTHON_BPF_H
#define GPUHEAP_PYTHON_BPF_H

#include "frames.bpf.h"

#define OUTER_FRAMES (GPUHEAP_MAX_FRAMES - GPUHEAP_INNER_FRAMES)
#define WALK_STEP 32
#define WALK_STEPS 128 /* 4096 frames */
#define RUNTIME_BYTES (4 << 20) /* more than a _PyRuntime has */
#define NAME_STEP 4
#define FRAME_FACTOR 0xff51afd7ed558ccdULL /* any odd number with many bits */

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

/* Where the next frame belongs: the inner ones in order, after them the last ones in turns (see straighten). */
static __always_inline __u32 next_place(const struct walk *walk)
{
	__u32 outer = walk->frames - GPUHEAP_INNER_FRAMES;

	if (walk->frames < GPUHEAP_INNER_FRAMES)
		return walk->frames & (GPUHEAP_MAX_FRAMES - 1);
	return GPUHEAP_INNER_FRAMES + (outer & (OUTER_FRAMES - 1));
}

/* The last frame that was added is the outermost of its run of the evaluation function. */
static __always_inline void ends_run(struct walk *walk)
{
	if (!walk->frames)
		return;
	walk->stack.frames[walk->last & (GPUHEAP_MAX_FRAMES - 1)].flags = FRAME_OUTERMOST;
	walk->hash = mix(walk->hash, FRAME_OUTERMOST);
}

/*
 * A few frames into the hash, and nothing else: 1 ends it, with walk->frame 0 if all are in it. While no code object dies,
 * an instruction's address tells what is executed. A global function: the verifier looks at it once, not once for each
 * turn of the loop; it has no pointers for arguments, as kernels before 5.12 do not take them.
 */
__noinline int recognise_frames(void)
{
	__u64 id = bpf_get_current_pid_tgid(), code, instruction, hash, frame;
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	struct interpreter *layout;
	long at = 0;

	if (!walk)
		return 1;
	layout = &walk->interpreter;
	hash = walk->hash;
	frame = walk->frame;
	for (int i = 0; i < WALK_STEP && frame; i++) {
		at = frame_at(walk, frame);
		if (at < 0)
			break;
		code = FRAME_U64(walk, at, layout->frame_code);
		if (layout->instruction_unit || layout->code_bytecodes)
			instruction = instruction_of(walk, code & ~(__u64)layout->code_tag, at);
		else
			instruction = FRAME_U64(walk, at, layout->frame_instruction);
		if (layout->frame_entry >= 0)
			instruction += FRAME_U8(walk, at, layout->frame_entry);
		hash = mix(hash, code * FRAME_FACTOR + instruction);
		frame = FRAME_U64(walk, at, layout->frame_previous);
		walk->frames++;
	}
	walk->hash = hash;
	walk->frame = frame;
	return at < 0 || !frame;
}

/* A few frames, with what distinguishes them, into the stack and the hash; 1 ends the walk. */
__noinline int walk_frames(void)
{
	__u64 id = bpf_get_current_pid_tgid(), code;
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	struct interpreter *layout;
	struct frame *frame;
	__u32 version;
	long at;

	if (!walk)
		return 1;
	layout = &walk->interpreter;
	for (int i = 0; i < WALK_STEP; i++) {
		if (!walk->frame)
			return 1;
		at = frame_at(walk, walk->frame);
		if (at < 0) {
			lost(LOSS_FAULT);
			return 1;
		}
		code = FRAME_U64(walk, at, layout->frame_code) & ~(__u64)layout->code_tag;
		walk->frame = FRAME_U64(walk, at, layout->frame_previous);
		if (!code || (layout->frame_owner >= 0 &&
			      FRAME_U8(walk, at, layout->frame_owner) >= OWNED_BY_C)) {
			if (layout->frame_entry < 0)
				ends_run(walk);
			continue;
		}
		walk->last = next_place(walk);
		frame = &walk->stack.frames[walk->last & (GPUHEAP_MAX_FRAMES - 1)];
		frame->code = code;
		frame->flags = layout->frames_apart ? FRAME_OUTERMOST : 0;
		frame->instruction = instruction_of(walk, code, at);
		version = version_of(walk, code, at);
		walk->hash = mix(walk->hash, code * FRAME_FACTOR +
						     (((__u64)version << 32) | frame->instruction));
		walk->frames++;
		if (layout->frame_entry >= 0 && FRAME_U8(walk, at, layout->frame_entry))
			ends_run(walk);
	}
	return 0;
}

/* Of a stack that was cut, the outer frames in their order: the one after the last of them is the first. */
__noinline int straighten(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	struct frame *outer, *spare;

	if (!walk || !walk->stack.cut)
		return 0;
	outer = walk->stack.frames + GPUHEAP_INNER_FRAMES;
	spare = (struct frame *)walk->buffer;
	for (__u32 i = 0; i < OUTER_FRAMES; i++)
		spare[i] = outer[(walk->frames + i) & (OUTER_FRAMES - 1)];
	for (__u32 i = 0; i < OUTER_FRAMES; i++)
		outer[i] = spare[i];
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

/* What the interpreter counts of its code objects; 0: nothing that could be relied on. */
static __always_inline __u64 code_count(struct walk *walk)
{
	struct interpreter *at = &walk->interpreter;
	struct code_deaths *deaths;
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
	if (made)
		return made;
	deaths = bpf_map_lookup_elem(&code_deaths, &walk->tgid);
	return deaths && deaths->image == walk->image ? deaths->count : 0;
}

/* Leaves the innermost frame in walk->frame. Returns 0 or an enum stack_reason. */
static __always_inline __u64 find_frame(struct walk *walk)
{
	struct interpreter *at;
	__u64 reason;

	if (!walk)
		return STACK_FAULT;
	at = &walk->interpreter;
	walk->innermost = 0;
	if (!state_is_known(walk)) {
		reason = find_state(walk);
		if (reason)
			return reason;
		if (READ(walk->frame, walk->thread_state + at->thread_frame)) {
			lost(LOSS_FAULT);
			return STACK_FAULT;
		}
	}
	if (at->cframe_frame >= 0 && READ(walk->frame, walk->frame + at->cframe_frame)) {
		lost(LOSS_FAULT);
		return STACK_FAULT;
	}
	walk->window_begin = walk->window_end = walk->aside = 0;
	walk->reached = walk->reach;
	walk->reach = walk->innermost = walk->frame;
	return 0;
}

/* What the stack is known by while the interpreter counts `count` code objects; 0: nothing. */
static __always_inline __u64 recognise(struct walk *walk, __u64 count)
{
	if (!walk || !count)
		return 0;
	walk->hash = mix(walk->image, count);
	walk->frames = 0;
	for (__u32 turn = 0; turn < WALK_STEPS; turn++)
		if (recognise_frames())
			break;
	return walk->frame ? 0 : walk->hash;
}

/* The frames, with what distinguishes them, are in walk->stack and walk->hash. Returns 0 or STACK_EMPTY. */
static __always_inline __u64 walk_stack(struct walk *walk)
{
	if (!walk)
		return STACK_FAULT;
	walk->hash = mix(walk->image, 0);
	walk->file = 0;
	walk->frames = walk->implausible = 0;
	for (__u32 turn = 0; turn < WALK_STEPS; turn++)
		if (walk_frames())
			break;
	if (!walk->frames)
		return STACK_EMPTY;
	walk->stack.depth = walk->frames < GPUHEAP_MAX_FRAMES ? walk->frames : GPUHEAP_MAX_FRAMES;
	walk->stack.cut = walk->frames - walk->stack.depth;
	walk->stack.endless = walk->frame != 0;
	return 0;
}

/* A stack that was not recognised: named, and kept. */
static __always_inline __u64 keep_stack(struct walk *walk)
{
	long error;

	if (!walk)
		return STACK_FAULT;
	straighten();
	walk->hash = mix(walk->image, ((__u64)walk->stack.cut << 1) | walk->stack.endless);
	walk->named = walk->unnamed = 0;
	for (__u32 turn = 0; turn < GPUHEAP_MAX_FRAMES / NAME_STEP + 1; turn++)
		if (name_frames())
			break;
	if (walk->implausible) {
		lost(LOSS_IMPLAUSIBLE_STACK);
		return STACK_IMPLAUSIBLE;
	}
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
	__u64 id = bpf_get_current_pid_tgid(), frame, reason, key, counted, seen;
	struct walk *walk = walk_of(id);
	struct stack *cut;
	__u64 *known;

	if (!walk)
		return STACK_NO_INTERPRETER;
	reason = find_frame(walk);
	if (reason)
		return reason;
	frame = walk->frame;
	counted = recognise(walk, code_count(walk));
	known = counted ? bpf_map_lookup_elem(&known_stacks, &counted) : NULL;
	if (known) {
		cut = walk->frames > GPUHEAP_MAX_FRAMES ? bpf_map_lookup_elem(&stacks, known)
							: NULL;
		if (cut && cut->cut)
			lost(LOSS_TRUNCATED_STACK);
		return *known;
	}
	walk->frame = frame;
	reason = walk_stack(walk);
	if (reason)
		return reason;
	if (walk->stack.cut || walk->stack.endless)
		lost(LOSS_TRUNCATED_STACK);
	seen = walk->hash;
	known = bpf_map_lookup_elem(&known_stacks, &seen);
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

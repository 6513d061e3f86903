/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames of an interpreter's stack, read many at a time (CPython 3.8 and newer). */
#ifndef GPUHEAP_FRAMES_BPF_H
#define GPUHEAP_FRAMES_BPF_H

#include "states.bpf.h"

#define FRAME_BYTES 80 /* covers the fields of _PyInterpreterFrame that are read */
#define FRAME_OBJECT_BYTES 112 /* and of PyFrameObject, before 3.11 */

/* A field of the frame that begins at `at` in the buffer. */
#define FRAME_U64(walk, at, offset) \
	(*(__u64 *)((walk)->buffer + (((at) + (offset)) & (BUFFER - 8))))
#define FRAME_U8(walk, at, offset) (*(__u8 *)((walk)->buffer + (((at) + (offset)) & (BUFFER - 1))))

static __always_inline int fill_window(struct walk *walk, __u64 begin, __u64 end)
{
	__u64 bytes = end - begin;

	walk->window_begin = walk->window_end = 0;
	asm volatile("%0 &= 4095" : "+r"(bytes)); /* for the verifier: clang 14 loses the bound */
	if (bytes > WINDOW || bpf_probe_read_user(walk->buffer, bytes, (const void *)begin))
		return -1;
	walk->window_begin = begin;
	walk->window_end = end;
	return 0;
}

/* Further-out frames lie below this one, in pages that are theirs from the beginning, or as far as those of the last walk. */
static __always_inline int move_window(struct walk *walk, __u64 frame)
{
	__u64 end = frame + FRAME_BYTES, begin = end - WINDOW, page = frame & ~4095ULL;

	if (walk->reached && walk->reached <= frame &&
	    !fill_window(walk, walk->reached > begin ? walk->reached : begin, end))
		return 0;
	return fill_window(walk, page > begin ? page : begin, end);
}

/*
 * Have the frame in the buffer; returns where it begins there, or -1. The window moves on to the next frames of the same
 * memory. One that lies elsewhere is read alone: an entry frame on the C stack, a generator's, a frame object of before
 * 3.11. With the second one there, the window moves there.
 */
static __always_inline long frame_at(struct walk *walk, __u64 frame)
{
	__u32 apart = walk->interpreter.frames_apart;

	if (walk->reach - frame < WINDOW)
		walk->reach = frame;
	if (frame >= walk->window_begin && frame + FRAME_BYTES <= walk->window_end)
		return frame - walk->window_begin;
	if (!apart && (!walk->window_end || walk->window_begin - frame < WINDOW ||
		       walk->aside - frame < WINDOW))
		return move_window(walk, frame) ? -1 : (long)(frame - walk->window_begin);
	walk->aside = frame;
	if (bpf_probe_read_user(walk->buffer + WINDOW, apart ? FRAME_OBJECT_BYTES : FRAME_BYTES,
				(const void *)frame))
		return -1;
	return WINDOW;
}

/* Which instruction the frame executes, as a distance in bytes from the first. */
static __always_inline __u32 instruction_of(struct walk *walk, __u64 code, __u64 at)
{
	struct interpreter *layout = &walk->interpreter;
	__u64 instruction = FRAME_U64(walk, at, layout->frame_instruction), copies = 0;
	__u64 first = code + layout->code_instructions;
	__u32 copy;

	if (layout->instruction_unit)
		return (__u32)instruction * layout->instruction_unit;
	if (layout->code_bytecodes) { /* free-threaded: each thread may have its own copy */
		copy = FRAME_U64(walk, at, layout->frame_bytecode);
		if (copy && !READ(copies, code + layout->code_bytecodes))
			READ(first, copies + 8 + 8 * (__u64)copy);
	}
	return instruction - first;
}

#endif

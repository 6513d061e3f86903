/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which native frames evaluate Python functions: from CPython 3.12 on each keeps, on its own C stack, the frame that ends
 * its functions. So it is known however the interpreter was compiled, and whether or not it has symbols.
 */
#ifndef GPUHEAP_EVALUATIONS_BPF_H
#define GPUHEAP_EVALUATIONS_BPF_H

#include "states.bpf.h"
#include "stack_memory.bpf.h"

#define ENTRY_STEP 32
#define ENTRY_TURNS 64

/* A few frames further out; 1: there are no more, or no room. A global function: verified once. */
__noinline int find_entries(void)
{
	__u64 id = bpf_get_current_pid_tgid(), frame;
	struct native *native = bpf_map_lookup_elem(&natives, &id);
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	__u8 owner;

	if (!native || !walk)
		return 1;
	for (int i = 0; i < ENTRY_STEP; i++) {
		frame = native->frame;
		if (!frame || native->entered >= GPUHEAP_ENTRIES)
			return 1;
		if (READ(owner, frame + walk->interpreter.frame_owner) ||
		    READ(native->frame, frame + walk->interpreter.frame_previous))
			return 1;
		if (owner >= OWNED_BY_C) {
			native->entries[native->entered & (GPUHEAP_ENTRIES - 1)] = frame;
			native->entered++;
		}
	}
	return 0;
}

/* Whether all of them are in native->entries. */
static __always_inline int find_evaluations(struct native *native, __u64 id)
{
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);

	native->entered = 0;
	if (!walk || !walk->innermost || walk->interpreter.frame_owner < 0 ||
	    walk->interpreter.frame_entry >= 0)
		return 0;
	native->frame = walk->innermost;
	for (int turn = 0; turn < ENTRY_TURNS; turn++)
		if (find_entries())
			break;
	return !native->frame;
}

#endif

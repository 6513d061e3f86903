/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Unwinds a stack by what the agent has told of the frames on it.
 *
 *   unwind_rules   place in the code -> where its caller's frame is (the agent)
 */
#ifndef GPUHEAP_UNWINDING_BPF_H
#define GPUHEAP_UNWINDING_BPF_H

#include "stack_memory.bpf.h"

#define UNWIND_STEP 16
#define UNWIND_TURNS 16

/* By the agent, for places in the code that were on a stack and are simple. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct unwind_key);
	__type(value, struct unwind_rule);
} unwind_rules SEC(".maps");

/* The return address on the stack, or what a return probe has put into its own keeping. */
static __always_inline __u64 return_address(struct native *native, __u64 place)
{
	__u64 address = 0;

	if (READ(address, place))
		return 0;
	if (!native->trampoline || (address & ~(GPUHEAP_PAGE - 1ULL)) != native->trampoline)
		return address;
	return taken_from(place);
}

enum way {
	WAY_ON,
	WAY_ROOT,
	WAY_LOST, /* the agent has said nothing of this place, or nothing that is simple */
};

/* A few frames up. A global function: verified once. */
__noinline int unwind_frames(void)
{
	__u64 id = bpf_get_current_pid_tgid(), cfa;
	struct native *native = bpf_map_lookup_elem(&natives, &id);
	struct unwind_key key = {};
	struct unwind_rule *rule;

	if (!native)
		return WAY_LOST;
	key.text = native->text;
	for (int i = 0; i < UNWIND_STEP; i++) {
		key.pc = native->pc;
		rule = bpf_map_lookup_elem(&unwind_rules, &key);
		if (!rule)
			return WAY_LOST;
		if (rule->base == BASE_ROOT)
			return WAY_ROOT;
		cfa = (rule->base == BASE_BP ? native->bp : native->sp) + rule->cfa;
		if (cfa <= native->sp)
			return WAY_LOST;
		native->pc = return_address(native, cfa - 8);
		if (!native->pc)
			return WAY_LOST;
		if (rule->saved_bp && READ(native->bp, cfa + rule->saved_bp))
			return WAY_LOST;
		native->sp = cfa;
		native->path = mix(native->path, native->pc);
	}
	return WAY_ON;
}

/*
 * Of a stack whose hash is new: its name by its return addresses alone, when all of its frames are simple and were seen
 * before. That does not depend on what earlier calls have left behind. 0: it has none.
 */
static __always_inline __u64 unwound_name(struct native *native, struct text *text)
{
	int way = WAY_ON;

	if (!native || !text)
		return 0;
	native->pc = native->registers.ip;
	native->sp = native->registers.sp;
	native->bp = native->registers.bp;
	native->path = mix(mix(~native->image, native->registers.ip), native->text);
	for (int turn = 0; turn < UNWIND_TURNS && way == WAY_ON; turn++)
		way = unwind_frames();
	if (way != WAY_ROOT)
		return 0;
	return native->path ? native->path : 1;
}

#endif

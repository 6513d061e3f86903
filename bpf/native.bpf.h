/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What stands for the native stack of a thread whose call returns, and a copy of its memory when that is new.
 *
 * Without frame pointers only user space can unwind (.eh_frame). It does so once for each stack: what stands for one is a
 * hash of the return address, and of all words on the stack that point into executable memory with their distance from the
 * stack pointer. Two stacks that differ in a return address differ in it. What is no return address also counts:
 * remains of earlier calls make one stack look like several. The agent, which sees that they are the same, has the kernel
 * side call them by one name.
 *
 *   known_natives  hash  -> name of the stack: the first hash that it had (the agent; itself, until then)
 *
 * What the agent has learnt of the frames on it, it tells, too: then a stack of such frames is unwound here, when its hash
 * is new, and only a new sequence of return addresses is copied.
 */
#ifndef GPUHEAP_NATIVE_BPF_H
#define GPUHEAP_NATIVE_BPF_H

#include "snapshots.bpf.h"
#include "stack_hash.bpf.h"
#include "unwinding.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u64);
} known_natives SEC(".maps");

/* Hashes by which bytes were charged to a stack whose copy was not sent. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64); /* image */
} refused_natives SEC(".maps");

/* `key` is new. What it is called from now on; itself, when nothing more is known of the stack. */
static __always_inline __u64 name_of_new(struct native *native, struct text *text, __u64 key)
{
	__u64 path = unwound_name(native, text), name = path ? path : key;
	__u64 *known;

	if (!native)
		return key;
	known = path ? bpf_map_lookup_elem(&known_natives, &path) : NULL;
	if (known) {
		name = *known;
	} else if (!send_snapshot(native, name)) {
		bpf_map_update_elem(&known_natives, &name, &name, BPF_NOEXIST);
	} else {
		/* One with a path comes again by it, and is copied then. */
		if (!path)
			bpf_map_update_elem(&refused_natives, &key, &native->image, BPF_ANY);
		return name;
	}
	if (name == key)
		return name;
	if (bpf_map_lookup_elem(&refused_natives, &key)) {
		if (tell_same(native->image, key, name))
			return name; /* and once more the next time */
		bpf_map_delete_elem(&refused_natives, &key);
	}
	bpf_map_update_elem(&known_natives, &key, &name, BPF_ANY);
	return name;
}

/*
 * What stands for the native stack of the calling thread; 0: nothing. One whose copy was not sent is tried again the next
 * time. A global function, so that the verifier looks at it once.
 */
__noinline __u64 native_stack(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid(), key, exec, end;
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	struct native *native;
	struct text *text;
	__u64 *known;

	if (!set || !set->native_stacks || !thread)
		return 0;
	native = native_of(id);
	if (!native)
		return 0;
	native->registers = thread->registers;
	native->image = thread->image;
	text = text_of(native->image);
	/* The same addresses are other stacks when the agent has found other code there. */
	native->text = text ? text->id : 0;
	native->hash = mix(mix(thread->image, native->registers.ip), native->text);
	native->other = interrupted_stack(native, task);
	native->other_end = native->other ? stack_end(native->other, task) : 0;
	end = stack_end(native->registers.sp, task);
	if (native->other && end > native->signal_stack + native->signal_size)
		end = native->signal_stack + native->signal_size;
	look_from(native, native->registers.sp, end);
	native->trampoline = BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
	find_returns(native, task);
	exec = BPF_CORE_READ(task, mm, exec_vm);
	if (!text || text->pages != exec) {
		text = NULL;
		tell_text(native->image, exec);
		native->code_begin = BPF_CORE_READ(task, mm, start_code);
		native->code_size = BPF_CORE_READ(task, mm, end_code) - native->code_begin;
	}
	hash_pages(text != NULL);
	if (native->other) {
		look_from(native, native->other, native->other_end);
		hash_pages(text != NULL);
		native->end = end;
	}
	key = native->hash ? native->hash : 1;
	known = bpf_map_lookup_elem(&known_natives, &key);
	if (known)
		return *known;
	return name_of_new(native, text, key);
}

#endif

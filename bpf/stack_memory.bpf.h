/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The stack of one thread while it is looked at, page by page: its bounds, which return addresses probes have taken from it,
 * and what the signal's frame says when a handler runs on a stack of its own.
 */
#ifndef GPUHEAP_STACK_MEMORY_BPF_H
#define GPUHEAP_STACK_MEMORY_BPF_H

#include "threads.bpf.h"

#define PAGE_WORDS (GPUHEAP_PAGE / 8)
/* In the signal's frame, from `uc_stack.ss_sp` of struct ucontext: `ss_size`, and the interrupted stack pointer. */
#define SIGNAL_SIZE_WORDS 2
#define SIGNAL_SP 144

/* The stack of one thread while it is looked at. */
struct native {
	struct registers registers;
	__u64 image;
	__u64 hash;
	__u64 from; /* the stack pointer of the stack that is looked at */
	__u64 page; /* the one to be looked at */
	__u64 end;
	/* A handler on a stack of its own: where that is, and the one that its signal has interrupted. */
	__u64 signal_stack;
	__u64 signal_size;
	__u64 signal_frame;
	__u64 other;
	__u64 other_end;
	__u64 code_begin; /* of the program itself */
	__u64 code_size;
	/* The frame that is looked at. */
	__u64 pc;
	__u64 sp;
	__u64 bp;
	__u64 text; /* id of it */
	__u64 path; /* hash of the return addresses */
	__u64 trampoline;
	__u32 pages; /* looked at */
	__u32 taken;
	struct taken_return returns[GPUHEAP_RETURNS];
	__u64 frame; /* of Python's, that is looked at */
	__u32 entered;
	__u32 all_entered;
	__u64 entries[GPUHEAP_ENTRIES];
	__u64 words[PAGE_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* tgid and tid */
	__type(value, struct native);
} natives SEC(".maps");

/* All zero: what a new one begins with. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct native);
} new_native SEC(".maps");

/* All ones for the words of the page that are the stack's, else 0: without a branch, as below. */
static __always_inline __u64 of_stack(__u32 word, __u64 first, __u64 end)
{
	return (__u64)((__s64)(~(word - first) & (word - end)) >> 63);
}

/* Returns -1 when there is none. */
static __always_inline int read_page(struct native *native, __u64 *first, __u64 *end)
{
	__u64 begin = native->page;

	if (begin >= native->end || native->pages >= GPUHEAP_STACK_PAGES)
		return -1;
	*first = native->from > begin ? (native->from - begin) / 8 : 0;
	*end = native->end - begin < GPUHEAP_PAGE ? (native->end - begin) / 8 : PAGE_WORDS;
	if (bpf_probe_read_user(native->words, sizeof(native->words), (const void *)begin))
		return -1;
	native->page += GPUHEAP_PAGE;
	native->pages++;
	return 0;
}

/*
 * The return addresses that probes have taken from this stack: ours of the calls around this one, and other tools'. They
 * are on no page any more, the kernel keeps them.
 */
static __always_inline void find_returns(struct native *native, struct task_struct *task)
{
	struct return_instance *instance = BPF_CORE_READ(task, utask, return_instances);
	__u64 stack;

	native->taken = 0;
	for (int i = 0; i < GPUHEAP_RETURNS && instance; i++) {
		stack = BPF_CORE_READ(instance, stack);
		if ((stack >= native->registers.sp || native->other) &&
		    native->taken < GPUHEAP_RETURNS) {
			struct taken_return *taken =
				&native->returns[native->taken & (GPUHEAP_RETURNS - 1)];

			taken->stack = stack;
			taken->address = BPF_CORE_READ(instance, orig_ret_vaddr);
			native->hash = mix(native->hash, taken->address);
			native->hash = mix(native->hash, stack);
			native->taken++;
		}
		instance = BPF_CORE_READ(instance, next);
	}
}

/* Up to where it can be the stack: what lies beyond it changes by itself. */
static __always_inline __u64 stack_end(__u64 sp, struct task_struct *task)
{
	__u64 end = (sp & ~(GPUHEAP_PAGE - 1ULL)) + GPUHEAP_STACK_PAGES * GPUHEAP_PAGE;
	__u64 self = BPF_CORE_READ(task, thread.fsbase); /* on top of a thread's stack */
	__u64 start = BPF_CORE_READ(task, mm, start_stack); /* of the process's first one */

	if (self > sp && self < end)
		end = self;
	if (start > sp && start < end)
		end = start;
	return end;
}

/* What a return probe has taken from this place on the stack; 0: nothing. A global function: verified once. */
__noinline __u64 taken_from(__u64 place)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct native *native = bpf_map_lookup_elem(&natives, &id);

	if (!native)
		return 0;
	for (__u32 i = 0; i < GPUHEAP_RETURNS && i < native->taken; i++)
		if (native->returns[i].stack == place)
			return native->returns[i].address;
	return 0;
}

/* Begin to look at a stack. */
static __always_inline void look_from(struct native *native, __u64 sp, __u64 end)
{
	native->from = sp;
	native->page = sp & ~(GPUHEAP_PAGE - 1ULL);
	native->end = end;
	native->pages = 0;
}

/*
 * A handler's own stack: the frame that the kernel has put there for the signal holds where this stack is, as it was set
 * by sigaltstack(2). Of several, as signals can come in handlers, the outermost is that of the one before. Few branches.
 */
__noinline int find_signal_page(void)
{
	__u64 id = bpf_get_current_pid_tgid(), first, end, found, at, differs, is_it;
	struct native *native = bpf_map_lookup_elem(&natives, &id);

	if (!native || read_page(native, &first, &end))
		return 1;
	found = native->signal_frame;
	at = native->page - GPUHEAP_PAGE;
	for (__u32 i = 0; i < PAGE_WORDS - SIGNAL_SIZE_WORDS; i++) {
		differs = (native->words[i] ^ native->signal_stack) |
			  (native->words[i + SIGNAL_SIZE_WORDS] ^ native->signal_size);
		is_it = (((differs | -differs) >> 63) - 1) & of_stack(i, first, end);
		found = (found & ~is_it) | ((at + i * 8) & is_it);
	}
	native->signal_frame = found;
	return 0;
}

/* The stack that a signal has interrupted, when its handler runs on a stack of its own; else 0. */
static __always_inline __u64 interrupted_stack(struct native *native, struct task_struct *task)
{
	__u64 sp = native->registers.sp, other = 0;

	native->signal_stack = BPF_CORE_READ(task, sas_ss_sp);
	if (!native->signal_stack || sp < native->signal_stack)
		return 0;
	native->signal_size = BPF_CORE_READ(task, sas_ss_size);
	if (sp - native->signal_stack >= native->signal_size)
		return 0;
	native->signal_frame = 0;
	look_from(native, sp, native->signal_stack + native->signal_size);
	for (int page = 0; page < GPUHEAP_STACK_PAGES; page++)
		if (find_signal_page())
			break;
	if (!native->signal_frame || READ(other, native->signal_frame + SIGNAL_SP))
		return 0;
	return other - native->signal_stack < native->signal_size ? 0 : other;
}

static __always_inline struct native *native_of(__u64 id)
{
	struct native *native = bpf_map_lookup_elem(&natives, &id);
	struct native *made;
	__u32 zero = 0;

	if (native)
		return native;
	made = bpf_map_lookup_elem(&new_native, &zero);
	if (made)
		bpf_map_update_elem(&natives, &id, made, BPF_NOEXIST);
	native = bpf_map_lookup_elem(&natives, &id);
	if (!native)
		lost(LOSS_THREADS_FULL);
	return native;
}

#endif

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
 *   texts          image -> where it has executable memory (the agent; it is told when that has changed)
 *   known_natives  hash  -> name of the stack: the first hash that it had (the agent; itself, until then)
 *
 * As long as the agent has not answered, a word counts when there is a call before the place that it points to.
 */
#ifndef GPUHEAP_NATIVE_BPF_H
#define GPUHEAP_NATIVE_BPF_H

#include "threads.bpf.h"

#define PAGE_WORDS (GPUHEAP_PAGE / 8)
#define PLACE_FACTOR 0xc2b2ae3d27d4eb4fULL /* any odd number with many bits */
#define USER_END (1ULL << 47)
#define TEXT_MASK (GPUHEAP_TEXT_WINDOWS * GPUHEAP_TEXT_WORDS - 1)
#define PIECES ((1U << (GPUHEAP_TEXT_WINDOW_BITS - GPUHEAP_TEXT_PIECE_BITS)) - 1)
#define RATE_BITS 27 /* of nanoseconds: an eighth of a second */
#define RATE 256 /* snapshots in it, for each process */

/* The stack of one thread while it is looked at. */
struct native {
	struct registers registers;
	__u64 image;
	__u64 hash;
	__u64 page; /* the one to be looked at */
	__u64 end;
	__u64 code_begin; /* of the program itself */
	__u64 code_end;
	__u32 pages; /* looked at */
	__u32 taken;
	struct taken_return returns[GPUHEAP_RETURNS];
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

/* What `texts` holds one of for each process; itself it is not used: without it the compiler leaves the type out. */
struct one_text {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct text);
} no_text SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* image */
	__array(values, struct one_text);
} texts SEC(".maps");

/* For how many pages of executable memory the agent was last told to look. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* image */
	__type(value, __u64);
} texts_asked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u64);
} known_natives SEC(".maps");

struct rate {
	__u64 window;
	__u64 count;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* image */
	__type(value, struct rate);
} rates SEC(".maps");

/* Of its own: a burst of these must not push out the names of functions. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} snapshots SEC(".maps");

static __always_inline struct text *text_of(__u64 image)
{
	void *inner = bpf_map_lookup_elem(&texts, &image);
	__u32 zero = 0;

	return inner ? bpf_map_lookup_elem(inner, &zero) : NULL;
}

/* Which words of the page are the stack's: how many, from which on. */
static __always_inline int read_page(struct native *native, __u32 *first, __u32 *count)
{
	__u64 begin = native->page;

	if (begin >= native->end || native->pages >= GPUHEAP_STACK_PAGES)
		return -1;
	*first = native->registers.sp > begin ? (native->registers.sp - begin) / 8 : 0;
	*count = (native->end - begin < GPUHEAP_PAGE ? (native->end - begin) / 8 : PAGE_WORDS) -
		 *first;
	if (bpf_probe_read_user(native->words, sizeof(native->words), (const void *)begin))
		return -1;
	native->page += GPUHEAP_PAGE;
	native->pages++;
	return 0;
}

static __always_inline __u64 with_word(__u64 hash, __u64 word, __u64 place)
{
	return mix(hash, word + place * PLACE_FACTOR);
}

/* Words of one page that point into executable memory; 1: there are no more pages. A global function: verified once. */
__noinline int hash_text_page(void)
{
	__u64 id = bpf_get_current_pid_tgid(), hash, word, number, place;
	struct native *native = bpf_map_lookup_elem(&natives, &id);
	__u32 first, count, window, piece;
	struct text *text;

	if (!native)
		return 1;
	text = text_of(native->image);
	if (!text || read_page(native, &first, &count))
		return 1;
	hash = native->hash;
	place = native->page - native->registers.sp;
	for (__u32 i = 0; i < PAGE_WORDS; i++) {
		if (i - first >= count) /* one comparison: the verifier learns nothing from it */
			continue;
		word = native->words[i];
		number = word >> GPUHEAP_TEXT_WINDOW_BITS;
		window = text->windows[number & (GPUHEAP_TEXT_PLACES - 1)];
		if (window >> 8 != number)
			continue;
		piece = (word >> GPUHEAP_TEXT_PIECE_BITS) & PIECES;
		if (text->bits[((window & 255) * GPUHEAP_TEXT_WORDS + piece / 64) & TEXT_MASK] >>
			    (piece & 63) &
		    1)
			hash = with_word(hash, word, place + i * 8);
	}
	native->hash = hash;
	return 0;
}

/* Whether the instruction before this address may be a call: e8 and four bytes, or ff /2 and up to five. */
static __always_inline int follows_call(__u64 address)
{
	__u8 before[8];

	if (READ(before, address - sizeof(before)))
		return 0;
	if (before[3] == 0xe8)
		return 1;
	return (before[6] == 0xff && (before[7] & 0x38) == 0x10) ||
	       (before[5] == 0xff && (before[6] & 0x38) == 0x10) ||
	       (before[4] == 0xff && (before[5] & 0x38) == 0x10) ||
	       (before[2] == 0xff && (before[3] & 0x38) == 0x10) ||
	       (before[1] == 0xff && (before[2] & 0x38) == 0x10);
}

/* The same without the agent's answer. */
__noinline int hash_call_page(void)
{
	__u64 id = bpf_get_current_pid_tgid(), hash, word, place;
	struct native *native = bpf_map_lookup_elem(&natives, &id);
	__u32 first, count;

	if (!native || read_page(native, &first, &count))
		return 1;
	hash = native->hash;
	place = native->page - native->registers.sp;
	for (__u32 i = 0; i < PAGE_WORDS; i++) {
		if (i - first >= count) /* one comparison: the verifier learns nothing from it */
			continue;
		word = native->words[i];
		if (word < GPUHEAP_PAGE || word >= USER_END)
			continue;
		if (word - native->registers.sp < GPUHEAP_STACK_PAGES * GPUHEAP_PAGE)
			continue;
		if ((word >= native->code_begin && word < native->code_end) || follows_call(word))
			hash = with_word(hash, word, place + i * 8);
	}
	native->hash = hash;
	return 0;
}

static __noinline void tell_text(__u64 image, __u64 pages)
{
	__u64 *asked = bpf_map_lookup_elem(&texts_asked, &image);
	struct text_event *event;

	if (asked && *asked == pages)
		return;
	event = bpf_ringbuf_reserve(&snapshots, sizeof(*event), 0);
	if (!event) {
		lost(LOSS_SNAPSHOT_RING_FULL);
		return;
	}
	event->type = EVENT_TEXT;
	event->tgid = bpf_get_current_pid_tgid() >> 32;
	event->image = image;
	event->pages = pages;
	bpf_ringbuf_submit(event, 0);
	bpf_map_update_elem(&texts_asked, &image, &pages, BPF_ANY);
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
	for (int i = 0; i < 2 * GPUHEAP_RETURNS && instance; i++) {
		stack = BPF_CORE_READ(instance, stack);
		if (stack >= native->registers.sp && native->taken < GPUHEAP_RETURNS) {
			struct taken_return *taken =
				&native->returns[native->taken & (GPUHEAP_RETURNS - 1)];

			taken->stack = stack;
			taken->address = BPF_CORE_READ(instance, orig_ret_vaddr);
			native->hash = with_word(native->hash, taken->address, stack);
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

/* Whether the process has had as many as it can have for now. */
static __noinline int too_many(__u64 image)
{
	struct rate *rate = bpf_map_lookup_elem(&rates, &image);
	struct rate made = { .window = bpf_ktime_get_ns() >> RATE_BITS, .count = 1 };

	if (!rate || rate->window != made.window) {
		bpf_map_update_elem(&rates, &image, &made, BPF_ANY);
		return 0;
	}
	if (rate->count >= RATE)
		return 1;
	ADD(rate->count, 1);
	return 0;
}

/* Returns -1 when the ring is full. `room` is a constant: kernels before 5.20 reserve no other sizes. */
static __always_inline int send_pages(struct native *native, __u64 key, const __u32 room)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct snapshot_event *event;
	__u8 *memory;
	__u32 pages;
	__u64 from;

	event = bpf_ringbuf_reserve(&snapshots, sizeof(*event) + room * GPUHEAP_PAGE, 0);
	if (!event)
		return -1;
	event->type = EVENT_SNAPSHOT;
	event->tgid = bpf_get_current_pid_tgid() >> 32;
	event->image = native->image;
	event->native = key;
	event->trampoline = BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
	event->end = native->end;
	event->registers = native->registers;
	event->taken = native->taken;
	__builtin_memcpy(event->returns, native->returns, sizeof(event->returns));
	memory = (__u8 *)(event + 1);
	from = native->registers.sp & ~(GPUHEAP_PAGE - 1ULL);
	for (pages = 0; pages < room; pages++) {
		if (bpf_probe_read_user(memory + pages * GPUHEAP_PAGE, GPUHEAP_PAGE,
					(const void *)(from + pages * GPUHEAP_PAGE)))
			break;
	}
	event->pages = pages;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Returns -1 when it could not be handed to the agent. */
static __noinline int send_snapshot(struct native *native, __u64 key)
{
	int error;

	if (!native)
		return -1;
	if (too_many(native->image)) {
		lost(LOSS_SNAPSHOT_RATE);
		return -1;
	}
	if (native->pages <= 1)
		error = send_pages(native, key, 1);
	else if (native->pages <= 2)
		error = send_pages(native, key, 2);
	else if (native->pages <= 4)
		error = send_pages(native, key, 4);
	else
		error = send_pages(native, key, GPUHEAP_STACK_PAGES);
	if (error)
		lost(LOSS_SNAPSHOT_RING_FULL);
	return error;
}

/*
 * What stands for the native stack of the calling thread; 0: nothing. One whose copy was not sent is tried again the next
 * time. A global function, so that the verifier looks at it once.
 */
__noinline __u64 native_stack(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid(), key, exec;
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
	native->hash = mix(thread->image, native->registers.ip);
	native->page = native->registers.sp & ~(GPUHEAP_PAGE - 1ULL);
	native->end = stack_end(native->registers.sp, task);
	native->pages = 0;
	find_returns(native, task);
	exec = BPF_CORE_READ(task, mm, exec_vm);
	text = text_of(native->image);
	if (text && text->pages == exec) {
		for (int page = 0; page < GPUHEAP_STACK_PAGES; page++)
			if (hash_text_page())
				break;
	} else {
		tell_text(native->image, exec);
		native->code_begin = BPF_CORE_READ(task, mm, start_code);
		native->code_end = BPF_CORE_READ(task, mm, end_code);
		for (int page = 0; page < GPUHEAP_STACK_PAGES; page++)
			if (hash_call_page())
				break;
	}
	key = native->hash ? native->hash : 1;
	known = bpf_map_lookup_elem(&known_natives, &key);
	if (known)
		return *known;
	if (!send_snapshot(native, key))
		bpf_map_update_elem(&known_natives, &key, &key, BPF_NOEXIST);
	return key;
}

#endif

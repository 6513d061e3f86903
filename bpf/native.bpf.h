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
 * What the agent has learnt of the frames on it, it tells, too: then a stack of such frames is unwound here, when its hash
 * is new, and only a new sequence of return addresses is copied.
 *
 *   unwind_rules   place in the code -> where its caller's frame is (the agent)
 *
 * As long as the agent has not answered, a word counts when there is a call before the place that it points to.
 */
#ifndef GPUHEAP_NATIVE_BPF_H
#define GPUHEAP_NATIVE_BPF_H

#include "threads.bpf.h"

#define PAGE_WORDS (GPUHEAP_PAGE / 8)
#define PLACE_FACTOR 0xc2b2ae3d27d4eb4fULL /* any odd number with many bits */
#define USER_END (1ULL << 47)
_Static_assert(GPUHEAP_TEXT_WINDOWS *GPUHEAP_TEXT_WORDS == 8192,
	       "hash_text_page() keeps its index below");
#define PIECES ((1U << (GPUHEAP_TEXT_WINDOW_BITS - GPUHEAP_TEXT_PIECE_BITS)) - 1)
#define UNWIND_STEP 16
#define UNWIND_TURNS 16
#define RATE_BITS 27 /* of nanoseconds: an eighth of a second */
#define RATE 256 /* snapshots in it, for each process */
#define FIRST_RATE 1024 /* in its first one, when all stacks are new */

/* The stack of one thread while it is looked at. */
struct native {
	struct registers registers;
	__u64 image;
	__u64 hash;
	__u64 page; /* the one to be looked at */
	__u64 end;
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

/* Sizes and no types: the agent makes these without types, and kernels before 6.2 take no others then. */
struct one_text {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct text));
};

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

/* By the agent, for places in the code that were on a stack and are simple. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct unwind_key);
	__type(value, struct unwind_rule);
} unwind_rules SEC(".maps");

/* Hashes by which bytes were charged to a stack whose copy was not sent. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64); /* image */
} refused_natives SEC(".maps");

struct rate {
	__u64 window;
	__s64 count;
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
	*first = native->registers.sp > begin ? (native->registers.sp - begin) / 8 : 0;
	*end = native->end - begin < GPUHEAP_PAGE ? (native->end - begin) / 8 : PAGE_WORDS;
	if (bpf_probe_read_user(native->words, sizeof(native->words), (const void *)begin))
		return -1;
	native->page += GPUHEAP_PAGE;
	native->pages++;
	return 0;
}

/*
 * Words of one page that point into executable memory; 1: there are no more pages. A global function: verified once. Few
 * branches: the verifier follows them all, for each word anew.
 */
__noinline int hash_text_page(void)
{
	__u64 id = bpf_get_current_pid_tgid(), first, end, hash, word, number, place, set, index;
	struct native *native = bpf_map_lookup_elem(&natives, &id);
	struct text *text;
	__u32 window, piece;

	if (!native)
		return 1;
	text = text_of(native->image);
	if (!text || read_page(native, &first, &end))
		return 1;
	hash = native->hash;
	place = native->page - native->registers.sp;
	for (__u32 i = 0; i < PAGE_WORDS; i++) {
		word = native->words[i];
		number = word >> GPUHEAP_TEXT_WINDOW_BITS;
		window = text->windows[number & (GPUHEAP_TEXT_PLACES - 1)];
		if (window >> 8 != number)
			continue;
		piece = (word >> GPUHEAP_TEXT_PIECE_BITS) & PIECES;
		index = (__u64)(window & (GPUHEAP_TEXT_WINDOWS - 1)) * GPUHEAP_TEXT_WORDS +
			piece / 64;
		/* For the verifier: 6.1 loses the bounds of the sum, as clang 14 makes it. */
		asm volatile("%0 &= 8191" : "+r"(index));
		set = text->bits[index] >> (piece & 63);
		hash += mix((place + i * 8) * PLACE_FACTOR, word) & -(set & 1) &
			of_stack(i, first, end);
	}
	native->hash = hash;
	return 0;
}

/* Whether the instruction before this address may be a call: e8 and four bytes, or ff /2 and up to five. */
__noinline int follows_call(__u64 address)
{
	__u8 before[8];

	if (address < GPUHEAP_PAGE || address >= USER_END || READ(before, address - sizeof(before)))
		return 0;
	if (before[3] == 0xe8)
		return 1;
	return (before[6] == 0xff && (before[7] & 0x38) == 0x10) ||
	       (before[5] == 0xff && (before[6] & 0x38) == 0x10) ||
	       (before[4] == 0xff && (before[5] & 0x38) == 0x10) ||
	       (before[2] == 0xff && (before[3] & 0x38) == 0x10) ||
	       (before[1] == 0xff && (before[2] & 0x38) == 0x10);
}

/* The same without the agent's answer. Of the program itself all words count that point into it. */
__noinline int hash_call_page(void)
{
	__u64 id = bpf_get_current_pid_tgid(), first, end, hash, word, place;
	struct native *native = bpf_map_lookup_elem(&natives, &id);

	if (!native || read_page(native, &first, &end))
		return 1;
	hash = native->hash;
	place = native->page - native->registers.sp;
	for (__u32 i = 0; i < PAGE_WORDS; i++) {
		word = native->words[i] & of_stack(i, first, end);
		if (word - native->code_begin < native->code_size || follows_call(word))
			hash += mix((place + i * 8) * PLACE_FACTOR, word);
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
	for (int i = 0; i < GPUHEAP_RETURNS && instance; i++) {
		stack = BPF_CORE_READ(instance, stack);
		if (stack >= native->registers.sp && native->taken < GPUHEAP_RETURNS) {
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
static __always_inline int too_many(__u64 image)
{
	struct rate *rate = bpf_map_lookup_elem(&rates, &image);
	struct rate made = { .window = bpf_ktime_get_ns() >> RATE_BITS, .count = 1 };

	if (!rate)
		made.count = 1 + RATE - FIRST_RATE;
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
	event->trampoline = native->trampoline;
	event->end = native->end;
	event->registers = native->registers;
	event->taken = native->taken;
	bpf_probe_read_kernel(event->returns, sizeof(event->returns), native->returns);
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

/* Returns -1 when the agent could not be told. */
static __always_inline int tell_same(__u64 image, __u64 native, __u64 known)
{
	struct same_stack_event *event = bpf_ringbuf_reserve(&snapshots, sizeof(*event), 0);

	if (!event)
		return -1;
	event->type = EVENT_SAME_STACK;
	event->pad = 0;
	event->image = image;
	event->native = native;
	event->known = known;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

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
	text = text_of(native->image);
	/* The same addresses are other stacks when the agent has found other code there. */
	native->text = text ? text->id : 0;
	native->hash = mix(mix(thread->image, native->registers.ip), native->text);
	native->page = native->registers.sp & ~(GPUHEAP_PAGE - 1ULL);
	native->end = stack_end(native->registers.sp, task);
	native->pages = 0;
	native->trampoline = BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
	find_returns(native, task);
	exec = BPF_CORE_READ(task, mm, exec_vm);
	if (text && text->pages == exec) {
		for (int page = 0; page < GPUHEAP_STACK_PAGES; page++)
			if (hash_text_page())
				break;
	} else {
		text = NULL;
		tell_text(native->image, exec);
		native->code_begin = BPF_CORE_READ(task, mm, start_code);
		native->code_size = BPF_CORE_READ(task, mm, end_code) - native->code_begin;
		for (int page = 0; page < GPUHEAP_STACK_PAGES; page++)
			if (hash_call_page())
				break;
	}
	key = native->hash ? native->hash : 1;
	known = bpf_map_lookup_elem(&known_natives, &key);
	if (known)
		return *known;
	return name_of_new(native, text, key);
}

#endif

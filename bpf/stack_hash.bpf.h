/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A hash of what stands on a stack: the words that point into executable memory, with their places.
 *
 *   texts   image -> where it has executable memory (the agent; it is told when that has changed)
 *
 * As long as the agent has not answered, a word counts when there is a call before the place that it points to.
 */
#ifndef GPUHEAP_STACK_HASH_BPF_H
#define GPUHEAP_STACK_HASH_BPF_H

#include "snapshots.bpf.h"

#define PLACE_FACTOR 0xc2b2ae3d27d4eb4fULL /* any odd number with many bits */
#define USER_END (1ULL << 47)
_Static_assert(GPUHEAP_TEXT_WINDOWS *GPUHEAP_TEXT_WORDS == 8192,
	       "hash_text_page() keeps its index below");
#define PIECES ((1U << (GPUHEAP_TEXT_WINDOW_BITS - GPUHEAP_TEXT_PIECE_BITS)) - 1)

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

static __always_inline struct text *text_of(__u64 image)
{
	void *inner = bpf_map_lookup_elem(&texts, &image);
	__u32 zero = 0;

	return inner ? bpf_map_lookup_elem(inner, &zero) : NULL;
}

/*
 * Words of one page that point into executable memory; 1: there are no more pages. A global function: verified once. Few
 * branches: the verifier follows them all, for each word anew.
 */
__noinline int hash_text_page(void)
{
	__u64 id = bpf_get_current_pid_tgid(), first, end, hash, word, number, place, set, index,
	      factor;
	struct native *native = bpf_map_lookup_elem(&natives, &id);
	struct text *text;
	__u32 window, piece;

	if (!native)
		return 1;
	text = text_of(native->image);
	if (!text || read_page(native, &first, &end))
		return 1;
	hash = native->hash;
	factor = text->factor;
	place = native->page - native->from;
	for (__u32 i = 0; i < PAGE_WORDS; i++) {
		word = native->words[i];
		number = word >> GPUHEAP_TEXT_WINDOW_BITS;
		window = text->windows[(number * factor >> GPUHEAP_TEXT_FACTOR_BITS) &
				       (GPUHEAP_TEXT_PLACES - 1)];
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
	place = native->page - native->from;
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

static __always_inline void hash_pages(int text_is_known)
{
	for (int page = 0; page < GPUHEAP_STACK_PAGES; page++)
		if (text_is_known ? hash_text_page() : hash_call_page())
			break;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies of stacks for the agent to unwind: their own ring, and how many a process can have of it.
 */
#ifndef GPUHEAP_SNAPSHOTS_BPF_H
#define GPUHEAP_SNAPSHOTS_BPF_H

#include "evaluations.bpf.h"

_Static_assert(2 * GPUHEAP_SIGNAL_PAGES == GPUHEAP_STACK_PAGES,
	       "send_both() reserves as much as for one stack");
#define RATE_BITS 27 /* of nanoseconds: an eighth of a second */
#define RATE 256 /* snapshots in it, for each process */
#define FIRST_RATE 1024 /* in its first one, when all stacks are new */
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

/* Pages of memory from that of an address on; how many could be read. */
static __always_inline __u32 copy_pages(__u8 *memory, __u64 address, const __u32 room)
{
	__u64 from = address & ~(GPUHEAP_PAGE - 1ULL);
	__u32 pages;

	for (pages = 0; pages < room; pages++)
		if (bpf_probe_read_user(memory + pages * GPUHEAP_PAGE, GPUHEAP_PAGE,
					(const void *)(from + pages * GPUHEAP_PAGE)))
			break;
	return pages;
}

static __always_inline void fill_event(struct snapshot_event *event, struct native *native,
				       __u64 key)
{
	event->type = EVENT_SNAPSHOT;
	event->tgid = bpf_get_current_pid_tgid() >> 32;
	event->image = native->image;
	event->native = key;
	event->time_ns = bpf_ktime_get_ns();
	event->trampoline = native->trampoline;
	event->end = native->end;
	event->registers = native->registers;
	event->taken = native->taken;
	event->other = native->other;
	event->other_end = native->other_end;
	event->other_pages = 0;
	event->entered = native->entered;
	event->all_entered = native->all_entered;
	bpf_probe_read_kernel(event->entries, sizeof(event->entries), native->entries);
	bpf_probe_read_kernel(event->returns, sizeof(event->returns), native->returns);
}

/* Returns -1 when the ring is full. `room` is a constant: kernels before 5.20 reserve no other sizes. */
static __always_inline int send_pages(struct native *native, __u64 key, const __u32 room)
{
	struct snapshot_event *event;

	event = bpf_ringbuf_reserve(&snapshots, sizeof(*event) + room * GPUHEAP_PAGE, 0);
	if (!event)
		return -1;
	fill_event(event, native, key);
	event->pages = copy_pages((__u8 *)(event + 1), native->registers.sp, room);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* The same with the stack that a signal has interrupted. */
static __always_inline int send_both(struct native *native, __u64 key)
{
	struct snapshot_event *event;
	__u8 *memory;

	event = bpf_ringbuf_reserve(&snapshots, sizeof(*event) + GPUHEAP_STACK_PAGES * GPUHEAP_PAGE,
				    0);
	if (!event)
		return -1;
	fill_event(event, native, key);
	memory = (__u8 *)(event + 1);
	event->pages = copy_pages(memory, native->registers.sp, GPUHEAP_SIGNAL_PAGES);
	event->other_pages = copy_pages(memory + GPUHEAP_SIGNAL_PAGES * GPUHEAP_PAGE, native->other,
					GPUHEAP_SIGNAL_PAGES);
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
	native->all_entered = find_evaluations(native, bpf_get_current_pid_tgid());
	if (native->other)
		error = send_both(native, key);
	else if (native->pages <= 1)
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

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bytes and objects: by site, by address, by pool.
 *
 *   map        key                   value                       removed by
 *   live       image, space, address bytes, site, owner, pool    free (at its entry, put back if it fails); the agent,
 *                                                                when the image or the owner has ended
 *   sites      who allocates, what   totals                      the agent, when it forgets an ended image
 *   full_sites the same, no stack    totals                      likewise; used when `sites` is full
 *   pools      image, pool           in use, peak, threshold     its destruction; the agent
 *   failures   image, CUresult       calls                       the agent
 *
 * A free removes the address before the driver's call runs. At its return another thread may already have been given the
 * same address by the driver, and removing it then would lose that allocation.
 *
 * A process has at most its share of `live`. What goes beyond is handed to the agent, allocation by allocation, so that
 * its frees are known too and no other process is the worse for it.
 */
#ifndef GPUHEAP_ACCOUNTING_BPF_H
#define GPUHEAP_ACCOUNTING_BPF_H

#include "threads.bpf.h"

#define OUT_OF_MEMORY 2 /* CUDA_ERROR_OUT_OF_MEMORY */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 20); /* the agent may set another size before loading */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct live_key);
	__type(value, struct live_value);
} live SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct site);
	__type(value, struct totals);
} sites SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct site);
	__type(value, struct totals);
} full_sites SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pool_key);
	__type(value, struct pool);
} pools SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct failure_key);
	__type(value, __u64);
} failures SEC(".maps");

/*
 * Contexts and graphs that are gone: the agent takes what these owned out of `live`, then their entries here. A map, as it
 * must not be lost when events are.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* id */
	__type(value, __u32); /* how many calls had failed for want of memory */
} ended_owners SEC(".maps");

/* Frees that the driver took while another thread's free of the same was under way, by number. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct live_key);
	__type(value, __u32);
} claims SEC(".maps");

__u32 claims_made = 0;

/* How many calls failed for want of memory. Each one is a moment of which the agent is told what was held. */
__u32 moment = 0;

/* Where there is no room for a site, the totals of all such sites of its process. */
static __noinline struct totals *new_totals(struct site *site)
{
	struct totals none = { .moment = moment };
	struct totals *totals;

	if (!site)
		return NULL;
	bpf_map_update_elem(&sites, site, &none, BPF_NOEXIST);
	totals = bpf_map_lookup_elem(&sites, site);
	if (totals)
		return totals;
	if (site->stack != STACK_NO_SITE)
		lost(LOSS_SITES_FULL);
	site->stack = STACK_NO_SITE;
	site->native = 0;
	site->tid = 0;
	bpf_map_update_elem(&full_sites, site, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&full_sites, site);
}

static __always_inline struct totals *totals_of(struct site *site)
{
	struct totals *totals = bpf_map_lookup_elem(&sites, site);

	return totals ? totals : new_totals(site);
}

/* Before a site changes for the first time after a moment: what it held then. */
static __always_inline void keep_moment(struct totals *totals)
{
	__u32 now = moment;

	if (totals->moment == now)
		return;
	totals->held_bytes = totals->allocated_bytes - totals->freed_bytes;
	totals->held_objects = totals->allocated_objects - totals->freed_objects;
	totals->moment = now;
}

static __always_inline struct totals *known_totals(struct site *site)
{
	return site->stack == STACK_NO_SITE ? bpf_map_lookup_elem(&full_sites, site)
					    : bpf_map_lookup_elem(&sites, site);
}

/* The pool has so much more in use, or less. */
static __always_inline void use_pool(__u64 image, __u64 address, __s64 bytes)
{
	struct pool_key key = { .pool = address, .image = image };
	struct pool *pool;

	if (address == NO_POOL)
		return;
	pool = bpf_map_lookup_elem(&pools, &key);
	if (!pool)
		return;
	ADD(pool->in_use, bytes);
	if (pool->in_use > pool->peak)
		pool->peak = pool->in_use;
}

static __noinline void charge(struct live_value *value)
{
	struct totals *totals;

	if (!value)
		return;
	totals = totals_of(&value->site);
	if (!totals)
		return;
	keep_moment(totals);
	ADD(totals->allocated_bytes, value->bytes);
	ADD(totals->allocated_objects, 1);
	use_pool(value->site.image, value->pool, value->bytes);
}

/* `sign` -1: it is not free after all. */
static __noinline void credit(struct live_value *value, __s64 sign)
{
	struct totals *totals;

	if (!value)
		return;
	totals = known_totals(&value->site);
	if (!totals)
		return;
	keep_moment(totals);
	ADD(totals->freed_bytes, value->bytes * sign);
	ADD(totals->freed_objects, sign);
	use_pool(value->site.image, value->pool, -(__s64)value->bytes * sign);
}

/* Of its own, so that a process that floods it takes nobody's events. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} spills SEC(".maps");

static __noinline void tell_spill(__u32 type, struct pending *pending)
{
	struct spill_event *event;

	if (!pending)
		return;
	event = bpf_ringbuf_reserve(&spills, sizeof(*event), 0);
	if (!event) {
		lost(LOSS_SPILL_FULL);
		return;
	}
	event->type = type;
	event->moment = moment;
	event->key = pending->key;
	event->value = pending->value;
	bpf_ringbuf_submit(event, 0);
}

/* A new holder of an address. One that is known already went with its owner, or was freed unseen. */
static __noinline void remember(struct thread *thread, struct pending *pending)
{
	struct live_value *before;
	struct live_value gone;
	struct image *image;
	long error = -1;
	__u32 tgid;

	if (!thread || !pending)
		return;
	if (!thread->full)
		error = bpf_map_update_elem(&live, &pending->key, &pending->value, BPF_NOEXIST);
	if (!error) {
		count_live(thread, 1);
		return;
	}
	before = bpf_map_lookup_elem(&live, &pending->key);
	if (before) {
		gone = *before;
		if (!bpf_map_lookup_elem(&ended_owners, &gone.owner))
			lost(LOSS_ADDRESS_REUSED);
		credit(&gone, 1);
		bpf_map_update_elem(&live, &pending->key, &pending->value, BPF_ANY);
		return;
	}
	tgid = bpf_get_current_pid_tgid() >> 32;
	image = bpf_map_lookup_elem(&images, &tgid);
	if (image)
		ADD(image->spilled, 1);
	settle_live(thread, tgid); /* others may have made room */
	tell_spill(EVENT_SPILL, pending);
}

#endif

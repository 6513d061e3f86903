/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Virtual memory management: physical memory behind handles.
 *
 *   map       key              value                                  removed by
 *   handles   image, handle    bytes, site, references, mappings      its last reference and mapping; the agent
 *   mappings  image, address   handle, its id, bytes                  the unmapping; the agent
 *
 * A release counts at its entry, and is taken back if it fails: the driver may give the handle's value to another thread
 * before the return is seen. The address of a mapping is the program's own choice: nobody uses it again before the
 * unmapping has returned, so that counts at its return. A mapping knows its handle by id.
 */
#ifndef GPUHEAP_HANDLES_BPF_H
#define GPUHEAP_HANDLES_BPF_H

#include "accounting.bpf.h"

#define UNMAP_STEP 32
#define UNMAP_STEPS 512 /* times UNMAP_STEP: mappings that one call can take away */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct handle_key);
	__type(value, struct handle);
} handles SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct handle_key); /* `value` is the address */
	__type(value, struct mapping);
} mappings SEC(".maps");

static __noinline void charge_handle(struct handle *handle, __s64 sign)
{
	struct live_value value = { .pool = NO_POOL };

	if (!handle || handle->site.kind == KIND_NOTHING)
		return;
	value.bytes = handle->bytes;
	value.site = handle->site;
	if (sign > 0)
		charge(&value);
	else
		credit(&value, 1);
	handle->site = value.site; /* where there was room for it */
}

/* A new handle, in pending->handle. One of the same value can only have gone unseen. */
static __noinline void add_handle(struct pending *pending, __u64 value)
{
	struct handle_key key = { .value = value };
	struct handle *before;

	if (!pending)
		return;
	key.image = pending->handle.site.image;
	before = bpf_map_lookup_elem(&handles, &key);
	if (before) {
		lost(LOSS_ADDRESS_REUSED);
		charge_handle(before, -1);
	}
	pending->handle.id = unique();
	pending->handle.references = 1;
	pending->handle.mappings = 0;
	charge_handle(&pending->handle, 1);
	if (bpf_map_update_elem(&handles, &key, &pending->handle, BPF_ANY))
		lost(LOSS_HANDLES_FULL);
}

/* Whether this took away the handle, because nothing refers to it and nothing is mapped; then it is free. */
static __noinline int drop_handle(struct handle_key *key, struct handle *handle)
{
	struct handle gone;

	if (!key || !handle || handle->references > 0 || handle->mappings > 0)
		return 0;
	gone = *handle;
	if (bpf_map_delete_elem(&handles, key)) /* of two threads one deletes it */
		return 0;
	charge_handle(&gone, -1);
	return 1;
}

static __noinline void handle_release_begins(struct pending *pending, __u64 image)
{
	struct handle_key key = { .image = image };
	struct handle *handle;

	if (!pending)
		return;
	key.value = pending->arguments[0];
	handle = bpf_map_lookup_elem(&handles, &key);
	if (!handle || handle->references <= 0)
		return;
	ADD(handle->references, -1);
	pending->handle = *handle;
	pending->known = drop_handle(&key, handle) ? KNOWN_HANDLE : KNOWN_REFERENCE;
}

static __noinline void handle_release_ends(struct pending *pending, __u64 image, int code)
{
	struct handle_key key = { .image = image };
	struct handle *handle;

	if (!pending)
		return;
	key.value = pending->arguments[0];
	if (pending->known == KNOWN_NOT) {
		lost(LOSS_UNKNOWN_RELEASE);
		return;
	}
	if (!code)
		return;
	handle = bpf_map_lookup_elem(&handles, &key);
	if (pending->known == KNOWN_HANDLE) {
		pending->handle.references = 1;
		charge_handle(&pending->handle, 1);
		bpf_map_update_elem(&handles, &key, &pending->handle, BPF_ANY);
	} else if (handle && handle->id == pending->handle.id) {
		ADD(handle->references, 1);
	}
}

static __noinline void handle_retained(__u64 image, __u64 value)
{
	struct handle_key key = { .value = value, .image = image };
	struct handle *handle = bpf_map_lookup_elem(&handles, &key);

	if (handle)
		ADD(handle->references, 1);
}

/* One mapping less. Returns its bytes, 0 if there is none at this address. */
static __noinline __u64 remove_mapping(__u64 image, __u64 address)
{
	struct handle_key key = { .value = address, .image = image };
	struct mapping *mapping = bpf_map_lookup_elem(&mappings, &key);
	struct mapping gone;
	struct handle *handle;

	if (!mapping)
		return 0;
	gone = *mapping;
	if (bpf_map_delete_elem(&mappings, &key))
		return gone.bytes;
	key.value = gone.handle;
	handle = bpf_map_lookup_elem(&handles, &key);
	if (handle && handle->id == gone.id) {
		ADD(handle->mappings, -1);
		drop_handle(&key, handle);
	}
	return gone.bytes;
}

/* How much an imported handle stands for is only said when it is mapped. */
static __always_inline void learn_bytes(struct handle *handle, __u64 bytes)
{
	struct totals *totals = known_totals(&handle->site);

	if (!totals)
		return;
	handle->bytes = bytes;
	ADD(totals->allocated_bytes, bytes);
}

/* Arguments of cuMemMap: address, size, offset, handle, flags. */
static __noinline void add_mapping(struct pending *pending, __u64 image)
{
	struct handle_key key = { .image = image };
	struct mapping mapping = {};
	struct handle *handle;

	if (!pending)
		return;
	remove_mapping(image, pending->arguments[0]);
	key.value = mapping.handle = pending->arguments[3];
	mapping.bytes = pending->arguments[1];
	handle = bpf_map_lookup_elem(&handles, &key);
	if (handle) {
		mapping.id = handle->id;
		ADD(handle->mappings, 1);
		if (handle->site.kind == KIND_IMPORTED && !handle->bytes)
			learn_bytes(handle, mapping.bytes);
	}
	key.value = pending->arguments[0];
	if (bpf_map_update_elem(&mappings, &key, &mapping, BPF_ANY))
		lost(LOSS_HANDLES_FULL);
}

/*
 * Takes away mappings one after the other, as far as UNMAP_STEP goes; `arguments` 0 and 1 of the call are where they begin
 * and how much is left. 1: done. A global function: the verifier looks at it once, not once for each turn of the loop.
 */
__noinline int unmap_step(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	struct pending *pending;
	__u64 bytes;

	if (!thread)
		return 1;
	pending = popped_call(thread);
	for (int i = 0; i < UNMAP_STEP; i++) {
		bytes = remove_mapping(thread->image, pending->arguments[0]);
		if (!bytes || bytes >= pending->arguments[1])
			return 1;
		pending->arguments[0] += bytes;
		pending->arguments[1] -= bytes;
	}
	return 0;
}

static __always_inline void remove_mappings(void)
{
	for (__u32 turn = 0; turn < UNMAP_STEPS; turn++)
		if (unmap_step())
			return;
	lost(LOSS_HANDLES_FULL);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls that free: the entry of `live` is taken out when they begin, and put back if they fail (accounting.bpf.h says why).
 *
 * Of two threads that free the same, one takes the entry out. The driver may do the other one's free and refuse this one's:
 * then a claim says so, and the entry is not put back. Each writes first and looks afterwards, so one of them sees the other.
 */
#ifndef GPUHEAP_FREES_BPF_H
#define GPUHEAP_FREES_BPF_H

#include "allocations.bpf.h"

static __always_inline int frees(__u32 call)
{
	switch (call) {
	case CALL_cuMemFree:
	case CALL_cuMemFree_v2:
	case CALL_cuMemFreeAsync:
	case CALL_cuMemFreeAsync_ptsz:
	case CALL_cuMemFreeHost:
	case CALL_cuMemHostUnregister:
	case CALL_cuArrayDestroy:
	case CALL_cuMipmappedArrayDestroy:
	case CALL_cuIpcCloseMemHandle:
	case CALL_cuDestroyExternalMemory:
		return 1;
	}
	return 0;
}

static __always_inline __u32 space_of(__u32 call)
{
	switch (call) {
	case CALL_cuMemFreeHost:
		return SPACE_HOST;
	case CALL_cuMemHostUnregister:
		return SPACE_REGISTERED;
	case CALL_cuArrayDestroy:
	case CALL_cuMipmappedArrayDestroy:
		return SPACE_ARRAY;
	case CALL_cuIpcCloseMemHandle:
		return SPACE_IPC;
	case CALL_cuDestroyExternalMemory:
		return SPACE_EXTERNAL;
	}
	return SPACE_DEVICE;
}

/* The address is not in `live`. */
static __noinline void free_of_other(struct pending *pending)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct image *image = bpf_map_lookup_elem(&images, &tgid);

	if (!pending)
		return;
	if (image && image->spilled) {
		pending->known = KNOWN_SPILLED;
		tell_spill(EVENT_SPILL_FREE, pending);
	} else if (pending->key.space == SPACE_DEVICE) {
		pending->key.space = SPACE_GRAPH; /* which keeps it until it is destroyed */
		if (bpf_map_lookup_elem(&live, &pending->key))
			pending->known = KNOWN_NOTHING;
		pending->key.space = SPACE_DEVICE;
	}
}

static __noinline void free_begins(struct thread *thread, struct pending *pending)
{
	struct live_value *found;

	if (!thread || !pending)
		return;
	if (pending->call == CALL_cuMemFree)
		pending->arguments[0] = (__u32)pending->arguments[0];
	pending->key.address = pending->arguments[0];
	pending->key.image = thread->image;
	pending->key.space = space_of(pending->call);
	pending->claims = claims_made;
	if (!pending->key.address) { /* allowed, and does nothing */
		pending->known = KNOWN_NOTHING;
		return;
	}
	found = bpf_map_lookup_elem(&live, &pending->key);
	if (!found) {
		free_of_other(pending);
		return;
	}
	if (found->reopened) {
		ADD(found->reopened, -1);
		pending->known = KNOWN_REOPENED;
		return;
	}
	pending->value = *found;
	if (found->returned) /* claims since it was first taken count */
		pending->claims = found->returned - 1;
	/* Of two threads that free the same address, one deletes it. */
	if (bpf_map_delete_elem(&live, &pending->key))
		return;
	pending->known = KNOWN_LIVE;
	credit(&pending->value, 1);
	count_live(thread, -1);
}

/* A free that the driver took, of what was not in `live`: another thread's free of the same may have it, and fail. */
static __noinline void claim(struct thread *thread, struct pending *pending)
{
	struct live_value *found;
	__u32 number;

	if (!thread || !pending)
		return;
	ADD(claims_made, 1);
	number = claims_made;
	bpf_map_update_elem(&claims, &pending->key, &number, BPF_ANY);
	found = bpf_map_lookup_elem(&live, &pending->key);
	if (found && found->returned) {
		pending->value = *found;
		if (!bpf_map_delete_elem(&live, &pending->key)) {
			credit(&pending->value, 1);
			count_live(thread, -1);
			return;
		}
	}
	lost(LOSS_UNKNOWN_FREE);
}

/* A free that failed: the memory is there, unless the same free of another thread was taken meanwhile. */
static __noinline void put_back(struct thread *thread, struct pending *pending)
{
	__u32 *claimed;

	if (!thread || !pending)
		return;
	pending->value.returned = pending->claims + 1;
	credit(&pending->value, -1);
	if (bpf_map_update_elem(&live, &pending->key, &pending->value, BPF_ANY)) {
		lost(LOSS_LIVE_FULL);
		return;
	}
	count_live(thread, 1);
	if (pending->claims == claims_made)
		return;
	claimed = bpf_map_lookup_elem(&claims, &pending->key);
	if (!claimed || (__s32)(*claimed - pending->claims) <= 0)
		return;
	if (!bpf_map_delete_elem(&live, &pending->key)) { /* else the other did it */
		credit(&pending->value, 1);
		count_live(thread, -1);
		count_loss(LOSS_UNKNOWN_FREE, -1);
	}
}

static __noinline void free_ends(struct thread *thread, struct pending *pending, int code)
{
	if (!thread || !pending)
		return;
	if (pending->known == KNOWN_NOT && !code)
		claim(thread, pending);
	if (!code)
		return;
	if (pending->known == KNOWN_SPILLED)
		tell_spill(EVENT_SPILL_KEEP, pending);
	if (pending->known == KNOWN_REOPENED)
		opened_again(pending);
	if (pending->known == KNOWN_LIVE)
		put_back(thread, pending);
}

#endif

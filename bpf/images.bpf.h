/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Process images: made at the first probed call, ended by exec and by the exit of the last thread. */
#ifndef GPUHEAP_IMAGES_BPF_H
#define GPUHEAP_IMAGES_BPF_H

#include "losses.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* tgid */
	__type(value, struct image);
} images SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* tgid; the agent writes it, or the probe of an interpreter's start */
	__type(value, struct interpreter);
} interpreters SEC(".maps");

/* Of Pythons that do not count themselves (python.bpf.h); the agent begins an entry when it has set the probe. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* tgid */
	__type(value, struct code_deaths);
} code_deaths SEC(".maps");

/* Processes that are older than the tracing, and have exec'ed since: their memory is known from its beginning. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* tgid */
	__type(value, __u64); /* start_ns */
} renewed SEC(".maps");

static __always_inline __u64 start_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, group_leader, start_boottime);
}

static __always_inline __u64 tracing_began(void)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);

	return set ? set->began_ns : 0;
}

static __always_inline void tell_image(__u32 type, __u32 tgid, const struct image *image)
{
	struct image_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		lost(LOSS_RING_FULL);
		return;
	}
	event->type = type;
	event->tgid = tgid;
	event->image = *image;
	bpf_get_current_comm(event->name, sizeof(event->name));
	bpf_ringbuf_submit(event, 0);
}

/* The calling process's image; NULL when there is no room for it. */
static __noinline struct image *image_of(__u32 tgid)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct image made = {};
	struct image *image;
	__u64 *start;

	image = bpf_map_lookup_elem(&images, &tgid);
	if (image)
		return image;
	made.start_ns = start_of(task);
	made.parent = BPF_CORE_READ(task, real_parent, tgid);
	made.id = unique();
	start = bpf_map_lookup_elem(&renewed, &tgid);
	made.late = made.start_ns < tracing_began() && !(start && *start == made.start_ns);
	if (!bpf_map_update_elem(&images, &tgid, &made, BPF_NOEXIST))
		tell_image(EVENT_IMAGE, tgid, &made);
	image = bpf_map_lookup_elem(&images, &tgid); /* or another thread was first */
	if (!image)
		lost(LOSS_IMAGES_FULL);
	return image;
}

static __always_inline void end_image(__u32 tgid)
{
	struct image *image = bpf_map_lookup_elem(&images, &tgid);
	struct image ended;

	bpf_map_delete_elem(&interpreters, &tgid);
	bpf_map_delete_elem(&code_deaths, &tgid);
	if (!image)
		return;
	ended = *image;
	bpf_map_delete_elem(&images, &tgid);
	tell_image(EVENT_IMAGE_END, tgid, &ended);
}

static __always_inline void renew_image(__u32 tgid)
{
	__u64 start = start_of((void *)bpf_get_current_task());

	end_image(tgid);
	if (start < tracing_began())
		bpf_map_update_elem(&renewed, &tgid, &start, BPF_ANY);
}

#endif

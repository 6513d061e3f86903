/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters of what is lost or blurred, and the ring buffer of events to the agent. */
#ifndef GPUHEAP_LOSSES_BPF_H
#define GPUHEAP_LOSSES_BPF_H

#include "gpuheap.h"
#include "kernel.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSS_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
} events SEC(".maps");

/* Written once by the agent, before any probe is set. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

static __always_inline void count_loss(__u32 reason, __s64 times)
{
	__u64 *count = bpf_map_lookup_elem(&losses, &reason);

	if (count)
		ADD(*count, times); /* where programs can be preempted, two can be on one CPU */
}

static __always_inline void lost(__u32 reason)
{
	count_loss(reason, 1);
}

#endif

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
	__uint(max_entries, 8 << 20);
} events SEC(".maps");

static __always_inline void lost(__u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&losses, &reason);

	if (count)
		(*count)++;
}

#endif

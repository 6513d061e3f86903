/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Allocating calls that fail: counted, and for want of memory told to the agent with their stack. */
#ifndef GPUHEAP_FAILURES_BPF_H
#define GPUHEAP_FAILURES_BPF_H

#include "native.bpf.h"
#include "owners.bpf.h"
#include "python.bpf.h"

static __always_inline void count_failure(__u64 image, __u32 code)
{
	struct failure_key key = { .image = image, .code = code };
	__u64 *calls = bpf_map_lookup_elem(&failures, &key);
	__u64 none = 0;

	if (!calls) {
		bpf_map_update_elem(&failures, &key, &none, BPF_NOEXIST);
		calls = bpf_map_lookup_elem(&failures, &key);
	}
	if (calls)
		ADD(*calls, 1);
	else
		lost(LOSS_FAILURES_FULL);
}

/* Who: the same for every kind. */
static __always_inline void sign(struct site *site, struct thread *thread, __u32 call, __u64 id)
{
	site->image = thread->image;
	site->tid = id;
	site->call = call;
	site->stack = python_stack();
	site->native = native_stack();
}

static __noinline void out_of_memory(struct site *site, __u64 asked)
{
	struct memory_event *event;

	if (!site)
		return;
	ADD(moment, 1);
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		lost(LOSS_RING_FULL);
		return;
	}
	event->type = EVENT_OUT_OF_MEMORY;
	event->moment = moment;
	event->asked = asked;
	event->site = *site;
	bpf_ringbuf_submit(event, 0);
}

static __noinline void failed(struct thread *thread, struct pending *pending, struct site *site,
			      __u64 asked, int code)
{
	__u64 id = bpf_get_current_pid_tgid();

	if (!thread || !pending || !site)
		return;
	count_failure(thread->image, code);
	if (code != OUT_OF_MEMORY)
		return;
	sign(site, thread, pending->call, id);
	out_of_memory(site, asked);
}

#endif

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Accounts for GPU memory that processes ask of the CUDA driver.
 *
 * Probed, in every libcuda on the machine: cuMemAlloc_v2 and cuMemFree_v2, at entry and at return; in every CPython: the
 * start of its initialisation. Tracepoints: exec and exit.
 *
 *   map       key                 value              removed by
 *   pending   thread              the call under way its return; the thread's exit
 *   live      address, image      bytes, site        free (at its entry, put back if it fails); the agent after the end
 *   sites     who allocates       totals             the agent, when it forgets an ended image
 *   failures  image, CUresult     calls              the agent, likewise
 *
 * A free removes the address before the driver's call runs. At its return another thread may already have been given the
 * same address by the driver, and removing it then would lose that allocation.
 *
 * Kernel 5.15 or newer: bpf_get_attach_cookie, and atomic operations that return the old value.
 */
#include "python.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct allocation {
	__u64 result; /* where the driver puts the address */
	__u64 bytes;
	__u32 image;
	__u32 pad;
};

struct release {
	struct live_key key;
	struct live_value value;
	__u64 known; /* 0: the address is not one of ours */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* tgid and tid */
	__type(value, struct allocation);
} pending_allocations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* tgid and tid */
	__type(value, struct release);
} pending_frees SEC(".maps");

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
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct failure_key);
	__type(value, __u64);
} failures SEC(".maps");

/* By cookie: what the agent found in the file of an interpreter, for processes that start from now on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct interpreter);
} interpreter_files SEC(".maps");

/* Keep the types of events in the object's BTF, where the agent's mirrors are compared with them. */
struct code_event *code_event_type __attribute__((unused));
struct image_event *image_event_type __attribute__((unused));

static __always_inline struct totals *totals_of(const struct site *site)
{
	struct totals *totals = bpf_map_lookup_elem(&sites, site);
	struct totals none = {};

	if (totals)
		return totals;
	bpf_map_update_elem(&sites, site, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sites, site);
}

static __always_inline void count_failure(__u32 image, __u32 code)
{
	struct failure_key key = { .image = image, .code = code };
	__u64 *calls = bpf_map_lookup_elem(&failures, &key);
	__u64 none = 0;

	if (!calls) {
		bpf_map_update_elem(&failures, &key, &none, BPF_NOEXIST);
		calls = bpf_map_lookup_elem(&failures, &key);
	}
	if (calls)
		__sync_fetch_and_add(calls, 1);
	else
		lost(LOSS_FAILURES_FULL);
}

static __always_inline void allocation_begins(__u64 result, __u64 bytes)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct allocation allocation = { .result = result, .bytes = bytes };

	allocation.image = image_of(thread >> 32);
	if (!allocation.image)
		return;
	if (bpf_map_update_elem(&pending_allocations, &thread, &allocation, BPF_ANY))
		lost(LOSS_PENDING_FULL);
}

static __always_inline void allocation_succeeded(const struct allocation *allocation, __u64 thread)
{
	struct live_key key = { .image = allocation->image };
	struct live_value value = { .bytes = allocation->bytes };
	struct totals *totals;

	value.site.image = allocation->image;
	value.site.tid = thread;
	value.site.stack = python_stack(thread >> 32, thread, allocation->image);
	totals = totals_of(&value.site);
	if (!totals) {
		lost(LOSS_SITES_FULL);
		return;
	}
	__sync_fetch_and_add(&totals->allocated_bytes, value.bytes);
	__sync_fetch_and_add(&totals->allocated_objects, 1);
	if (READ(key.address, allocation->result)) {
		lost(LOSS_FAULT);
		return;
	}
	if (bpf_map_update_elem(&live, &key, &value, BPF_ANY))
		lost(LOSS_LIVE_FULL);
}

static __always_inline void allocation_ends(int code)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct allocation *found = bpf_map_lookup_elem(&pending_allocations, &thread);
	struct allocation allocation;

	if (!found) {
		lost(LOSS_UNMATCHED_RETURN);
		return;
	}
	allocation = *found;
	bpf_map_delete_elem(&pending_allocations, &thread);
	if (code)
		count_failure(allocation.image, code);
	else
		allocation_succeeded(&allocation, thread);
}

static __always_inline void free_begins(__u64 address)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct release release = { .key.address = address };
	struct live_value *found;
	struct totals *totals;

	if (!address) /* allowed, and does nothing */
		return;
	release.key.image = image_of(thread >> 32);
	if (!release.key.image)
		return;
	found = bpf_map_lookup_elem(&live, &release.key);
	if (found) {
		release.value = *found;
		/* Of two threads that free the same address, one deletes it. */
		release.known = !bpf_map_delete_elem(&live, &release.key);
	}
	if (release.known) {
		totals = totals_of(&release.value.site);
		if (totals) {
			__sync_fetch_and_add(&totals->freed_bytes, release.value.bytes);
			__sync_fetch_and_add(&totals->freed_objects, 1);
		}
	}
	if (bpf_map_update_elem(&pending_frees, &thread, &release, BPF_ANY))
		lost(LOSS_PENDING_FULL);
}

static __always_inline void free_ends(int code)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct release *found = bpf_map_lookup_elem(&pending_frees, &thread);
	struct release release;
	struct totals *totals;

	if (!found) /* of the null address, or begun before tracing */
		return;
	release = *found;
	bpf_map_delete_elem(&pending_frees, &thread);
	if (!release.known) {
		if (!code)
			lost(LOSS_UNKNOWN_FREE);
		return;
	}
	if (!code)
		return;
	totals = totals_of(&release.value.site);
	if (totals) {
		__sync_fetch_and_sub(&totals->freed_bytes, release.value.bytes);
		__sync_fetch_and_sub(&totals->freed_objects, 1);
	}
	if (bpf_map_update_elem(&live, &release.key, &release.value, BPF_ANY))
		lost(LOSS_LIVE_FULL);
}

SEC("uprobe")
int BPF_KPROBE(cu_mem_alloc_entry, __u64 result, __u64 bytes)
{
	allocation_begins(result, bytes);
	return 0;
}

SEC("uretprobe")
int BPF_KRETPROBE(cu_mem_alloc_return, int code)
{
	allocation_ends(code);
	return 0;
}

SEC("uprobe")
int BPF_KPROBE(cu_mem_free_entry, __u64 address)
{
	free_begins(address);
	return 0;
}

SEC("uretprobe")
int BPF_KRETPROBE(cu_mem_free_return, int code)
{
	free_ends(code);
	return 0;
}

/* An interpreter starts: its place in memory follows from where the probe is, before it can have allocated anything. */
SEC("uprobe")
int interpreter_starts(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	struct interpreter *file = bpf_map_lookup_elem(&interpreter_files, &cookie);
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct interpreter interpreter;

	if (!file)
		return 0;
	interpreter = *file;
	interpreter.runtime += PT_REGS_IP(ctx);
	if (bpf_map_update_elem(&interpreters, &tgid, &interpreter, BPF_ANY))
		lost(LOSS_IMAGES_FULL);
	return 0;
}

/* A forked child runs the same interpreter at the same place. */
SEC("raw_tracepoint/sched_process_fork")
int process_forks(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent_task = (void *)ctx->args[0];
	struct task_struct *child_task = (void *)ctx->args[1];
	__u32 parent = BPF_CORE_READ(parent_task, tgid);
	__u32 child = BPF_CORE_READ(child_task, tgid);
	struct interpreter *interpreter;

	if (parent == child) /* a thread */
		return 0;
	interpreter = bpf_map_lookup_elem(&interpreters, &parent);
	if (interpreter && bpf_map_update_elem(&interpreters, &child, interpreter, BPF_ANY))
		lost(LOSS_IMAGES_FULL);
	return 0;
}

SEC("raw_tracepoint/sched_process_exec")
int process_execs(void *ctx)
{
	end_image(bpf_get_current_pid_tgid() >> 32);
	return 0;
}

SEC("raw_tracepoint/sched_process_exit")
int thread_exits(void *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 thread = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&pending_allocations, &thread);
	bpf_map_delete_elem(&pending_frees, &thread);
	if (!BPF_CORE_READ(task, signal, live.counter)) /* the last thread */
		end_image(thread >> 32);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types that the programs look into; libbpf finds the real offsets at load time (CO-RE).
 */
#ifndef GPUHEAP_KERNEL_BPF_H
#define GPUHEAP_KERNEL_BPF_H

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define CORE __attribute__((preserve_access_index))

#define EEXIST 17

#define READ(into, from) bpf_probe_read_user(&(into), sizeof(into), (const void *)(from))

/* Without the old value: kernels before 5.12 have no other. */
#define ADD(counter, amount) ((void)__sync_fetch_and_add(&(counter), (amount)))

struct thread_struct {
	unsigned long fsbase;
} CORE;

struct signal_struct {
	struct {
		int counter;
	} live;
} CORE;

struct xol_area {
	unsigned long vaddr;
} CORE;

struct uprobes_state {
	struct xol_area *xol_area;
} CORE;

struct mm_struct {
	unsigned long exec_vm;
	unsigned long start_code;
	unsigned long end_code;
	unsigned long start_stack;
	struct uprobes_state uprobes_state;
} CORE;

struct return_instance {
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
} CORE;

struct uprobe_task {
	struct return_instance *return_instances;
} CORE;

struct task_struct {
	struct mm_struct *mm;
	int tgid;
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct signal_struct *signal;
	struct uprobe_task *utask;
	unsigned long sas_ss_sp;
	unsigned long sas_ss_size;
	struct thread_struct thread;
} CORE;

/*
 * A number that is never given again: nanoseconds, and the CPU, as two of them can be at the same place in time. Wraps in
 * 200 days.
 */
static __always_inline __u64 unique(void)
{
	return (bpf_ktime_get_ns() << 10) | (bpf_get_smp_processor_id() & 1023);
}

static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 29);
}

#endif

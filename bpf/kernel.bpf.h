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

struct thread_struct {
	unsigned long fsbase;
} CORE;

struct signal_struct {
	struct {
		int counter;
	} live;
} CORE;

struct task_struct {
	int tgid;
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct signal_struct *signal;
	struct thread_struct thread;
} CORE;

#endif

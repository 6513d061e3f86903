// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The floor: what an entry and a return probe cost when their programs do nothing. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe")
int empty_entry(void *ctx)
{
	return 0;
}

SEC("uretprobe")
int empty_return(void *ctx)
{
	return 0;
}

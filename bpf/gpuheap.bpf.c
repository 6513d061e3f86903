// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Accounts for GPU memory that processes ask of the CUDA driver.
 *
 * Probed, in every libcuda on the machine: the functions of GPUHEAP_CALLS (gpuheap.h), at entry and at return; in every
 * CPython: the start of its initialisation. Tracepoints: fork, exec and exit.
 *
 *   allocations.bpf.h  calls that allocate
 *   frees.bpf.h        calls that free
 *   failures.bpf.h     calls that fail
 *   accounting.bpf.h   bytes and objects by site, address and pool
 *   handles.bpf.h      virtual memory management
 *   owners.bpf.h       contexts, graphs, and the device of a thread
 *   pools.bpf.h        stream-ordered pools
 *   states.bpf.h       the Python state of a thread
 *   python.bpf.h       the Python stack of a thread
 *   codes.bpf.h        the code objects on it
 *   native.bpf.h       its native stack
 *   threads.bpf.h      the calls under way
 *   images.bpf.h       processes
 *   losses.bpf.h       what could not be kept
 *
 * One program sees all calls begin, another all return: which function it is, the probe's cookie says. Kernels before 5.15
 * have no cookies; there each function has an entry program of its own (enter_NAME), and a return belongs to the call
 * that began last.
 *
 * Kernel 5.10 or newer: the ring buffer is of 5.8.
 */
#include "frees.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

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

struct memory_event *memory_event_type __attribute__((unused));
struct spill_event *spill_event_type __attribute__((unused));
struct snapshot_event *snapshot_event_type __attribute__((unused));
struct same_stack_event *same_stack_event_type __attribute__((unused));
struct text_event *text_event_type __attribute__((unused));
struct text *text_type __attribute__((unused));

static __always_inline int call_begins(struct pt_regs *ctx, __u32 call)
{
	__u64 id = bpf_get_current_pid_tgid(), hash;
	struct thread *thread = thread_of(id);
	struct pending *pending;
	__u64 *bytes;

	if (!thread || call == CALL_cuInit)
		return 0;
	pending = push_call(thread, call, PT_REGS_SP(ctx));
	if (pending->known == KNOWN_FORWARDED)
		return 0;
	pending->arguments[0] = PT_REGS_PARM1(ctx);
	pending->arguments[1] = PT_REGS_PARM2(ctx);
	pending->arguments[2] = PT_REGS_PARM3(ctx);
	pending->arguments[3] = PT_REGS_PARM4(ctx);
	pending->arguments[4] = PT_REGS_PARM5(ctx);
	if (frees(call)) {
		free_begins(thread, pending);
	} else if (call == CALL_cuMemRelease) {
		handle_release_begins(pending, thread->image);
	} else if (call == CALL_cuIpcOpenMemHandle_v2) {
		/* The handle is passed by value: on the stack, above the return address. */
		hash = ipc_digest(PT_REGS_SP(ctx) + 8);
		bytes = bpf_map_lookup_elem(&exports, &hash);
		pending->arguments[4] = bytes ? *bytes : 0;
	}
	return 0;
}

/* Calls that neither free nor allocate at an address. A global function: the verifier looks at it once. */
__noinline int other_call_returns(int code)
{
	__u64 id = bpf_get_current_pid_tgid(), handle = 0;
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	struct pending *pending;

	if (!thread)
		return 0;
	pending = popped_call(thread);
	switch (pending->call) {
	case CALL_cuMemRelease:
		handle_release_ends(pending, thread->image, code);
		return 0;
	case CALL_cuMemCreate:
	case CALL_cuMemImportFromShareableHandle:
	case CALL_cuMulticastCreate:
		handle_made(thread, pending, code);
		return 0;
	}
	if (code)
		return 0;
	switch (pending->call) {
	case CALL_cuMemMap:
		add_mapping(pending, thread->image);
		break;
	case CALL_cuMemUnmap:
		remove_mappings();
		break;
	case CALL_cuMemRetainAllocationHandle:
		if (!READ(handle, pending->arguments[0]))
			handle_retained(thread->image, handle);
		break;
	case CALL_cuIpcGetMemHandle:
		exported(thread, pending);
		break;
	default:
		context_call(thread, pending);
		pool_call(thread, pending);
	}
	return 0;
}

static __always_inline void keep_registers(struct registers *kept, struct pt_regs *ctx)
{
	kept->ip = PT_REGS_IP(ctx);
	kept->sp = PT_REGS_SP(ctx);
	kept->bp = PT_REGS_FP(ctx);
	kept->bx = ctx->rbx;
	kept->r12 = ctx->r12;
	kept->r13 = ctx->r13;
	kept->r14 = ctx->r14;
	kept->r15 = ctx->r15;
}

static __always_inline int call_returns(struct pt_regs *ctx, __u32 call)
{
	int code = PT_REGS_RC(ctx);
	__u64 id = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	struct pending *pending;
	int result;

	if (!thread) {
		lost(LOSS_UNMATCHED_RETURN);
		return 0;
	}
	pending = pop_call(thread, call);
	if (!pending || pending->known == KNOWN_FORWARDED)
		return 0;
	if (frees(pending->call)) {
		free_ends(thread, pending, code);
		return 0;
	}
	keep_registers(&thread->registers, ctx);
	result = allocation(thread, pending);
	if (!result)
		return other_call_returns(code);
	if (code)
		failed(thread, pending, &pending->value.site, pending->value.bytes, code);
	else
		allocated(thread, pending, result);
	return 0;
}

SEC("uprobe")
int enter(struct pt_regs *ctx)
{
	return call_begins(ctx, bpf_get_attach_cookie(ctx));
}

SEC("uretprobe")
int leave(struct pt_regs *ctx)
{
	return call_returns(ctx, bpf_get_attach_cookie(ctx));
}

/* For kernels without cookies. */
#define ENTER(number, name)                      \
	SEC("uprobe")                            \
	int enter_##name(struct pt_regs *ctx)    \
	{                                        \
		return call_begins(ctx, number); \
	}
GPUHEAP_CALLS(ENTER)

SEC("uretprobe")
int leave_last(struct pt_regs *ctx)
{
	return call_returns(ctx, 0);
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

/* A code object is about to be freed. Set for one process at a time: others pay nothing. */
SEC("uprobe/of_one_process")
int code_dies(struct pt_regs *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct code_deaths *deaths = bpf_map_lookup_elem(&code_deaths, &tgid);

	if (deaths)
		ADD(deaths->count, 1);
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

static __always_inline void forget_thread(__u64 id)
{
	bpf_map_delete_elem(&threads, &id);
	bpf_map_delete_elem(&walks, &id);
	bpf_map_delete_elem(&natives, &id);
}

/* The thread that execs goes on with the id of the process; the others have exited. */
SEC("raw_tracepoint/sched_process_exec")
int process_execs(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = ctx->args[1];

	forget_thread(id);
	forget_thread((id & ~0xffffffffULL) | tid);
	renew_image(id >> 32);
	return 0;
}

SEC("raw_tracepoint/sched_process_exit")
int thread_exits(void *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	__u32 tgid = id >> 32;

	if (thread && thread->live)
		settle_live(thread, id >> 32);
	forget_thread(id);
	if ((__u32)id == tgid) /* the kernel finds the process of code_dies by this thread */
		bpf_map_delete_elem(&code_deaths, &tgid);
	if (!BPF_CORE_READ(task, signal, live.counter)) /* the last thread */
		end_image(id >> 32);
	return 0;
}

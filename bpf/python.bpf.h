/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of the calling thread, read from the process's memory (CPython 3.11 and newer).
 *
 * The thread state is the one whose thread_id is the thread's pthread_self(), which glibc and musl keep in the FS base: that
 * holds inside pid namespaces, and whether or not the thread has the GIL (callers release it before they allocate).
 *
 * Code objects are described to the agent once, by an event. A freed one's memory is used again, often with the same
 * strings at the same addresses, so pointers tell nothing. Each sight is checked by the number that CPython 3.12 and newer
 * give every code object (co_version), else by a digest of what is shown: names and line table. A difference makes a new
 * generation.
 */
#ifndef GPUHEAP_PYTHON_BPF_H
#define GPUHEAP_PYTHON_BPF_H

#include "images.bpf.h"

#define MAX_THREADS 512
#define FRAME_BYTES 80 /* covers the fields of _PyInterpreterFrame that are read */
#define CODE_BYTES 160 /* and of PyCodeObject */
#define STRING_HASH 24 /* PyASCIIObject.hash, 3.8 to 3.15 */
#define OWNED_BY_C 3 /* entry frames of the interpreter; not a Python function */

#define READ(into, from) bpf_probe_read_user(&(into), sizeof(into), (const void *)(from))
#define U64_AT(buffer, offset) (*(__u64 *)((buffer) + ((offset) & 0xf8)))
#define U32_AT(buffer, offset) (*(__u32 *)((buffer) + ((offset) & 0xfc)))
#define U8_AT(buffer, offset) (*(__u8 *)((buffer) + ((offset) & 0xff)))

struct code_key {
	__u64 code;
	__u32 image;
	__u32 pad;
};

struct code_value {
	__u64 name;
	__u64 file;
	__u64 lines;
	__u64 identity; /* co_version, or a digest */
	__u32 first_line;
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct code_key);
	__type(value, struct code_value);
} codes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* hash of image and frames */
	__type(value, struct stack);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32); /* tid */
	__type(value, __u64); /* its PyThreadState; checked at each use */
} thread_states SEC(".maps");

/* Raised for every new description, so that one that was evicted is never mistaken for its successor. */
__u32 last_generation = 0;

struct walk {
	struct interpreter interpreter;
	struct stack stack;
	__u64 frame;
	__u64 hash;
	__u32 image;
	__u32 tgid;
	__u8 frame_bytes[256];
	__u8 code_bytes[256];
};

/* Probes of perf events run with preemption disabled: the walk of a CPU is its own. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 29);
}

/* Copy a PyUnicode's characters, as many as fit. Returns -1 on a fault. */
static __noinline int read_string(struct interpreter *at, __u64 string, __u8 *into, __u32 *length,
				  __u32 *state)
{
	__u64 characters = 0, data, bytes;
	__u32 bits = 0;

	if (!at || !into || !length || !state)
		return -1;
	if (READ(characters, string + at->string_length) || READ(bits, string + at->string_state))
		return -1;
	*length = characters;
	*state = bits;
	/* PyASCIIObject.state: kind is bits 2 to 4, ascii is bit 6 (3.8 to 3.15, builds with a GIL). */
	data = string + ((bits >> 6) & 1 ? at->string_ascii : at->string_compact);
	bytes = characters * ((bits >> 2) & 7);
	if (bytes > GPUHEAP_NAME_BYTES - 1)
		bytes = GPUHEAP_NAME_BYTES - 1;
	asm volatile("%0 &= 255"
		     : "+r"(bytes)); /* for the verifier: clang 14 loses the bound above */
	return bpf_probe_read_user(into, bytes, (const void *)data);
}

/*
 * A digest of memory, at most GPUHEAP_LINES_BYTES of it. What cannot be read is left out: describing the object will fail
 * at the same place, and be counted there. A global function: verified once.
 */
__noinline __u64 digest(__u64 address, __u64 bytes)
{
	__u64 hash = bytes, words[8];

	for (__u32 chunk = 0; chunk < GPUHEAP_LINES_BYTES / sizeof(words); chunk++) {
		__u64 rest = bytes - chunk * sizeof(words);

		if (chunk * sizeof(words) >= bytes)
			break;
		__builtin_memset(words, 0, sizeof(words));
		if (rest > sizeof(words))
			rest = sizeof(words);
		asm volatile("%0 &= 127"
			     : "+r"(rest)); /* for the verifier: clang 14 loses the bound above */
		if (rest > sizeof(words))
			break;
		if (bpf_probe_read_user(words, rest,
					(const void *)(address + chunk * sizeof(words))))
			break;
		for (int i = 0; i < 8; i++)
			hash = mix(hash, words[i]);
	}
	return hash;
}

/* CPython keeps a string's hash once it was asked for, which interned strings always were. */
static __always_inline __u64 string_digest(const struct interpreter *at, __u64 string)
{
	__u64 hash = -1ULL, length = 0;
	__u32 bits = 0;

	if (!READ(hash, string + STRING_HASH) && hash != -1ULL)
		return hash;
	if (READ(length, string + at->string_length) || READ(bits, string + at->string_state))
		return 0;
	if (length > GPUHEAP_NAME_BYTES)
		length = GPUHEAP_NAME_BYTES;
	return digest(string + ((bits >> 6) & 1 ? at->string_ascii : at->string_compact),
		      length * ((bits >> 2) & 7));
}

static __noinline __u64 identity_of(struct walk *walk, const struct code_value *value)
{
	__u64 size = 0;
	__u32 version;

	if (!walk || !value)
		return 0;
	if (walk->interpreter.code_version) {
		version = U32_AT(walk->code_bytes, walk->interpreter.code_version);
		if (version) /* 0: the 32-bit counter of this process has run out */
			return version;
	}
	READ(size, value->lines + 16); /* PyVarObject.ob_size */
	return mix(mix(digest(value->lines + 32, size),
		       string_digest(&walk->interpreter, value->name)),
		   string_digest(&walk->interpreter, value->file));
}

static __noinline int describe(struct walk *walk, __u64 code, const struct code_value *value)
{
	struct code_event *event;
	__u64 size = 0;
	int fault = 0;

	if (!walk || !value)
		return -1;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		lost(LOSS_RING_FULL);
		return -1;
	}
	event->type = EVENT_CODE;
	event->image = walk->image;
	event->tgid = walk->tgid;
	event->code = code;
	event->generation = value->generation;
	event->first_line = value->first_line;
	event->lines_address = value->lines + 32; /* PyBytesObject.ob_sval */
	event->name_length = event->name_state = event->file_length = event->file_state = 0;
	fault |= read_string(&walk->interpreter, value->name, event->name, &event->name_length,
			     &event->name_state);
	fault |= read_string(&walk->interpreter, value->file, event->file, &event->file_length,
			     &event->file_state);
	fault |= READ(size, value->lines + 16); /* PyVarObject.ob_size */
	event->lines_bytes = size;
	if (size > GPUHEAP_LINES_BYTES)
		size = GPUHEAP_LINES_BYTES;
	asm volatile("%0 &= 8191" : "+r"(size));
	if (size > GPUHEAP_LINES_BYTES)
		size = GPUHEAP_LINES_BYTES;
	fault |= bpf_probe_read_user(event->lines, size, (const void *)(value->lines + 32));
	bpf_ringbuf_submit(event, 0);
	if (fault)
		lost(LOSS_FAULT);
	return 0;
}

/* The generation of the code object, described if it is new; 0 when it cannot be read or described. */
static __noinline __u32 generation_of(struct walk *walk, __u64 code)
{
	struct code_key key = {};
	struct code_value value = {};
	struct code_value *known;

	if (!walk)
		return 0;
	if (bpf_probe_read_user(walk->code_bytes, CODE_BYTES, (const void *)code)) {
		lost(LOSS_FAULT);
		return 0;
	}
	value.name = U64_AT(walk->code_bytes, walk->interpreter.code_name);
	value.file = U64_AT(walk->code_bytes, walk->interpreter.code_file);
	value.lines = U64_AT(walk->code_bytes, walk->interpreter.code_lines);
	value.first_line = U32_AT(walk->code_bytes, walk->interpreter.code_first_line);
	value.identity = identity_of(walk, &value);
	key.code = code;
	key.image = walk->image;
	known = bpf_map_lookup_elem(&codes, &key);
	if (known && known->identity == value.identity && known->name == value.name &&
	    known->file == value.file && known->lines == value.lines &&
	    known->first_line == value.first_line)
		return known->generation;
	value.generation = __sync_fetch_and_add(&last_generation, 1) + 1;
	if (describe(walk, code, &value))
		return 0;
	if (bpf_map_update_elem(&codes, &key, &value, BPF_ANY))
		lost(LOSS_CODES_FULL);
	return value.generation;
}

/* One frame; 1 ends the walk. A global function: the verifier looks at it once, not once for each turn of the loop. */
__noinline int walk_step(__u32 turn)
{
	__u32 zero = 0, index, generation;
	struct interpreter *at;
	struct frame *frame;
	struct walk *walk;
	__u64 code;
	__u8 owner;

	walk = bpf_map_lookup_elem(&walks, &zero);
	if (!walk || !walk->frame)
		return 1;
	at = &walk->interpreter;
	if (walk->stack.depth >= GPUHEAP_MAX_FRAMES)
		return 1;
	if (bpf_probe_read_user(walk->frame_bytes, FRAME_BYTES, (const void *)walk->frame)) {
		lost(LOSS_FAULT);
		return 1;
	}
	code = U64_AT(walk->frame_bytes, at->frame_code) & ~(__u64)at->code_tag;
	owner = U8_AT(walk->frame_bytes, at->frame_owner);
	walk->frame = U64_AT(walk->frame_bytes, at->frame_previous);
	if (owner >= OWNED_BY_C || !code)
		return 0;
	generation = generation_of(walk, code);
	index = walk->stack.depth & (GPUHEAP_MAX_FRAMES - 1);
	frame = &walk->stack.frames[index];
	frame->code = code;
	frame->generation = generation;
	frame->instruction =
		U64_AT(walk->frame_bytes, at->frame_instruction) - (code + at->code_instructions);
	walk->stack.depth++;
	walk->hash = mix(mix(walk->hash, code), ((__u64)generation << 32) | frame->instruction);
	return 0;
}

static __always_inline __u64 thread_state(const struct interpreter *at, __u32 tid)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 self = BPF_CORE_READ(task, thread.fsbase);
	__u64 *known, state = 0, owner = 0, interpreter = 0;

	known = bpf_map_lookup_elem(&thread_states, &tid);
	if (known) {
		state = *known;
		if (!READ(owner, state + at->thread_id) && owner == self)
			return state;
	}
	if (READ(interpreter, at->runtime + at->interpreters_head) || !interpreter)
		return 0;
	if (READ(state, interpreter + at->threads_head))
		return 0;
	for (int turn = 0; turn < MAX_THREADS && state; turn++) {
		if (READ(owner, state + at->thread_id))
			return 0;
		if (owner == self) {
			bpf_map_update_elem(&thread_states, &tid, &state, BPF_ANY);
			return state;
		}
		if (READ(state, state + at->thread_next))
			return 0;
	}
	return 0;
}

/* The key of the calling thread's stack in `stacks`, or the reason why there is none. */
static __always_inline __u64 python_stack(__u32 tgid, __u32 tid, __u32 image)
{
	struct interpreter *at = bpf_map_lookup_elem(&interpreters, &tgid);
	__u64 state, frame = 0;
	__u32 zero = 0;
	struct walk *walk;
	long error;

	if (!at)
		return STACK_NO_INTERPRETER;
	walk = bpf_map_lookup_elem(&walks, &zero);
	if (!walk)
		return STACK_FAULT;
	state = thread_state(at, tid);
	if (!state) {
		lost(LOSS_NO_THREAD_STATE);
		return STACK_NO_THREAD_STATE;
	}
	error = READ(frame, state + at->thread_frame);
	if (!error && at->cframe_frame >= 0)
		error = READ(frame, frame + at->cframe_frame);
	if (error) {
		lost(LOSS_FAULT);
		return STACK_FAULT;
	}
	walk->interpreter = *at;
	walk->frame = frame;
	walk->image = image;
	walk->tgid = tgid;
	walk->hash = image;
	walk->stack.depth = 0;
	/* More turns than frames: the interpreter's own frames lie between. */
	for (__u32 turn = 0; turn < GPUHEAP_MAX_FRAMES + 32; turn++)
		if (walk_step(turn))
			break;
	if (!walk->stack.depth)
		return STACK_EMPTY;
	walk->stack.truncated = walk->frame != 0;
	if (walk->stack.truncated)
		lost(LOSS_TRUNCATED_STACK);
	if (walk->hash < STACK_REASONS)
		walk->hash += STACK_REASONS;
	if (bpf_map_lookup_elem(&stacks, &walk->hash))
		return walk->hash;
	error = bpf_map_update_elem(&stacks, &walk->hash, &walk->stack, BPF_NOEXIST);
	if (error && error != -EEXIST) {
		lost(LOSS_STACKS_FULL);
		return STACK_NO_ROOM;
	}
	return walk->hash;
}

#endif

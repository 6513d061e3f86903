/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is shown of a code object: name, file, first line, line table. The agent is told of it once; from then on it is
 * known by a digest of these, which is the same wherever the object lies.
 */
#ifndef GPUHEAP_CODES_BPF_H
#define GPUHEAP_CODES_BPF_H

#include "threads.bpf.h"

#define WINDOW 4096 /* frames lie close to one another: one read gets many */
#define CODE_BYTES 160 /* covers the fields of PyCodeObject that are read */
#define STRING_HASH 24 /* PyASCIIObject.hash, 3.8 to 3.15 */
#define BYTES_SIZE 16 /* PyBytesObject */
#define BYTES_DATA 32

#define CODE_U64(walk, offset) (*(__u64 *)((walk)->code + ((offset) & 0xf8)))
#define CODE_U32(walk, offset) (*(__u32 *)((walk)->code + ((offset) & 0xfc)))

struct code_key {
	__u64 code;
	__u64 image;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct code_key);
	__type(value, __u32); /* described */
} codes SEC(".maps");

/* The walk over the stack of a thread (python.bpf.h), with room for what is read on the way. */
struct walk {
	struct interpreter interpreter;
	__u64 image;
	__u64 self; /* pthread_self() */
	__u64 thread_state; /* checked at each use */
	__u64 interpreter_state;
	__u64 frame;
	__u64 hash;
	__u64 file; /* the last co_filename of this walk */
	__u64 file_digest;
	__u64 window_begin; /* what part of the process's memory is in the window */
	__u64 window_end;
	__u32 tgid;
	__u32 named; /* frames that have their digest */
	__u32 unnamed; /* and those that could not have it */
	__u32 counted; /* 1: one number stands for all code objects */
	struct stack stack;
	__u8 window[WINDOW];
	__u8 code[256];
};

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
	__u64 hash = bytes, words[16];

	for (__u32 chunk = 0; chunk < GPUHEAP_LINES_BYTES / sizeof(words); chunk++) {
		__u64 rest = bytes - chunk * sizeof(words);

		if (chunk * sizeof(words) >= bytes)
			break;
		__builtin_memset(words, 0, sizeof(words));
		if (rest > sizeof(words))
			rest = sizeof(words);
		asm volatile("%0 &= 255"
			     : "+r"(rest)); /* for the verifier: clang 14 loses the bound above */
		if (rest > sizeof(words))
			break;
		if (bpf_probe_read_user(words, rest,
					(const void *)(address + chunk * sizeof(words))))
			break;
		for (int i = 0; i < 16; i++)
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

/* A digest of what is shown of the code object at this address, whose fields are left in walk->code; 0 on a fault. */
static __noinline __u64 digest_of(struct walk *walk, __u64 code)
{
	struct interpreter *at;
	__u64 hash, lines, file, size = 0;

	if (!walk || bpf_probe_read_user(walk->code, CODE_BYTES, (const void *)code))
		return 0;
	at = &walk->interpreter;
	lines = CODE_U64(walk, at->code_lines);
	READ(size, lines + BYTES_SIZE);
	hash = mix(digest(lines + BYTES_DATA, size), CODE_U32(walk, at->code_first_line));
	hash = mix(hash, string_digest(at, CODE_U64(walk, at->code_name)));
	file = CODE_U64(walk, at->code_file);
	if (file != walk->file) { /* neighbours are often of one file */
		walk->file_digest = string_digest(at, file);
		walk->file = file;
	}
	hash = mix(hash, walk->file_digest);
	return hash ? hash : 1;
}

/* walk->code holds the code object; `bytes` of its line table fit into the event. */
static __always_inline void describe_in(struct code_event *event, struct walk *walk, __u64 code,
					__u64 lines, __u64 size, __u64 bytes)
{
	struct interpreter *at = &walk->interpreter;
	int fault = 0;

	event->type = EVENT_CODE;
	event->tgid = walk->tgid;
	event->image = walk->image;
	event->code = code;
	event->first_line = CODE_U32(walk, at->code_first_line);
	event->lines_address = lines + BYTES_DATA;
	event->lines_bytes = size;
	event->name_length = event->name_state = event->file_length = event->file_state = 0;
	fault |= read_string(at, CODE_U64(walk, at->code_name), event->name, &event->name_length,
			     &event->name_state);
	fault |= read_string(at, CODE_U64(walk, at->code_file), event->file, &event->file_length,
			     &event->file_state);
	if (size > bytes)
		size = bytes;
	asm volatile("%0 &= 8191"
		     : "+r"(size)); /* for the verifier: clang 14 loses the bound above */
	if (size <= bytes)
		fault |=
			bpf_probe_read_user(event->lines, size, (const void *)(lines + BYTES_DATA));
	bpf_ringbuf_submit(event, 0);
	if (fault)
		lost(LOSS_FAULT);
}

/* Tell the agent what is behind a digest. Returns -1 when it could not be told. */
static __noinline int describe(struct walk *walk, __u64 code)
{
	struct code_event *event;
	__u64 lines, size = 0;

	if (!walk)
		return -1;
	lines = CODE_U64(walk, walk->interpreter.code_lines);
	if (READ(size, lines + BYTES_SIZE))
		lost(LOSS_FAULT);
	/* Most line tables are short: with room for long ones in each, few events would fill the ring. */
	if (size <= GPUHEAP_SHORT_LINES_BYTES) {
		event = bpf_ringbuf_reserve(&events, GPUHEAP_SHORT_CODE_EVENT, 0);
		if (!event)
			goto full;
		describe_in(event, walk, code, lines, size, GPUHEAP_SHORT_LINES_BYTES);
		return 0;
	}
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		goto full;
	describe_in(event, walk, code, lines, size, GPUHEAP_LINES_BYTES);
	return 0;
full:
	lost(LOSS_RING_FULL);
	return -1;
}

/* The digest by which the agent knows this code object; 0 when it cannot be read or described. */
static __always_inline __u64 name_of(struct walk *walk, __u64 address)
{
	struct code_key key = {};
	__u32 described = 1;

	if (!walk)
		return 0;
	key.image = walk->image;
	key.code = digest_of(walk, address);
	if (!key.code) {
		lost(LOSS_FAULT);
		return 0;
	}
	if (bpf_map_lookup_elem(&codes, &key))
		return key.code;
	if (describe(walk, key.code))
		return 0;
	if (bpf_map_update_elem(&codes, &key, &described, BPF_ANY))
		lost(LOSS_CODES_FULL);
	return key.code;
}

#endif

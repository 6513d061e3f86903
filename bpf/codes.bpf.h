/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is shown of a code object: name, file, first line, line table. The agent is told of it once; from then on it is
 * known by a digest of these, which is the same wherever the object lies.
 *
 * Offsets are checked where they are used: what is described has a type called `code`, with strings and bytes where they
 * are expected. What has not is no code object, and nothing is said of it.
 */
#ifndef GPUHEAP_CODES_BPF_H
#define GPUHEAP_CODES_BPF_H

#include "threads.bpf.h"

#define BUFFER 4096 /* holds a window, and behind it a frame that lies elsewhere */
#define WINDOW (BUFFER - 128) /* frames lie close to one another: one read gets many */
#define CODE_BYTES 160 /* covers the fields of PyCodeObject that are read */
#define FLAG_BYTES (1 << 27) /* Py_TPFLAGS_BYTES_SUBCLASS, 3.8 to 3.15 */
#define FLAG_STRING (1 << 28) /* Py_TPFLAGS_UNICODE_SUBCLASS */

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

/* The search for the thread's state (states.bpf.h). */
struct search {
	__u64 interpreter;
	__u64 state;
	__u64 frame; /* of a state that may be the one */
	__u64 place; /* on the C stack, of the best so far */
	__u64 found;
	__u64 found_in;
	__u32 alone; /* 1: there is one interpreter */
	__u32 fault;
};

/* The walk over the stack of a thread (python.bpf.h), with room for what is read on the way. */
struct walk {
	struct interpreter interpreter;
	__u64 image;
	__u64 self; /* pthread_self() */
	__u64 thread_state; /* checked at each use */
	__u64 interpreter_state;
	__u64 only_interpreter; /* with which the state was found; 0: there were others */
	struct search search;
	__u64 innermost; /* frame of the thread; 0: it has none */
	__u64 frame;
	__u64 hash;
	__u64 file; /* the last co_filename of this walk */
	__u64 file_digest;
	__u64 window_begin; /* what part of the process's memory is in the window */
	__u64 window_end;
	__u64 aside; /* the frame that is behind it */
	__u64 reach; /* how far out the frames go that lie close to the first one */
	__u64 reached; /* the same of the walk before */
	__u32 tgid;
	__u32 frames; /* that were walked over */
	__u32 last; /* where the last one is in the stack */
	__u32 named; /* frames that have their digest */
	__u32 unnamed; /* and those that could not have it */
	__u32 implausible; /* and those of them that have no code object */
	struct stack stack;
	__u8 buffer[BUFFER];
	__u8 code[256];
};

/* Where a string's characters are, and their width in bytes. */
struct characters {
	__u64 data;
	__u64 length;
	__u64 width;
};

/* Returns -1 on a fault. PyASCIIObject.state: kind is three bits, then come compact and ascii. */
static __always_inline int find_characters(const struct interpreter *at, __u64 string,
					   struct characters *into)
{
	__u32 bits = 0;

	into->length = 0;
	if (READ(into->length, string + at->string_length) || READ(bits, string + at->string_state))
		return -1;
	bits >>= at->string_kind & 31;
	into->width = bits & 7;
	into->data = string + ((bits & 24) == 24 ? at->string_ascii : at->string_compact);
	if (!(bits & 8)) /* not compact, as of a subclass: they are elsewhere */
		return READ(into->data, string + at->string_compact);
	return 0;
}

/* Copy the first or the last characters, as many as fit. Returns -1 on a fault. */
static __noinline int read_string(const struct interpreter *at, __u64 string, __u8 *into,
				  struct characters *found, int last)
{
	__u64 bytes, room = GPUHEAP_NAME_BYTES - 1;

	if (!at || !into || !found)
		return -1;
	found->width = 0;
	if (find_characters(at, string, found))
		return -1;
	bytes = found->length * found->width;
	if (found->width > 1)
		room -= room & (found->width - 1);
	if (bytes > room) {
		if (last)
			found->data += bytes - room;
		bytes = room;
	}
	asm volatile("%0 &= 255"
		     : "+r"(bytes)); /* for the verifier: clang 14 loses the bound above */
	return bpf_probe_read_user(into, bytes, (const void *)found->data);
}

/*
 * A digest of memory, at most GPUHEAP_LINES_BYTES of it. What cannot be read is left out: describing the object will fail
 * at the same place, and be counted there. A global function: verified once.
 */
__noinline __u64 digest(__u64 address, __u64 bytes)
{
	__u64 hash = bytes, words[8]; /* not more: all that call one another share 512 bytes */

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
		for (int i = 0; i < 8; i++)
			hash = mix(hash, words[i]);
	}
	return hash;
}

/* CPython keeps a string's hash, behind its length, once it was asked for, which interned strings always were. */
static __always_inline __u64 string_digest(const struct interpreter *at, __u64 string)
{
	struct characters found;
	__u64 hash = -1ULL;

	if (!READ(hash, string + at->string_length + 8) && hash != -1ULL)
		return hash;
	if (find_characters(at, string, &found))
		return 0;
	return digest(found.data, found.length * found.width);
}

static __always_inline int has_flag(const struct interpreter *at, __u64 object, __u64 flag)
{
	__u64 type = 0, flags = 0;

	return !READ(type, object + at->object_type) && !READ(flags, type + at->type_flags) &&
	       (flags & flag);
}

/*
 * Whether what is in walk->code is of the type that calls itself `code`; -1: its name cannot be read. The name is asked for
 * once in a process: it lies in a page of the interpreter's file, which a forked child does not have until it touches it.
 */
static __always_inline int is_code(struct walk *walk)
{
	struct interpreter *at = &walk->interpreter, *kept;
	__u64 type = CODE_U64(walk, at->object_type), address = 0;
	__u32 tgid = walk->tgid;
	char name[5] = {};

	if (type && type == at->code_type)
		return 1;
	if (READ(address, type + at->type_name))
		return 0;
	if (READ(name, address))
		return -1;
	if (name[0] != 'c' || name[1] != 'o' || name[2] != 'd' || name[3] != 'e' || name[4])
		return 0;
	at->code_type = type;
	kept = bpf_map_lookup_elem(&interpreters, &tgid);
	if (kept)
		kept->code_type = type;
	return 1;
}

/* A digest of what is shown of the code object at this address, whose fields are left in walk->code; 0: it cannot be read. */
static __noinline __u64 digest_of(struct walk *walk, __u64 code)
{
	struct interpreter *at;
	__u64 hash, lines, file, size = 0;
	int is;

	if (!walk || bpf_probe_read_user(walk->code, CODE_BYTES, (const void *)code))
		return 0;
	is = is_code(walk);
	if (is <= 0) {
		walk->implausible += is == 0;
		return 0;
	}
	at = &walk->interpreter;
	lines = CODE_U64(walk, at->code_lines);
	READ(size, lines + at->bytes_size);
	hash = mix(digest(lines + at->bytes_data, size), CODE_U32(walk, at->code_first_line));
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
	struct characters found;
	int fault = 0;

	event->type = EVENT_CODE;
	event->tgid = walk->tgid;
	event->image = walk->image;
	event->code = code;
	event->first_line = CODE_U32(walk, at->code_first_line);
	event->lines_address = lines + at->bytes_data;
	event->lines_bytes = size;
	event->lines_format = at->lines_format;
	event->pad = 0;
	fault |= read_string(at, CODE_U64(walk, at->code_name), event->name, &found, 0);
	event->name_length = found.length;
	event->name_width = found.width;
	fault |= read_string(at, CODE_U64(walk, at->code_file), event->file, &found, 1);
	event->file_length = found.length;
	event->file_width = found.width;
	if (size > bytes)
		size = bytes;
	asm volatile("%0 &= 8191"
		     : "+r"(size)); /* for the verifier: clang 14 loses the bound above */
	if (size <= bytes)
		fault |= bpf_probe_read_user(event->lines, size,
					     (const void *)(lines + at->bytes_data));
	bpf_ringbuf_submit(event, 0);
	if (fault)
		lost(LOSS_FAULT);
}

/* Tell the agent what is behind a digest. Returns -1 when it could not be told. */
static __noinline int describe(struct walk *walk, __u64 code)
{
	struct code_event *event;
	struct interpreter *at;
	__u64 lines, size = 0;

	if (!walk)
		return -1;
	at = &walk->interpreter;
	lines = CODE_U64(walk, at->code_lines);
	if (!has_flag(at, CODE_U64(walk, at->code_name), FLAG_STRING) ||
	    !has_flag(at, CODE_U64(walk, at->code_file), FLAG_STRING) ||
	    !has_flag(at, lines, FLAG_BYTES)) {
		walk->implausible++;
		return -1;
	}
	if (READ(size, lines + at->bytes_size))
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
	__u32 described = 1, implausible;

	if (!walk)
		return 0;
	implausible = walk->implausible;
	key.image = walk->image;
	key.code = digest_of(walk, address);
	if (!key.code) {
		if (walk->implausible == implausible)
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

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of the calling thread, read from the process's memory (CPython 3.11 and newer).
 *
 * The thread state is the one whose thread_id is the thread's pthread_self(), which glibc and musl keep in the FS base: that
 * holds inside pid namespaces, and whether or not the thread has the GIL (callers release it before they allocate).
 *
 * A frame is named by a digest of what is shown of its code object: name, file, first line, line table. The agent is told
 * once what is behind a digest. Making them for all frames is dear, so a stack that was seen before is recognised without:
 *
 *   known_stacks   addresses and versions of the frames -> key of `stacks`
 *   stacks         digests of the frames                -> the frames
 *
 * An address alone tells nothing: memory of freed code objects is used again, often with the same strings at the same
 * addresses. What is added to it is one number for the whole stack: how many code objects the interpreter has made (3.12,
 * 3.13) or freed (3.14) so far. While that stands still, an address is the same code. Where there is no such number, or it
 * has moved, each frame has one that is never given again: of its function (3.11) or its code object (3.12, 3.13). And
 * where that is missing, the digest itself.
 */
#ifndef GPUHEAP_PYTHON_BPF_H
#define GPUHEAP_PYTHON_BPF_H

#include "threads.bpf.h"

#define MAX_THREADS 512
#define WINDOW 4096 /* frames lie close to one another: one read gets many */
#define FRAME_BYTES 80 /* covers the fields of _PyInterpreterFrame that are read */
#define CODE_BYTES 160 /* and of PyCodeObject */
#define STRING_HASH 24 /* PyASCIIObject.hash, 3.8 to 3.15 */
#define BYTES_SIZE 16 /* PyBytesObject */
#define BYTES_DATA 32
#define OWNED_BY_C 3 /* entry frames of the interpreter; not a Python function */
#define WALK_STEP 32
#define RUNTIME_BYTES (4 << 20) /* more than a _PyRuntime has */
#define NAME_STEP 4

#define CODE_U64(walk, offset) (*(__u64 *)((walk)->code + ((offset) & 0xf8)))
#define CODE_U32(walk, offset) (*(__u32 *)((walk)->code + ((offset) & 0xfc)))
/* A field of the frame that begins at `at` in the window. */
#define FRAME_U64(walk, at, offset) \
	(*(__u64 *)((walk)->window + (((at) + (offset)) & (WINDOW - 8))))
#define FRAME_U8(walk, at, offset) (*(__u8 *)((walk)->window + (((at) + (offset)) & (WINDOW - 1))))

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

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* hash of image and frames */
	__type(value, struct stack);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64); /* hash of image, addresses and versions */
	__type(value, __u64); /* key of `stacks` */
} known_stacks SEC(".maps");

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

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* tgid and tid */
	__type(value, struct walk);
} walks SEC(".maps");

/* All zero: what a new walk begins with. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} new_walk SEC(".maps");

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

/* Have the frame in the window. Frames are in pages that are theirs from the beginning; before that may be nothing. */
static __always_inline int read_frame(struct walk *walk)
{
	__u64 begin = walk->frame & ~4095ULL, end = walk->frame + FRAME_BYTES, bytes;

	if (walk->frame >= walk->window_begin && end <= walk->window_end)
		return 0;
	if (end - begin > WINDOW)
		begin = end - WINDOW;
	bytes = end - begin;
	asm volatile("%0 &= 8191"
		     : "+r"(bytes)); /* for the verifier: clang 14 loses the bound above */
	if (bytes > WINDOW)
		return -1;
	walk->window_begin = begin;
	walk->window_end = end;
	return bpf_probe_read_user(walk->window, bytes, (const void *)begin);
}

/* The number of this frame's function or code object; without one, the digest goes into the hash. */
static __always_inline __u32 version_of(struct walk *walk, __u64 code, __u64 at)
{
	struct interpreter *layout;
	__u32 version = 0;
	__u64 object = code;

	if (!walk)
		return 0;
	layout = &walk->interpreter;
	if (layout->frame_versioned != layout->frame_code)
		object = FRAME_U64(walk, at, layout->frame_versioned);
	if (layout->version)
		READ(version, object + layout->version);
	if (!version)
		walk->hash = mix(walk->hash, digest_of(walk, code));
	return version;
}

/*
 * A few frames; 1 ends the walk. A global function: the verifier looks at it once, not once for each turn of the loop; it
 * has no pointers for arguments, as kernels before 5.12 do not take them.
 */
__noinline int walk_frames(void)
{
	__u64 id = bpf_get_current_pid_tgid(), code, at;
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	struct interpreter *layout;
	struct frame *frame;
	__u32 version;

	if (!walk)
		return 1;
	layout = &walk->interpreter;
	for (int i = 0; i < WALK_STEP; i++) {
		if (!walk->frame || walk->stack.depth >= GPUHEAP_MAX_FRAMES)
			return 1;
		if (read_frame(walk)) {
			lost(LOSS_FAULT);
			return 1;
		}
		at = walk->frame - walk->window_begin;
		code = FRAME_U64(walk, at, layout->frame_code) & ~(__u64)layout->code_tag;
		walk->frame = FRAME_U64(walk, at, layout->frame_previous);
		if (!code || FRAME_U8(walk, at, layout->frame_owner) >= OWNED_BY_C)
			continue;
		frame = &walk->stack.frames[walk->stack.depth & (GPUHEAP_MAX_FRAMES - 1)];
		frame->code = code;
		frame->instruction = FRAME_U64(walk, at, layout->frame_instruction) -
				     (code + layout->code_instructions);
		version = walk->counted ? 0 : version_of(walk, code, at);
		walk->hash =
			mix(mix(walk->hash, code), ((__u64)version << 32) | frame->instruction);
		walk->stack.depth++;
	}
	return 0;
}

/* Digests for a few frames; 1 when all have theirs. */
__noinline int name_frames(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	struct frame *frame;

	if (!walk)
		return 1;
	for (int i = 0; i < NAME_STEP; i++) {
		if (walk->named >= walk->stack.depth)
			return 1;
		frame = &walk->stack.frames[walk->named & (GPUHEAP_MAX_FRAMES - 1)];
		frame->code = name_of(walk, frame->code);
		frame->version = 0;
		walk->unnamed += !frame->code;
		walk->hash = mix(mix(walk->hash, frame->code), frame->instruction);
		walk->named++;
	}
	return 0;
}

/* Whether the thread state that was found before is still this thread's; then walk->frame is its frame. */
static __always_inline int state_is_known(struct walk *walk)
{
	struct interpreter *at = &walk->interpreter;
	__u32 begin = at->thread_id < at->thread_frame ? at->thread_id : at->thread_frame;
	__u64 bytes =
		(at->thread_id < at->thread_frame ? at->thread_frame : at->thread_id) + 8 - begin;

	asm volatile("%0 &= 255" : "+r"(bytes)); /* for the verifier; the layout was checked */
	if (!walk->thread_state ||
	    bpf_probe_read_user(walk->code, bytes, (const void *)(walk->thread_state + begin)))
		return 0;
	walk->frame = CODE_U64(walk, at->thread_frame - begin);
	return CODE_U64(walk, at->thread_id - begin) == walk->self;
}

static __noinline __u64 find_state(struct walk *walk)
{
	__u64 state = 0, owner = 0;
	struct interpreter *at;

	if (!walk)
		return 0;
	at = &walk->interpreter;
	walk->interpreter_state = 0;
	if (READ(walk->interpreter_state, at->runtime + at->interpreters_head) ||
	    !walk->interpreter_state)
		return 0;
	if (READ(state, walk->interpreter_state + at->threads_head))
		return 0;
	for (int turn = 0; turn < MAX_THREADS && state; turn++) {
		if (READ(owner, state + at->thread_id))
			return 0;
		if (owner == walk->self)
			return state;
		if (READ(state, state + at->thread_next))
			return 0;
	}
	return 0;
}

static __always_inline struct walk *walk_of(__u64 id, __u64 image)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct walk *walk = bpf_map_lookup_elem(&walks, &id);
	__u32 zero = 0, tgid = id >> 32;
	struct interpreter *interpreter;
	struct walk *made;

	if (walk)
		return walk;
	interpreter = bpf_map_lookup_elem(&interpreters, &tgid);
	made = bpf_map_lookup_elem(&new_walk, &zero);
	if (!interpreter || !made)
		return NULL;
	bpf_map_update_elem(&walks, &id, made, BPF_NOEXIST);
	walk = bpf_map_lookup_elem(&walks, &id);
	if (!walk) {
		lost(LOSS_THREADS_FULL);
		return NULL;
	}
	walk->interpreter = *interpreter;
	walk->self = BPF_CORE_READ(task, thread.fsbase);
	walk->image = image;
	walk->tgid = tgid;
	return walk;
}

/* What the interpreter counts of its code objects; 0: nothing that could be relied on. */
static __always_inline __u64 code_count(struct walk *walk)
{
	struct interpreter *at = &walk->interpreter;
	__u64 count = 0;
	__u32 made = 0;

	if (at->code_generation) {
		if (READ(count, walk->interpreter_state + at->code_generation))
			return 0;
		return count + 1;
	}
	/* It is in _PyRuntime for the main interpreter only, and is 0 when it has run over. */
	if (at->code_counter && walk->interpreter_state - at->runtime < RUNTIME_BYTES)
		READ(made, at->runtime + at->code_counter);
	return made;
}

/*
 * The frames, with what distinguishes them, are in walk->stack and walk->hash. `counted` 0: by the frames' own numbers.
 * Returns 0 or an enum stack_reason.
 */
static __noinline __u64 walk_stack(struct walk *walk, __u32 counted)
{
	struct interpreter *at;
	__u64 count = 0;

	if (!walk)
		return STACK_FAULT;
	at = &walk->interpreter;
	if (!state_is_known(walk)) {
		walk->thread_state = find_state(walk);
		if (!walk->thread_state) {
			lost(LOSS_NO_THREAD_STATE);
			return STACK_NO_THREAD_STATE;
		}
		if (!state_is_known(walk)) {
			lost(LOSS_FAULT);
			return STACK_FAULT;
		}
	}
	if (at->cframe_frame >= 0 && READ(walk->frame, walk->frame + at->cframe_frame)) {
		lost(LOSS_FAULT);
		return STACK_FAULT;
	}
	if (counted)
		count = code_count(walk);
	walk->counted = count != 0;
	walk->hash = mix(walk->image, count);
	walk->window_begin = walk->window_end = walk->file = 0;
	walk->stack.depth = 0;
	/* More than the frames: the interpreter's own lie between. */
	for (__u32 turn = 0; turn < GPUHEAP_MAX_FRAMES / WALK_STEP + 2; turn++)
		if (walk_frames())
			break;
	if (!walk->stack.depth)
		return STACK_EMPTY;
	walk->stack.truncated = walk->frame != 0;
	return 0;
}

/* A stack that was not recognised: named, and kept. */
static __always_inline __u64 keep_stack(struct walk *walk)
{
	long error;

	if (!walk)
		return STACK_FAULT;
	walk->hash = mix(walk->image, walk->stack.truncated);
	walk->named = walk->unnamed = 0;
	for (__u32 turn = 0; turn < GPUHEAP_MAX_FRAMES / NAME_STEP + 1; turn++)
		if (name_frames())
			break;
	if (walk->hash < STACK_REASONS)
		walk->hash += STACK_REASONS;
	error = bpf_map_update_elem(&stacks, &walk->hash, &walk->stack, BPF_NOEXIST);
	if (error && error != -EEXIST) {
		lost(LOSS_STACKS_FULL);
		return STACK_NO_ROOM;
	}
	return walk->hash;
}

/* The key of the calling thread's stack in `stacks`, or the reason why there is none. */
static __noinline __u64 python_stack(__u64 id, __u64 image)
{
	struct walk *walk = walk_of(id, image);
	__u64 reason, key, counted = 0, seen;
	__u64 *known;

	if (!walk)
		return STACK_NO_INTERPRETER;
	reason = walk_stack(walk, 1);
	if (reason)
		return reason;
	if (walk->stack.truncated)
		lost(LOSS_TRUNCATED_STACK);
	seen = walk->hash;
	known = bpf_map_lookup_elem(&known_stacks, &seen);
	if (known)
		return *known;
	if (walk->counted) {
		counted = seen;
		if (walk_stack(walk, 0))
			return STACK_FAULT;
		seen = walk->hash;
		known = bpf_map_lookup_elem(&known_stacks, &seen);
	}
	key = known ? *known : keep_stack(walk);
	/* With a frame that could not be named, or no room, it is tried again the next time. */
	if (!known && (key < STACK_REASONS || walk->unnamed))
		return key;
	if (!known)
		bpf_map_update_elem(&known_stacks, &seen, &key, BPF_ANY);
	if (counted)
		bpf_map_update_elem(&known_stacks, &counted, &key, BPF_ANY);
	return key;
}

#endif

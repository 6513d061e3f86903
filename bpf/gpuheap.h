/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel side and the agent share: keys, values and events.
 *
 * Fixed widths, explicit padding; mirrored in agent/gpuheap/tracer/abi.py, and compared with it through BTF by a test.
 */
#ifndef GPUHEAP_H
#define GPUHEAP_H

#include <linux/types.h>

#define GPUHEAP_MAX_FRAMES 64
#define GPUHEAP_NAME_BYTES 256
#define GPUHEAP_LINES_BYTES 4096

/*
 * A process image: what runs between fork, exec and exit. Ids are never used again, so neither a reused pid nor an
 * exec can be charged with the memory of the one before.
 */
struct image {
	__u64 start_ns; /* boot time at which the process started */
	__u32 id;
	__u32 parent; /* tgid, when the image was first seen */
};

_Static_assert(sizeof(struct image) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

/* Where one build of CPython keeps what the stack walk reads. Offsets in bytes. */
struct interpreter {
	__u64 runtime; /* address of _PyRuntime; in `interpreter_files`: its distance from the probed function */
	__u32 interpreters_head; /* in _PyRuntime: newest PyInterpreterState */
	__u32 threads_head; /* in PyInterpreterState: newest PyThreadState */
	__u32 thread_next; /* in PyThreadState */
	__u32 thread_id;
	__u32 thread_frame;
	__s32 cframe_frame; /* in _PyCFrame, which thread_frame then points at; -1: thread_frame is the frame */
	__u32 frame_code; /* in _PyInterpreterFrame */
	__u32 frame_previous;
	__u32 frame_instruction;
	__u32 frame_owner;
	__u32 code_first_line; /* in PyCodeObject */
	__u32 code_file;
	__u32 code_name;
	__u32 code_lines;
	__u32 code_instructions;
	__u32 code_version; /* a number that no other code object of the process has; 0: there is none */
	__u32 code_tag; /* low bits of frame_code that are not part of the address */
	__u32 string_length; /* in PyUnicodeObject */
	__u32 string_state;
	__u32 string_ascii; /* where the characters begin, for ASCII strings */
	__u32 string_compact; /* and for the others */
	__u32 pad;
};

_Static_assert(sizeof(struct interpreter) == 96, "mirrored in agent/gpuheap/tracer/abi.py");

/* A Python frame: `code` with `generation` names a code object that an event has described. */
struct frame {
	__u64 code;
	__u32 generation; /* of the code object at this address: memory of freed ones is used again */
	__u32 instruction; /* byte offset in the code object's instructions */
};

_Static_assert(sizeof(struct frame) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

struct stack {
	__u32 depth; /* frames in use; the innermost is first */
	__u32 truncated; /* 1: there were more */
	struct frame frames[GPUHEAP_MAX_FRAMES];
};

_Static_assert(sizeof(struct stack) == 1032, "mirrored in agent/gpuheap/tracer/abi.py");

/* Values of site.stack that are no stack but the reason why there is none. */
enum stack_reason {
	STACK_NO_INTERPRETER = 1, /* no Python is known in this process, or not yet */
	STACK_NO_THREAD_STATE = 2, /* the thread never entered Python */
	STACK_FAULT = 3, /* memory that the walk needed could not be read */
	STACK_NO_ROOM = 4, /* map `stacks` is full */
	STACK_EMPTY = 5, /* the thread is in Python, but runs no Python function */
	STACK_REASONS = 16, /* real stacks have greater numbers */
};

/* Who allocates. */
struct site {
	__u64 stack; /* key of map `stacks`, or an enum stack_reason */
	__u32 image;
	__u32 tid;
};

_Static_assert(sizeof(struct site) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

struct totals {
	__u64 allocated_bytes;
	__u64 allocated_objects;
	__u64 freed_bytes;
	__u64 freed_objects;
};

_Static_assert(sizeof(struct totals) == 32, "mirrored in agent/gpuheap/tracer/abi.py");

struct live_key {
	__u64 address;
	__u32 image;
	__u32 pad;
};

_Static_assert(sizeof(struct live_key) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

struct live_value {
	__u64 bytes;
	struct site site;
};

_Static_assert(sizeof(struct live_value) == 24, "mirrored in agent/gpuheap/tracer/abi.py");

struct failure_key {
	__u32 image;
	__u32 code; /* CUresult */
};

_Static_assert(sizeof(struct failure_key) == 8, "mirrored in agent/gpuheap/tracer/abi.py");

/* Index of map `losses`: each way in which something is lost or blurred. */
enum loss {
	LOSS_RING_FULL, /* an event for the agent */
	LOSS_PENDING_FULL, /* a call whose return could not be awaited */
	LOSS_LIVE_FULL, /* an allocation whose free will be unknown */
	LOSS_SITES_FULL, /* an allocation that is in no total */
	LOSS_STACKS_FULL, /* a stack; its bytes are kept without it */
	LOSS_CODES_FULL, /* the name of a code object */
	LOSS_IMAGES_FULL, /* a process */
	LOSS_FAILURES_FULL, /* a failed call */
	LOSS_FAULT, /* memory of the process that could not be read */
	LOSS_TRUNCATED_STACK, /* the outer frames of a deep stack */
	LOSS_NO_THREAD_STATE, /* the Python stack of a thread, in a process that has Python */
	LOSS_UNKNOWN_FREE, /* a free of what was allocated before tracing began */
	LOSS_UNMATCHED_RETURN, /* the return of a call that began before tracing did */
	LOSS_REASONS,
};

enum event_type {
	EVENT_IMAGE = 1, /* a process was seen for the first time */
	EVENT_IMAGE_END = 2, /* it exited or exec'ed; what it held is free */
	EVENT_CODE = 3, /* a code object was seen for the first time */
};

struct image_event {
	__u32 type;
	__u32 tgid;
	struct image image;
	char name[16];
};

_Static_assert(sizeof(struct image_event) == 40, "mirrored in agent/gpuheap/tracer/abi.py");

/*
 * What names a frame, copied while the process lives. Strings are PyUnicode data: their length is in characters of the
 * width that `*_state` holds, and only what fits is here. `lines` is co_linetable.
 */
struct code_event {
	__u32 type;
	__u32 image;
	__u64 code;
	__u32 generation;
	__u32 first_line;
	__u32 name_length;
	__u32 name_state;
	__u32 file_length;
	__u32 file_state;
	__u32 lines_bytes; /* of which at most GPUHEAP_LINES_BYTES are here */
	__u32 tgid;
	__u64 lines_address;
	__u8 name[GPUHEAP_NAME_BYTES];
	__u8 file[GPUHEAP_NAME_BYTES];
	__u8 lines[GPUHEAP_LINES_BYTES];
};

_Static_assert(sizeof(struct code_event) == 4664, "mirrored in agent/gpuheap/tracer/abi.py");

#endif

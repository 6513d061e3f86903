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
#define GPUHEAP_INNER_FRAMES 32
#define GPUHEAP_NAME_BYTES 256
#define GPUHEAP_LINES_BYTES 4096
#define GPUHEAP_SHORT_LINES_BYTES 256
#define GPUHEAP_PAGE 4096
#define GPUHEAP_STACK_PAGES 8 /* of a thread's stack that are looked at */
#define GPUHEAP_SIGNAL_PAGES 4 /* of a handler's own stack, and of the one that it has left */
#define GPUHEAP_ENTRIES 64 /* evaluations on a stack whose places are told; a power of two */
#define GPUHEAP_RETURNS 64 /* as many as the kernel lets a thread have */

/* Of `struct text`: windows of 8 GiB, in pieces of 64 KiB. */
#define GPUHEAP_TEXT_PIECE_BITS 16
#define GPUHEAP_TEXT_WINDOW_BITS 33
#define GPUHEAP_TEXT_WINDOWS 4
#define GPUHEAP_TEXT_PLACES 64
#define GPUHEAP_TEXT_FACTOR_BITS 10
#define GPUHEAP_TEXT_WORDS 2048 /* a bit for each piece of a window */

/* The probed functions of the driver. */
#define GPUHEAP_CALLS(X)                      \
	X(1, cuInit)                          \
	X(2, cuMemAlloc_v2)                   \
	X(3, cuMemAllocPitch_v2)              \
	X(4, cuMemFree_v2)                    \
	X(5, cuMemAlloc)                      \
	X(6, cuMemAllocPitch)                 \
	X(7, cuMemFree)                       \
	X(8, cuMemAllocManaged)               \
	X(9, cuMemAllocAsync)                 \
	X(10, cuMemAllocAsync_ptsz)           \
	X(11, cuMemAllocFromPoolAsync)        \
	X(12, cuMemAllocFromPoolAsync_ptsz)   \
	X(13, cuMemFreeAsync)                 \
	X(14, cuMemFreeAsync_ptsz)            \
	X(15, cuMemPoolCreate)                \
	X(16, cuMemPoolDestroy)               \
	X(17, cuMemPoolTrimTo)                \
	X(18, cuMemPoolSetAttribute)          \
	X(19, cuMemPoolGetAttribute)          \
	X(20, cuDeviceGetDefaultMemPool)      \
	X(21, cuDeviceGetMemPool)             \
	X(22, cuDeviceSetMemPool)             \
	X(23, cuMemCreate)                    \
	X(24, cuMemRelease)                   \
	X(25, cuMemMap)                       \
	X(26, cuMemUnmap)                     \
	X(27, cuMemRetainAllocationHandle)    \
	X(28, cuMemImportFromShareableHandle) \
	X(29, cuMulticastCreate)              \
	X(30, cuMemAllocHost_v2)              \
	X(31, cuMemHostAlloc)                 \
	X(32, cuMemFreeHost)                  \
	X(33, cuMemHostRegister_v2)           \
	X(34, cuMemHostUnregister)            \
	X(35, cuArrayCreate_v2)               \
	X(36, cuArray3DCreate_v2)             \
	X(37, cuMipmappedArrayCreate)         \
	X(38, cuArrayDestroy)                 \
	X(39, cuMipmappedArrayDestroy)        \
	X(40, cuIpcGetMemHandle)              \
	X(41, cuIpcOpenMemHandle_v2)          \
	X(42, cuIpcCloseMemHandle)            \
	X(43, cuImportExternalMemory)         \
	X(44, cuDestroyExternalMemory)        \
	X(45, cuGraphAddMemAllocNode)         \
	X(46, cuGraphDestroy)                 \
	X(47, cuCtxCreate_v2)                 \
	X(48, cuCtxCreate_v3)                 \
	X(49, cuCtxCreate_v4)                 \
	X(50, cuCtxDestroy_v2)                \
	X(51, cuDevicePrimaryCtxRetain)       \
	X(52, cuDevicePrimaryCtxRelease_v2)   \
	X(53, cuDevicePrimaryCtxReset_v2)     \
	X(54, cuCtxSetCurrent)                \
	X(55, cuCtxPushCurrent_v2)            \
	X(56, cuCtxPopCurrent_v2)             \
	X(57, cuCtxGetCurrent)                \
	X(58, cuCtxGetDevice)                 \
	X(59, cuGreenCtxCreate)               \
	X(60, cuGreenCtxDestroy)              \
	X(61, cuCtxFromGreenCtx)

enum call {
#define GPUHEAP_CALL(number, name) CALL_##name = number,
	GPUHEAP_CALLS(GPUHEAP_CALL)
#undef GPUHEAP_CALL
		CALL_NUMBERS,
};

/* What an allocation occupies, in the order of gpuheap.heap.model.MemoryKind. */
enum kind {
	KIND_DEVICE,
	KIND_MANAGED,
	KIND_PINNED_HOST,
	KIND_ARRAY,
	KIND_GRAPH,
	KIND_IMPORTED,
	KIND_NOTHING, /* a handle that stands for no memory of its own */
};

/* Values of site.device that are no ordinal. */
enum device {
	DEVICE_HOST = -1,
	DEVICE_UNKNOWN = -2,
};

/* Addresses and handles that mean different things when they are equal. */
enum space {
	SPACE_DEVICE, /* what cuMemFree takes */
	SPACE_HOST,
	SPACE_REGISTERED, /* host memory of the process, locked by the driver */
	SPACE_ARRAY,
	SPACE_IPC,
	SPACE_EXTERNAL,
	SPACE_GRAPH,
};

struct settings {
	__u64 began_ns; /* boot time at which tracing began */
	__u32 live_share; /* how many entries of map `live` one process can have */
	__u32 native_stacks; /* 1: they are taken */
};

_Static_assert(sizeof(struct settings) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

/*
 * A process image: what runs between fork, exec and exit. Ids are never used again, so neither a reused pid nor an
 * exec can be charged with the memory of the one before.
 */
struct image {
	__u64 start_ns; /* boot time at which the process started */
	__u64 id; /* nanoseconds at its first probed call, made unique */
	__u32 parent; /* tgid, when the image was first seen */
	__u32 live; /* entries of map `live` */
	__u32 spilled; /* allocations handed to the agent for want of such entries */
	__u32 late; /* 1: the process ran before tracing began */
};

_Static_assert(sizeof(struct image) == 32, "mirrored in agent/gpuheap/tracer/abi.py");

/* Where one build of CPython keeps what the stack walk reads. Offsets in bytes. */
struct interpreter {
	__u64 runtime; /* address of _PyRuntime; in `interpreter_files`: its distance from the probed function */
	__u64 code_type; /* address of PyCode_Type, once a code object was seen */
	__u32 interpreters_head; /* in _PyRuntime: newest PyInterpreterState */
	__u32 interpreter_next; /* in PyInterpreterState: an older one */
	__u32 threads_head; /* newest PyThreadState */
	__u32 code_generation; /* changes when a code object dies; 0: there is none */
	__u32 thread_next; /* in PyThreadState: an older one of the interpreter */
	__u32 thread_id;
	__u32 thread_frame;
	__u32 thread_cframe; /* a pointer into the C stack, when frames do not lead there; 0: there is none */
	__s32 cframe_frame; /* in _PyCFrame, which thread_frame then points at; -1: thread_frame is the frame */
	__u32 frames_apart; /* 1: frames are objects of their own, which do not lie close to one another */
	__u32 frame_code; /* in _PyInterpreterFrame, or PyFrameObject */
	__u32 frame_previous;
	__u32 frame_instruction;
	__u32 instruction_unit; /* bytes that frame_instruction counts in; 0: it is an address */
	__s32 frame_owner; /* -1: there is none */
	__s32 frame_entry; /* tells the first frame of a run of the evaluation function; -1: see enum frame_flags */
	__u32 frame_bytecode; /* which of the code object's copies of the instructions it executes */
	__u32 frame_versioned; /* the object that has the version: code or function */
	__u32 version; /* in it: a number that no other such object of the process has, or 0; 0: there is none */
	__u32 code_first_line; /* in PyCodeObject */
	__u32 code_file;
	__u32 code_name;
	__u32 code_lines;
	__u32 code_instructions;
	__u32 code_tag; /* low bits of frame_code that are not part of the address */
	__u32 code_bytecodes; /* the copies of the instructions; 0: there are none */
	__u32 code_counter; /* in _PyRuntime, of the main interpreter: counts the code objects made; 0: there is none */
	__u32 object_type; /* in PyObject */
	__u32 type_name; /* in PyTypeObject */
	__u32 type_flags;
	__u32 string_length; /* in PyUnicodeObject */
	__u32 string_state;
	__u32 string_kind; /* bit of the state at which the width of characters begins */
	__u32 string_ascii; /* where the characters begin, for ASCII strings */
	__u32 string_compact; /* and for the others; of subclasses, where their address is */
	__u32 bytes_size; /* in PyBytesObject */
	__u32 bytes_data;
	__u32 lines_format; /* handed on with line tables: what is in them */
};

_Static_assert(sizeof(struct interpreter) == 168, "mirrored in agent/gpuheap/tracer/abi.py");

/*
 * How many code objects a process has freed since the agent probed its code_dealloc. `count` begins with a number that the
 * agent gives only once.
 */
struct code_deaths {
	__u64 image;
	__u64 count;
};

_Static_assert(sizeof(struct code_deaths) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

/*
 * From 3.11 on, one run of _PyEval_EvalFrameDefault executes many Python frames. The frames of a stack, innermost first,
 * fall into runs that each end with this flag: one for each native frame of that function, in the same order. Of a run
 * that was cut the flag may be missing.
 *
 * 3.11 marks these frames itself (`is_entry`). From 3.12 on the run's entry frame, which lies on the C stack, is outside
 * of them. Before 3.11 every frame has a run of its own.
 */
enum frame_flags {
	FRAME_OUTERMOST = 1, /* the outermost Python frame of its run of the evaluation function */
};

/* A Python frame. `code` is a digest of what is shown of its code object, which an event has described. */
struct frame {
	__u64 code;
	__u32 instruction; /* byte offset in the code object's instructions */
	__u32 flags; /* enum frame_flags */
};

_Static_assert(sizeof(struct frame) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

/* Of a stack of more than GPUHEAP_MAX_FRAMES, the innermost GPUHEAP_INNER_FRAMES and the outermost ones are kept. */
struct stack {
	__u32 depth; /* frames in use; the innermost is first */
	__u32 cut; /* how many are missing behind the first GPUHEAP_INNER_FRAMES */
	__u32 endless; /* 1: it is so deep that the outermost frames were not reached */
	__u32 pad;
	struct frame frames[GPUHEAP_MAX_FRAMES];
};

_Static_assert(sizeof(struct stack) == 1040, "mirrored in agent/gpuheap/tracer/abi.py");

/* Values of site.stack that are no stack but the reason why there is none. */
enum stack_reason {
	STACK_NO_INTERPRETER = 1, /* no Python is known in this process, or not yet */
	STACK_NO_THREAD_STATE = 2, /* the thread never entered Python */
	STACK_FAULT = 3, /* memory that the walk needed could not be read */
	STACK_NO_ROOM = 4, /* map `stacks` is full */
	STACK_EMPTY = 5, /* the thread is in Python, but runs no Python function */
	STACK_NO_SITE = 6, /* map `sites` is full: all that the process allocates from new places */
	STACK_UNSEARCHED =
		7, /* the process has more Python threads than are looked through for this one */
	STACK_IMPLAUSIBLE =
		8, /* what should be code objects are none: the offsets are not right for this interpreter */
	STACK_REASONS = 16, /* real stacks have greater numbers */
};

/* Who allocates, and what. */
struct site {
	__u64 stack; /* key of map `stacks`, or an enum stack_reason */
	__u64 native; /* what stands for the native stack; 0: it was not taken */
	__u64 image;
	__u32 tid;
	__s16 device; /* ordinal in the process, or an enum device */
	__u8 kind;
	__u8 call;
};

_Static_assert(sizeof(struct site) == 32, "mirrored in agent/gpuheap/tracer/abi.py");

/* `held_*` is what was in use at out-of-memory failure number `moment`; valid if the site changed since. */
struct totals {
	__u64 allocated_bytes;
	__u64 allocated_objects;
	__u64 freed_bytes;
	__u64 freed_objects;
	__u64 held_bytes;
	__u64 held_objects;
	__u32 moment;
	__u32 pad;
};

_Static_assert(sizeof(struct totals) == 56, "mirrored in agent/gpuheap/tracer/abi.py");

struct live_key {
	__u64 address;
	__u64 image;
	__u32 space;
	__u32 pad;
};

_Static_assert(sizeof(struct live_key) == 24, "mirrored in agent/gpuheap/tracer/abi.py");

struct live_value {
	__u64 bytes;
	struct site site;
	__u64 owner; /* id of the context or graph with which it goes; 0: none */
	__u64 pool; /* of stream-ordered memory: key of map `pools`; NO_POOL: it is not of a pool */
	__u32 reopened; /* of another process's memory: how often it was opened once more */
	__u32 returned; /* put back by a free that failed: how many claims there were when it began, plus 1 */
};

#define NO_POOL (~0ULL)

_Static_assert(sizeof(struct live_value) == 64, "mirrored in agent/gpuheap/tracer/abi.py");

/* A handle of physical memory. It goes when nothing refers to it and nothing is mapped. */
struct handle {
	__u64 bytes;
	struct site site;
	__u64 id; /* nanoseconds at its creation: values of handles are used again */
	__s32 references;
	__s32 mappings;
};

_Static_assert(sizeof(struct handle) == 56, "mirrored in agent/gpuheap/tracer/abi.py");

/* Of a handle, or of the address at which one is mapped. */
struct handle_key {
	__u64 value;
	__u64 image;
};

_Static_assert(sizeof(struct handle_key) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

struct mapping {
	__u64 handle;
	__u64 id;
	__u64 bytes;
};

_Static_assert(sizeof(struct mapping) == 24, "mirrored in agent/gpuheap/tracer/abi.py");

/* Of a context, a graph or a device. */
struct owner_key {
	__u64 object;
	__u64 image;
	__u32 type;
	__u32 pad;
};

_Static_assert(sizeof(struct owner_key) == 24, "mirrored in agent/gpuheap/tracer/abi.py");

struct owner {
	__u64 id;
	__s32 device;
	__s32 references;
	__u32 primary; /* of a context: 1 if what it owns is its device's primary one's */
	__u32 pad;
};

_Static_assert(sizeof(struct owner) == 24, "mirrored in agent/gpuheap/tracer/abi.py");

/* Default pools have the ordinal of their device as their address: no pointer is that small. */
struct pool_key {
	__u64 pool;
	__u64 image;
};

_Static_assert(sizeof(struct pool_key) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

struct pool {
	__s64 in_use;
	__s64 peak; /* of in_use, since the pool was last trimmed */
	__u64 threshold; /* what it keeps when the program synchronises */
	__s32 device;
	__u32 pad;
};

_Static_assert(sizeof(struct pool) == 32, "mirrored in agent/gpuheap/tracer/abi.py");

struct failure_key {
	__u64 image;
	__u32 code; /* CUresult */
	__u32 pad;
};

_Static_assert(sizeof(struct failure_key) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

/* Index of map `losses`: each way in which something is lost or blurred. */
enum loss {
	LOSS_RING_FULL, /* an event for the agent */
	LOSS_SPILL_FULL, /* what a process does with allocations that are not in `live` */
	LOSS_PENDING_FULL, /* a call whose return could not be awaited */
	LOSS_LIVE_FULL, /* an allocation whose free failed, and which could not be put back */
	LOSS_SITES_FULL, /* an allocation that is charged to its process, but to no stack */
	LOSS_STACKS_FULL, /* a stack; its bytes are kept without it */
	LOSS_CODES_FULL, /* the name of a code object */
	LOSS_IMAGES_FULL, /* a process */
	LOSS_FAILURES_FULL, /* a failed call */
	LOSS_THREADS_FULL, /* a thread's calls, or its stacks */
	LOSS_HANDLES_FULL, /* a handle, or a mapping of one */
	LOSS_CONTEXTS_FULL, /* a context or graph: what it owns is not freed with it */
	LOSS_POOLS_FULL, /* what a pool retains */
	LOSS_FAULT, /* memory of the process that could not be read */
	LOSS_TRUNCATED_STACK, /* frames in the middle of a deep stack */
	LOSS_NO_THREAD_STATE, /* the Python stack of a thread, in a process that has Python */
	LOSS_UNKNOWN_FREE, /* a free of what was allocated before tracing began */
	LOSS_UNKNOWN_RELEASE, /* the release of a handle that is not known, or was released before */
	LOSS_UNMATCHED_RETURN, /* the return of a call that began before tracing did */
	LOSS_ADDRESS_REUSED, /* an address came again though its free was not seen */
	LOSS_UNKNOWN_DEVICE, /* an allocation on a GPU that is not known */
	LOSS_SNAPSHOT_RING_FULL, /* a copy of a native stack; the next allocation from there tries again */
	LOSS_SNAPSHOT_RATE, /* the same, as its process had too many in a short time */
	LOSS_THREAD_UNSEARCHED, /* the Python stack of a thread, in a process with very many */
	LOSS_IMPLAUSIBLE_STACK, /* the Python stack, of an interpreter that is not what it says */
	LOSS_REASONS,
};

enum event_type {
	EVENT_IMAGE = 1, /* a process was seen for the first time */
	EVENT_IMAGE_END = 2, /* it exited or exec'ed; what it held is free */
	EVENT_CODE = 3, /* a code object was seen for the first time */
	EVENT_OUT_OF_MEMORY = 4,
	EVENT_SPILL = 5, /* an allocation that is not in `live` */
	EVENT_SPILL_FREE = 6, /* a free that may be of one */
	EVENT_SPILL_KEEP = 7, /* ... and failed */
	EVENT_SNAPSHOT = 8, /* a native stack was seen for the first time */
	EVENT_TEXT = 9, /* the executable memory of a process has changed */
	EVENT_SAME_STACK = 10, /* a stack that could not be copied is one that is known */
};

struct image_event {
	__u32 type;
	__u32 tgid;
	struct image image;
	char name[16];
};

_Static_assert(sizeof(struct image_event) == 56, "mirrored in agent/gpuheap/tracer/abi.py");

struct memory_event {
	__u32 type;
	__u32 moment;
	__u64 asked;
	struct site site;
};

_Static_assert(sizeof(struct memory_event) == 48, "mirrored in agent/gpuheap/tracer/abi.py");

struct spill_event {
	__u32 type;
	__u32 moment; /* how many calls had failed for want of memory */
	struct live_key key;
	struct live_value value;
};

_Static_assert(sizeof(struct spill_event) == 96, "mirrored in agent/gpuheap/tracer/abi.py");

/*
 * What names a frame, copied while the process lives. Strings are PyUnicode data: their length is in characters of
 * `*_width` bytes, and only what fits is here: the beginning of the name, the end of the file's. `lines` is
 * co_linetable or co_lnotab; with a short one, so is the event.
 */
struct code_event {
	__u32 type;
	__u32 tgid;
	__u64 image;
	__u64 code;
	__u32 first_line;
	__u32 name_length;
	__u32 name_width;
	__u32 file_length;
	__u32 file_width;
	__u32 lines_bytes; /* of which at most GPUHEAP_LINES_BYTES are here */
	__u32 lines_format; /* as struct interpreter has it */
	__u32 pad;
	__u64 lines_address;
	__u8 name[GPUHEAP_NAME_BYTES];
	__u8 file[GPUHEAP_NAME_BYTES];
	__u8 lines[GPUHEAP_LINES_BYTES];
};

_Static_assert(sizeof(struct code_event) == 4672, "mirrored in agent/gpuheap/tracer/abi.py");

/* Of the thread whose call has returned to `ip`, by their names in the psABI. */
struct registers {
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u64 bx;
	__u64 r12;
	__u64 r13;
	__u64 r14;
	__u64 r15;
};

_Static_assert(sizeof(struct registers) == 64, "mirrored in agent/gpuheap/tracer/abi.py");

/* A return address that a return probe has taken from the stack, and where it stood. */
struct taken_return {
	__u64 stack;
	__u64 address;
};

_Static_assert(sizeof(struct taken_return) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

/*
 * A native stack. The pages of memory from that of `sp` on follow. With `other`: GPUHEAP_SIGNAL_PAGES of them at most, and
 * as many behind these of the stack that a signal has interrupted.
 */
struct snapshot_event {
	__u32 type;
	__u32 tgid;
	__u64 image;
	__u64 native; /* as in struct site */
	__u64 time_ns;
	__u64 trampoline; /* page to which return probes lead; 0: there is none */
	__u64 end; /* of what belongs to the stack, at most */
	struct registers registers;
	__u32 pages; /* that could be read */
	__u32 taken; /* of `returns` in use */
	__u64 other; /* its stack pointer; 0: there is none */
	__u64 other_end;
	__u32 other_pages;
	__u32 entered; /* of `entries` in use */
	struct taken_return returns[GPUHEAP_RETURNS];
	__u64 entries
		[GPUHEAP_ENTRIES]; /* what evaluations of Python functions keep on the stack, from 3.12 on */
	__u64 all_entered; /* whether these are all */
};

_Static_assert(sizeof(struct snapshot_event) == 1688, "mirrored in agent/gpuheap/tracer/abi.py");

struct same_stack_event {
	__u32 type;
	__u32 pad;
	__u64 image;
	__u64 native; /* as in struct site */
	__u64 known; /* what it is called from now on */
};

_Static_assert(sizeof(struct same_stack_event) == 32, "mirrored in agent/gpuheap/tracer/abi.py");

struct text_event {
	__u32 type;
	__u32 tgid;
	__u64 image;
	__u64 pages; /* of executable memory, as the kernel counts them */
};

_Static_assert(sizeof(struct text_event) == 24, "mirrored in agent/gpuheap/tracer/abi.py");

/* How to get from a frame to its caller's: the agent has it from the file of the code. */
enum frame_base {
	BASE_SP =
		1, /* the CFA is so far from the stack pointer; the return address is right below it */
	BASE_BP = 2,
	BASE_ROOT = 3, /* there is no caller */
};

struct unwind_key {
	__u64 pc;
	__u64 text; /* `id` of struct text */
};

_Static_assert(sizeof(struct unwind_key) == 16, "mirrored in agent/gpuheap/tracer/abi.py");

struct unwind_rule {
	__s32 cfa; /* from the base */
	__s16 saved_bp; /* from the CFA; 0: the caller's is the same */
	__u16 base;
};

_Static_assert(sizeof(struct unwind_rule) == 8, "mirrored in agent/gpuheap/tracer/abi.py");

/*
 * Where a process has executable memory, as the agent has read it. `windows` has at (address >> WINDOW_BITS) %
 * PLACES that number << 8 | which part of `bits` is about it; all ones: there is none.
 */
struct text {
	__u64 pages; /* of the event that asked for it; when the kernel counts others, it has become wrong */
	__u64 id; /* another one when code has gone: what was said of its addresses is void */
	__u64 factor; /* gives each of its windows a place of its own: number * factor, without the low bits */
	__u32 windows[GPUHEAP_TEXT_PLACES];
	__u64 bits[GPUHEAP_TEXT_WINDOWS * GPUHEAP_TEXT_WORDS];
};

_Static_assert(sizeof(struct text) == 65816, "mirrored in agent/gpuheap/tracer/abi.py");

#define GPUHEAP_SHORT_CODE_EVENT \
	(sizeof(struct code_event) - GPUHEAP_LINES_BYTES + GPUHEAP_SHORT_LINES_BYTES)

#endif

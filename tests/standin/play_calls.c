/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that `play` knows, and how words become their arguments. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play.h"

#define REGISTERS 10000
#define MOST 8

/*
 * One letter for each argument of the C function:
 *   r  a pointer to a result, for which a register is given          v  a value
 *   n  a null pointer, for which nothing is given                    w  a pointer to a value
 *   L  CUmemAllocationProp, CUmemPoolProps: location type and id     S  CUmulticastObjectProp: devices, bytes
 *   G  CUDA_MEM_ALLOC_NODE_PARAMS: location type, id, bytes, and a register for the address
 *   P  CUDA_ARRAY_DESCRIPTOR: width, height, format, channels        D  the same in 3D: ..., depth, ...
 *   E  CUDA_EXTERNAL_MEMORY_HANDLE_DESC: type, bytes                 B  ..._BUFFER_DESC: offset, bytes
 *   H  a pointer to a CUipcMemHandle, for which a register is given  I  such a handle by value, alone on the stack
 */
static struct call {
	const char *name, *shape;
	void *function;
} calls[] = {
	{ .name = "cuInit", .shape = "v" },
	{ .name = "cuDeviceGetCount", .shape = "r" },
	{ .name = "cuDeviceGet", .shape = "rv" },
	{ .name = "cuDriverGetVersion", .shape = "r" },
	{ .name = "cuMemGetInfo_v2", .shape = "rr" },
	{ .name = "cuCtxCreate_v2", .shape = "rvv" },
	{ .name = "cuCtxCreate_v3", .shape = "rnvvv" },
	{ .name = "cuCtxCreate_v4", .shape = "rnvv" },
	{ .name = "cuCtxDestroy_v2", .shape = "v" },
	{ .name = "cuDevicePrimaryCtxRetain", .shape = "rv" },
	{ .name = "cuDevicePrimaryCtxRelease_v2", .shape = "v" },
	{ .name = "cuDevicePrimaryCtxReset_v2", .shape = "v" },
	{ .name = "cuCtxSetCurrent", .shape = "v" },
	{ .name = "cuCtxPushCurrent_v2", .shape = "v" },
	{ .name = "cuCtxPopCurrent_v2", .shape = "r" },
	{ .name = "cuCtxGetCurrent", .shape = "r" },
	{ .name = "cuCtxGetDevice", .shape = "r" },
	{ .name = "cuCtxSynchronize", .shape = "" },
	{ .name = "cuGreenCtxCreate", .shape = "rnvv" },
	{ .name = "cuGreenCtxDestroy", .shape = "v" },
	{ .name = "cuCtxFromGreenCtx", .shape = "rv" },
	{ .name = "cuMemAlloc_v2", .shape = "rv" },
	{ .name = "cuMemAllocPitch_v2", .shape = "rrvvv" },
	{ .name = "cuMemAllocManaged", .shape = "rvv" },
	{ .name = "cuMemFree_v2", .shape = "v" },
	{ .name = "cuMemAlloc", .shape = "rv" },
	{ .name = "cuMemAllocPitch", .shape = "rrvvv" },
	{ .name = "cuMemFree", .shape = "v" },
	{ .name = "cuMemAllocHost_v2", .shape = "rv" },
	{ .name = "cuMemHostAlloc", .shape = "rvv" },
	{ .name = "cuMemFreeHost", .shape = "v" },
	{ .name = "cuMemHostRegister_v2", .shape = "vvv" },
	{ .name = "cuMemHostUnregister", .shape = "v" },
	{ .name = "cuMemAllocAsync", .shape = "rvn" },
	{ .name = "cuMemAllocAsync_ptsz", .shape = "rvn" },
	{ .name = "cuMemAllocFromPoolAsync", .shape = "rvvn" },
	{ .name = "cuMemAllocFromPoolAsync_ptsz", .shape = "rvvn" },
	{ .name = "cuMemFreeAsync", .shape = "vn" },
	{ .name = "cuMemFreeAsync_ptsz", .shape = "vn" },
	{ .name = "cuMemPoolCreate", .shape = "rL" },
	{ .name = "cuMemPoolDestroy", .shape = "v" },
	{ .name = "cuMemPoolTrimTo", .shape = "vv" },
	{ .name = "cuMemPoolSetAttribute", .shape = "vvw" },
	{ .name = "cuMemPoolGetAttribute", .shape = "vvr" },
	{ .name = "cuDeviceGetDefaultMemPool", .shape = "rv" },
	{ .name = "cuDeviceGetMemPool", .shape = "rv" },
	{ .name = "cuDeviceSetMemPool", .shape = "vv" },
	{ .name = "cuStreamSynchronize", .shape = "n" },
	{ .name = "cuMemCreate", .shape = "rvLv" },
	{ .name = "cuMemRelease", .shape = "v" },
	{ .name = "cuMemRetainAllocationHandle", .shape = "rv" },
	{ .name = "cuMemExportToShareableHandle", .shape = "rvvv" },
	{ .name = "cuMemImportFromShareableHandle", .shape = "rvv" },
	{ .name = "cuMulticastCreate", .shape = "rS" },
	{ .name = "cuMemAddressReserve", .shape = "rvvvv" },
	{ .name = "cuMemAddressFree", .shape = "vv" },
	{ .name = "cuMemMap", .shape = "vvvvv" },
	{ .name = "cuMemUnmap", .shape = "vv" },
	{ .name = "cuMemSetAccess", .shape = "vvnv" },
	{ .name = "cuArrayCreate_v2", .shape = "rP" },
	{ .name = "cuArray3DCreate_v2", .shape = "rD" },
	{ .name = "cuMipmappedArrayCreate", .shape = "rDv" },
	{ .name = "cuArrayDestroy", .shape = "v" },
	{ .name = "cuMipmappedArrayDestroy", .shape = "v" },
	{ .name = "cuIpcGetMemHandle", .shape = "Hv" },
	{ .name = "cuIpcOpenMemHandle_v2", .shape = "rIv" },
	{ .name = "cuIpcCloseMemHandle", .shape = "v" },
	{ .name = "cuImportExternalMemory", .shape = "rE" },
	{ .name = "cuDestroyExternalMemory", .shape = "v" },
	{ .name = "cuExternalMemoryGetMappedBuffer", .shape = "rvB" },
	{ .name = "cuGraphCreate", .shape = "rv" },
	{ .name = "cuGraphAddMemAllocNode", .shape = "rvnnG" },
	{ .name = "cuGraphAddMemFreeNode", .shape = "rvnnv" },
	{ .name = "cuGraphDestroy", .shape = "v" },
	{ .name = "standin_refuse_frees", .shape = "v" },
	{ .name = "standin_fail_next", .shape = "vv" },
	{ .name = "standin_demand_contexts", .shape = "" },
};

#define CALLS (sizeof(calls) / sizeof(*calls))

struct ipc_handle {
	char bytes[64];
};

static uint64_t registers[REGISTERS];
static struct ipc_handle *handles[REGISTERS];

void fail(const char *what, const char *word)
{
	fprintf(stderr, "play: %s: %s\n", what, word ? word : "the line is too short");
	exit(2);
}

static size_t register_of(const char *word)
{
	size_t at = word && *word == 'r' ? strtoul(word + 1, NULL, 10) : REGISTERS;

	if (at >= REGISTERS)
		fail("not a register", word);
	return at;
}

uint64_t value(const char *word)
{
	char *end;
	uint64_t is;

	if (!word)
		fail("not a value", word);
	if (*word != 'r')
		return strtoull(word, NULL, 0);
	is = __atomic_load_n(&registers[register_of(word)], __ATOMIC_RELAXED);
	strtoul(word + 1, &end, 10);
	return *end == '+' ? is + strtoull(end + 1, NULL, 0) : is;
}

void set_register(const char *word, uint64_t to)
{
	__atomic_store_n(&registers[register_of(word)], to, __ATOMIC_RELAXED);
}

/* A call's arguments in the making. What they point to is here too. */
struct arguments {
	uint64_t values[MOST];
	uint64_t results[MOST];
	size_t into[MOST]; /* registers */
	int count, result_count;
	char structure[256];
	struct ipc_handle handle;
	int by_value;
};

static void put32(struct arguments *arguments, size_t offset, uint64_t is)
{
	uint32_t word = is;

	memcpy(arguments->structure + offset, &word, sizeof(word));
}

static void put64(struct arguments *arguments, size_t offset, uint64_t is)
{
	memcpy(arguments->structure + offset, &is, sizeof(is));
}

static uint64_t result_in(struct arguments *arguments, const char *word)
{
	int at = arguments->result_count++;

	arguments->into[at] = register_of(word);
	return (uintptr_t)&arguments->results[at];
}

/* Fills the structure of that letter from words; how many it took. */
static int structure(struct arguments *arguments, char letter, char *const *words)
{
	uint64_t given[6] = { 0 };
	int count = strchr("LSEB", letter) ? 2 : letter == 'G' ? 3 : letter == 'P' ? 4 : 5;

	for (int i = 0; i < count; i++)
		given[i] = value(words[i]);
	if (letter == 'L' || letter == 'G') {
		put32(arguments, 0, 1); /* pinned */
		put32(arguments, 8, given[0]);
		put32(arguments, 12, given[1]);
		put64(arguments, 104, given[2]);
	} else if (letter == 'S') {
		put32(arguments, 0, given[0]);
		put64(arguments, 8, given[1]);
	} else if (letter == 'E') {
		put32(arguments, 0, given[0]);
		put64(arguments, 24, given[1]);
	} else if (letter == 'B') {
		put64(arguments, 0, given[0]);
		put64(arguments, 8, given[1]);
	} else {
		int extents = count - 2;

		for (int i = 0; i < extents; i++)
			put64(arguments, 8 * i, given[i]);
		put32(arguments, 8 * extents, given[extents]);
		put32(arguments, 8 * extents + 4, given[extents + 1]);
	}
	return count;
}

static struct ipc_handle *handle_of(const char *word)
{
	size_t at = register_of(word);

	if (!handles[at])
		handles[at] = calloc(1, sizeof(struct ipc_handle));
	return handles[at];
}

static void prepare(struct arguments *arguments, const struct line *line)
{
	char *const *word = line->words;

	for (const char *letter = line->call->shape; *letter; letter++) {
		uint64_t is = 0;

		if (*letter == 'r') {
			is = result_in(arguments, *word++);
		} else if (*letter == 'v') {
			is = value(*word++);
		} else if (*letter == 'w') {
			put64(arguments, 0, value(*word++));
			is = (uintptr_t)arguments->structure;
		} else if (*letter == 'H') {
			is = (uintptr_t)handle_of(*word++);
		} else if (*letter == 'I') {
			arguments->handle = *handle_of(*word++);
			arguments->by_value = 1;
			continue; /* takes no register of the processor */
		} else if (*letter != 'n') {
			is = (uintptr_t)arguments->structure;
			word += structure(arguments, *letter, word);
		}
		arguments->values[arguments->count++] = is;
	}
}

static void keep_results(struct arguments *arguments)
{
	for (int i = 0; i < arguments->result_count; i++)
		__atomic_store_n(&registers[arguments->into[i]], arguments->results[i],
				 __ATOMIC_RELAXED);
}

/* All arguments are integers or pointers, so a function is given as many as there are and does not miss the rest. */
int perform(const struct line *line)
{
	struct arguments arguments = { 0 };
	const uint64_t *v = arguments.values;
	const struct call *call = line->call;
	int result;

	prepare(&arguments, line);
	if (arguments.by_value)
		result = ((int (*)(uint64_t, struct ipc_handle, unsigned int))call->function)(
			v[0], arguments.handle, v[1]);
	else
		result = ((int (*)(uint64_t, uint64_t, uint64_t, uint64_t,
				   uint64_t))call->function)(v[0], v[1], v[2], v[3], v[4]);
	if (strncmp(call->name, "cu", 2))
		return 0;
	if (!result)
		keep_results(&arguments);
	if (!result && strchr(call->shape, 'G')) {
		uint64_t address;

		memcpy(&address, arguments.structure + 112, sizeof(address));
		set_register(line->words[5], address);
	}
	return result;
}

void load_calls(void *driver)
{
	for (size_t i = 0; i < CALLS; i++) {
		calls[i].function = dlsym(driver, calls[i].name);
		if (!calls[i].function)
			fail("not in the driver", calls[i].name);
	}
}

const struct call *call_named(const char *name)
{
	for (size_t i = 0; i < CALLS; i++)
		if (!strcmp(calls[i].name, name))
			return &calls[i];
	fail("unknown call", name);
}

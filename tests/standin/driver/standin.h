/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the stand-in driver share: result codes, objects, the ledger, the frame of every exported call.
 *
 * Everything a program can hold is an object: it has a key (an address or a handle) in a space of keys, a kind and bytes
 * in the ledger, and perhaps an owner whose end is its own. One lock guards all; an exported function takes it by one of
 * the macros ANSWER, ALLOCATION and RELEASE, and everything else runs below it.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default"), noinline))
#define MAX_DEVICES 16
#define HOST (-1) /* the device ordinal of host memory */
#define PAGE (2ull << 20) /* granularity of virtual memory management */
#define HANDLE_BYTES 64 /* what a handle takes of the address space */

typedef enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_OPERATING_SYSTEM = 304,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_NOT_SUPPORTED = 801,
} CUresult;

typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1;
typedef int CUdevice;
typedef uint64_t handle; /* CUcontext, CUarray, ...: pointers that nobody follows */

struct location {
	int type; /* 1: a device, 2 to 4: the host */
	int id;
};

enum space {
	ADDRESS, /* what cuMemFree takes */
	HOST_ADDRESS,
	REGISTERED,
	IPC_ADDRESS,
	ARRAY,
	MIPMAPPED_ARRAY,
	EXTERNAL,
	PHYSICAL,
	RESERVATION,
	GRAPH,
	GRAPH_NODE,
	GRAPH_ADDRESS,
	CONTEXT,
	GREEN_CONTEXT,
	POOL,
};

enum kind { DEVICE, MANAGED, PINNED_HOST, ARRAYS, GRAPHS, IMPORTED, KINDS, NO_MEMORY = KINDS };

struct object {
	enum space space;
	enum kind kind;
	uint64_t key;
	size_t bytes;
	int device;
	bool narrow; /* the address is below 4 GiB */
	unsigned int references;
	uint64_t serial; /* tells apart objects that have the same key one after the other */
	uint64_t source; /* an import: the serial of what it imports */
	struct pool *pool;
	struct object *chain; /* with the same hash */
	struct object *next, **link; /* of the same owner */
};

struct context {
	struct object base; /* references: of a primary context; it is active while there are any */
	bool primary;
	struct context *home; /* whose end frees what is allocated here */
	struct object *owned;
};

struct pool {
	struct object base;
	bool is_default, destroyed;
	size_t live, reserved, live_high, reserved_high, threshold, limit;
	struct pool *next;
};

/* objects.c */
void objects_start(void);
struct object *find(enum space space, uint64_t key);
void *create(size_t size, enum space space, uint64_t key);
void own(struct object **owner, struct object *object);
void forget(struct object *object); /* no longer found, no longer owned; its memory remains */
void drop(struct object *object); /* forgets, accounts, gives the key back and frees */
void drop_all(struct object **owner);
CUdeviceptr
place(size_t bytes); /* 0 when there is no room; an address given back is the next one given */
CUdeviceptr place_narrow(size_t bytes);
void give_back(CUdeviceptr address, size_t bytes, bool narrow);
handle new_handle(void);
CUresult hold(struct object **owner, enum space space, enum kind kind, int device, size_t bytes,
	      uint64_t *key);

/* ledger.c */
void enter(void);
CUresult leave(CUresult result);
CUresult leave_allocation(const char *call, CUresult result);
CUresult leave_release(const char *call, CUresult result);
CUresult uninitialized(void);
CUresult planned_failure(void);
CUresult refusal(void); /* asked for when what shall be freed is known */
bool room(int device, size_t bytes);
void fill(int device, size_t bytes);
void drain(int device, size_t bytes);
size_t filled(int device);
void account_allocation(const struct object *object);
void account_release(const struct object *object);

#define ANSWER(result) (enter(), leave(uninitialized() ?: (result)))
#define ALLOCATION(result) \
	(enter(), leave_allocation(__func__, uninitialized() ?: planned_failure() ?: (result)))
#define RELEASE(result) (enter(), leave_release(__func__, uninitialized() ?: (result)))

/* device.c */
extern int devices; /* 0 before cuInit */
size_t capacity(void);
static inline bool is_device(int ordinal)
{
	return ordinal >= 0 && ordinal < devices;
}
CUresult locate(const struct location *location, int *device); /* HOST for host locations */

/* contexts.c */
void contexts_start(void);
CUresult current(struct context **context); /* of the calling thread */

/* host.c */
void unregistered(const struct object *object);

/* pools.c */
void pools_start(void);
void pool_release(struct object *object);
struct pool *first_pool(void);

#endif

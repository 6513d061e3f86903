/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects by key, and the address space that device memory and handles are numbers of.
 *
 * The address space is reserved, never touched. A number that is given back is the first to be given again, to an object
 * of about the same size: as soon as a free has happened, another thread can be given the same address.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "standin.h"

#define BUCKETS (1u << 20)
#define CLASSES 44 /* powers of two */
#define SMALLEST 9 /* allocations are aligned like the driver's small ones */
#define WIDE_BYTES (16ull << 40)
#define NARROW_BYTES (512ull << 20)

struct arena {
	uintptr_t next, end;
	struct {
		uintptr_t *addresses;
		size_t count, room;
	} given_back[CLASSES];
};

static struct object **buckets;
static struct arena wide, narrow;
static uint64_t serials;

static void *reserve(size_t bytes, int flags)
{
	void *memory = mmap(NULL, bytes, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

void objects_start(void)
{
	buckets = mmap(NULL, BUCKETS * sizeof(*buckets), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	wide.next = (uintptr_t)reserve(WIDE_BYTES, 0);
	wide.end = wide.next ? wide.next + WIDE_BYTES : 0;
	if (buckets == MAP_FAILED || !wide.next)
		abort();
}

static int class_of(size_t bytes)
{
	return bytes <= 1u << SMALLEST ? SMALLEST : 64 - __builtin_clzll(bytes - 1);
}

static CUdeviceptr take(struct arena *arena, size_t bytes)
{
	int class = class_of(bytes);
	size_t whole, alignment;
	uintptr_t address;

	if (class >= CLASSES)
		return 0;
	if (arena->given_back[class].count)
		return arena->given_back[class].addresses[--arena->given_back[class].count];
	whole = (size_t)1 << class;
	alignment = whole < PAGE ? whole : PAGE;
	address = (arena->next + alignment - 1) & ~(alignment - 1);
	if (!arena->end || address > arena->end || arena->end - address < whole)
		return 0;
	arena->next = address + whole;
	return address;
}

CUdeviceptr place(size_t bytes)
{
	return take(&wide, bytes);
}

CUdeviceptr place_narrow(size_t bytes)
{
	if (!narrow.end) {
		narrow.next = (uintptr_t)reserve(NARROW_BYTES, MAP_32BIT);
		narrow.end = narrow.next ? narrow.next + NARROW_BYTES : 0;
	}
	return take(&narrow, bytes);
}

handle new_handle(void)
{
	return place(HANDLE_BYTES);
}

void give_back(CUdeviceptr address, size_t bytes, bool is_narrow)
{
	struct arena *arena = is_narrow ? &narrow : &wide;
	int class = class_of(bytes);

	if (arena->given_back[class].count == arena->given_back[class].room) {
		size_t room = 2 * arena->given_back[class].room + 64;

		arena->given_back[class].room = room;
		arena->given_back[class].addresses =
			realloc(arena->given_back[class].addresses, room * sizeof(uintptr_t));
		if (!arena->given_back[class].addresses)
			abort();
	}
	arena->given_back[class].addresses[arena->given_back[class].count++] = address;
}

static struct object **bucket(enum space space, uint64_t key)
{
	return &buckets[((key >> SMALLEST) + space) * 0x9e3779b97f4a7c15ull >> 44];
}

struct object *find(enum space space, uint64_t key)
{
	struct object *object = *bucket(space, key);

	while (object && (object->key != key || object->space != space))
		object = object->chain;
	return object;
}

void *create(size_t size, enum space space, uint64_t key)
{
	struct object **head = bucket(space, key);
	struct object *object = calloc(1, size);

	if (!object)
		abort();
	object->space = space;
	object->kind = NO_MEMORY;
	object->key = key;
	object->device = HOST;
	object->serial = ++serials;
	object->chain = *head;
	*head = object;
	return object;
}

void own(struct object **owner, struct object *object)
{
	object->next = *owner;
	object->link = owner;
	if (*owner)
		(*owner)->link = &object->next;
	*owner = object;
}

void forget(struct object *object)
{
	struct object **at = bucket(object->space, object->key);

	while (*at != object)
		at = &(*at)->chain;
	*at = object->chain;
	if (!object->link)
		return;
	*object->link = object->next;
	if (object->next)
		object->next->link = object->link;
}

void drop(struct object *object)
{
	forget(object);
	account_release(object);
	if (object->pool)
		pool_release(object);
	if (object->space == HOST_ADDRESS)
		munmap((void *)(uintptr_t)object->key, object->bytes);
	else if (object->space == REGISTERED)
		unregistered(object);
	else if (object->space == ADDRESS || object->space == IPC_ADDRESS ||
		 object->space == GRAPH_ADDRESS || object->space == RESERVATION)
		give_back(object->key, object->bytes, object->narrow);
	else
		give_back(object->key, HANDLE_BYTES, false);
	free(object);
}

void drop_all(struct object **owner)
{
	while (*owner)
		drop(*owner);
}

/* The usual allocation: room on the device, a key, an entry in the ledger, an owner. */
CUresult hold(struct object **owner, enum space space, enum kind kind, int device, size_t bytes,
	      uint64_t *key)
{
	bool address = space == ADDRESS || space == GRAPH_ADDRESS;
	struct object *object;

	if ((kind == DEVICE || kind == ARRAYS) && !room(device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*key = address ? place(bytes) : new_handle();
	if (!*key)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object = create(sizeof(*object), space, *key);
	object->kind = kind;
	object->device = device;
	object->bytes = bytes;
	own(owner, object);
	account_allocation(object);
	return CUDA_SUCCESS;
}

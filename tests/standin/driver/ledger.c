/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has really happened, for tests to hold against what a tracer says; and failures that tests ask for.
 *
 *   size_t standin_ledger_json(char *buffer, size_t size)   one JSON object on one line (like snprintf: the length that
 *                                                           it has, written only as far as it fits, ended by 0):
 *     {"kinds": [{"kind": "device", "device": 0, "allocated_bytes": 7, "allocated_objects": 1,
 *                 "freed_bytes": 0, "freed_objects": 0}, ...],
 *      "failed": {"2": 1},                                  allocating calls that failed, by CUresult
 *      "failed_calls": {"cuMemAlloc_v2": {"2": 1}},         the same by function
 *      "failed_frees": {"cuMemFree_v2": {"1": 1}},          freeing calls that failed
 *      "pools": [{"pool": 1, "device": 0, "live_bytes": 0, "reserved_bytes": 0, "destroyed": false}, ...]}
 *     Kinds: device, managed, pinned_host, array, graph, imported. Device -1 is the host. A row that would be all zero
 *     is left out; so is a default pool that reserves nothing, and a destroyed one that holds nothing.
 *   void standin_ledger(struct ledger *)       totals of kind device, failed allocations, frees of unknown things
 *   void standin_refuse_frees(int count)       the next `count` freeing calls of something known fail with 719
 *   void standin_fail_next(int code, int count)  the next `count` allocating calls fail with `code`
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "standin.h"

#define FAILURES 256

struct ledger {
	uint64_t allocated_bytes, allocated_objects, freed_bytes, freed_objects, failed,
		unknown_frees;
};

struct counts {
	uint64_t allocated_bytes, allocated_objects, freed_bytes, freed_objects;
};

/* By function and code, in the order of their first failures. */
struct failures {
	struct {
		const char *call;
		CUresult result;
		uint64_t count;
	} rows[FAILURES];
};

static const char *const kind_names[KINDS] = { "device", "managed", "pinned_host",
					       "array",	 "graph",   "imported" };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct counts counts[KINDS][MAX_DEVICES + 1]; /* the host first */
static struct failures allocations, frees;
static size_t used[MAX_DEVICES];
static int frees_to_refuse, allocations_to_fail;
static CUresult failure;

void enter(void)
{
	pthread_mutex_lock(&lock);
}

CUresult leave(CUresult result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

/* The last row takes what finds no place: more functions times codes than any test has. */
static void count_failure(struct failures *failures, const char *call, CUresult result)
{
	int at = 0;

	while (at < FAILURES - 1 && failures->rows[at].count &&
	       (failures->rows[at].call != call || failures->rows[at].result != result))
		at++;
	failures->rows[at].call = call;
	failures->rows[at].result = result;
	failures->rows[at].count++;
}

CUresult leave_allocation(const char *call, CUresult result)
{
	if (result)
		count_failure(&allocations, call, result);
	return leave(result);
}

CUresult leave_release(const char *call, CUresult result)
{
	if (result)
		count_failure(&frees, call, result);
	return leave(result);
}

CUresult uninitialized(void)
{
	return devices ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult planned_failure(void)
{
	if (!allocations_to_fail)
		return CUDA_SUCCESS;
	allocations_to_fail--;
	return failure;
}

/* 719 is what an earlier kernel's fault makes of every later call. */
CUresult refusal(void)
{
	if (!frees_to_refuse)
		return CUDA_SUCCESS;
	frees_to_refuse--;
	return CUDA_ERROR_LAUNCH_FAILED;
}

bool room(int device, size_t bytes)
{
	return device == HOST || bytes <= capacity() - used[device];
}

void fill(int device, size_t bytes)
{
	if (device != HOST)
		used[device] += bytes;
}

void drain(int device, size_t bytes)
{
	if (device != HOST)
		used[device] -= bytes;
}

size_t filled(int device)
{
	return used[device];
}

/* A pool fills the device, not what is allocated from it. */
static bool fills(const struct object *object)
{
	return (object->kind == DEVICE || object->kind == ARRAYS) && !object->pool;
}

void account_allocation(const struct object *object)
{
	struct counts *row;

	if (object->kind == NO_MEMORY)
		return;
	row = &counts[object->kind][object->device + 1];
	row->allocated_bytes += object->bytes;
	row->allocated_objects++;
	if (fills(object))
		fill(object->device, object->bytes);
}

void account_release(const struct object *object)
{
	struct counts *row;

	if (object->kind == NO_MEMORY)
		return;
	row = &counts[object->kind][object->device + 1];
	row->freed_bytes += object->bytes;
	row->freed_objects++;
	if (fills(object))
		drain(object->device, object->bytes);
}

struct text {
	char *at;
	size_t room, length;
	bool first;
};

static __attribute__((format(printf, 2, 3))) void say(struct text *text, const char *format, ...)
{
	va_list arguments;
	size_t left = text->length < text->room ? text->room - text->length : 0;

	va_start(arguments, format);
	text->length += vsnprintf(left ? text->at + text->length : NULL, left, format, arguments);
	va_end(arguments);
}

static const char *comma(struct text *text)
{
	const char *between = text->first ? "" : ", ";

	text->first = false;
	return between;
}

static void say_kinds(struct text *text)
{
	text->first = true;
	for (int kind = 0; kind < KINDS; kind++)
		for (int device = HOST; device < MAX_DEVICES; device++) {
			struct counts *row = &counts[kind][device + 1];

			if (!row->allocated_objects)
				continue;
			say(text,
			    "%s{\"kind\": \"%s\", \"device\": %d, \"allocated_bytes\": %lu, "
			    "\"allocated_objects\": %lu, \"freed_bytes\": %lu, \"freed_objects\": %lu}",
			    comma(text), kind_names[kind], device, row->allocated_bytes,
			    row->allocated_objects, row->freed_bytes, row->freed_objects);
		}
}

static bool seen_before(const struct failures *failures, int at, bool by_code)
{
	for (int i = 0; i < at; i++)
		if (by_code ? failures->rows[i].result == failures->rows[at].result
			    : failures->rows[i].call == failures->rows[at].call)
			return true;
	return false;
}

static void say_codes(struct text *text, const struct failures *failures)
{
	text->first = true;
	for (int i = 0; i < FAILURES && failures->rows[i].count; i++) {
		uint64_t count = 0;

		if (seen_before(failures, i, true))
			continue;
		for (int j = i; j < FAILURES; j++)
			if (failures->rows[j].result == failures->rows[i].result)
				count += failures->rows[j].count;
		say(text, "%s\"%d\": %lu", comma(text), failures->rows[i].result, count);
	}
}

static void say_calls(struct text *text, const struct failures *failures)
{
	text->first = true;
	for (int i = 0; i < FAILURES && failures->rows[i].count; i++) {
		if (seen_before(failures, i, false))
			continue;
		say(text, "%s\"%s\": {", comma(text), failures->rows[i].call);
		for (int j = i; j < FAILURES && failures->rows[j].count; j++)
			if (failures->rows[j].call == failures->rows[i].call)
				say(text, "%s\"%d\": %lu", j == i ? "" : ", ",
				    failures->rows[j].result, failures->rows[j].count);
		say(text, "}");
	}
}

static void say_pools(struct text *text)
{
	text->first = true;
	for (struct pool *pool = first_pool(); pool; pool = pool->next)
		if (!pool->is_default || pool->live || pool->reserved)
			say(text,
			    "%s{\"pool\": %lu, \"device\": %d, \"live_bytes\": %lu, "
			    "\"reserved_bytes\": %lu, \"destroyed\": %s}",
			    comma(text), pool->base.key, pool->base.device, pool->live,
			    pool->reserved, pool->destroyed ? "true" : "false");
}

API size_t standin_ledger_json(char *buffer, size_t size)
{
	struct text text = { .at = buffer, .room = size };

	enter();
	say(&text, "{\"kinds\": [");
	say_kinds(&text);
	say(&text, "], \"failed\": {");
	say_codes(&text, &allocations);
	say(&text, "}, \"failed_calls\": {");
	say_calls(&text, &allocations);
	say(&text, "}, \"failed_frees\": {");
	say_calls(&text, &frees);
	say(&text, "}, \"pools\": [");
	say_pools(&text);
	say(&text, "]}");
	leave(CUDA_SUCCESS);
	return text.length;
}

static uint64_t failed(const struct failures *failures, CUresult but)
{
	uint64_t count = 0;

	for (int i = 0; i < FAILURES; i++)
		count += failures->rows[i].result == but ? 0 : failures->rows[i].count;
	return count;
}

API void standin_ledger(struct ledger *into)
{
	enter();
	memset(into, 0, sizeof(*into));
	for (int device = 0; device < MAX_DEVICES; device++) {
		struct counts *row = &counts[DEVICE][device + 1];

		into->allocated_bytes += row->allocated_bytes;
		into->allocated_objects += row->allocated_objects;
		into->freed_bytes += row->freed_bytes;
		into->freed_objects += row->freed_objects;
	}
	into->failed = failed(&allocations, CUDA_SUCCESS);
	into->unknown_frees = failed(&frees, CUDA_ERROR_LAUNCH_FAILED);
	leave(CUDA_SUCCESS);
}

API void standin_refuse_frees(int count)
{
	enter();
	frees_to_refuse = count;
	leave(CUDA_SUCCESS);
}

API void standin_fail_next(int code, int count)
{
	enter();
	failure = code;
	allocations_to_fail = count;
	leave(CUDA_SUCCESS);
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stream-ordered memory pools: what they have in use, and what they keep beyond it.
 *
 * A pool's address in map `pools` is its handle; that of a default pool is the ordinal of its device, as its handle is
 * only known to those who ask for it. `default_pools` knows these handles, `current_pools` which pool cuMemAllocAsync
 * takes from.
 */
#ifndef GPUHEAP_POOLS_BPF_H
#define GPUHEAP_POOLS_BPF_H

#include "owners.bpf.h"

/* CUmemPool_attribute */
#define POOL_RELEASE_THRESHOLD 4
#define POOL_RESERVED_CURRENT 5

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pool_key); /* the handle */
	__type(value, __s32); /* the device */
} default_pools SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pool_key); /* `pool` is the device */
	__type(value, __u64); /* address of a pool */
} current_pools SEC(".maps");

static __noinline struct pool *learn_pool(__u64 image, __u64 address, __s32 device)
{
	struct pool_key key = { .pool = address, .image = image };
	struct pool made = { .device = device };
	struct pool *pool = bpf_map_lookup_elem(&pools, &key);

	if (pool)
		return pool;
	bpf_map_update_elem(&pools, &key, &made, BPF_NOEXIST);
	pool = bpf_map_lookup_elem(&pools, &key);
	if (!pool)
		lost(LOSS_POOLS_FULL);
	return pool;
}

/* The address of the pool with this handle. */
static __always_inline __u64 pool_address(__u64 image, __u64 handle)
{
	struct pool_key key = { .pool = handle, .image = image };
	__s32 *device = bpf_map_lookup_elem(&default_pools, &key);

	return device ? *device : handle;
}

/* The address of the pool that cuMemAllocAsync takes from on this device. */
static __always_inline __u64 current_pool(__u64 image, __s32 device)
{
	struct pool_key key = { .pool = device, .image = image };
	__u64 *address = bpf_map_lookup_elem(&current_pools, &key);

	if (device < 0)
		return NO_POOL;
	return address ? *address : device;
}

static __always_inline void set_default_pool(__u64 image, __s32 device, __u64 handle)
{
	struct pool_key key = { .pool = handle, .image = image };

	bpf_map_update_elem(&default_pools, &key, &device, BPF_ANY);
}

static __always_inline void set_current_pool(__u64 image, __s32 device, __u64 handle)
{
	struct pool_key key = { .pool = device, .image = image };
	__u64 address = pool_address(image, handle);

	bpf_map_update_elem(&current_pools, &key, &address, BPF_ANY);
}

/* The driver has said which pool is current: unless the program set one, that is the default pool. */
static __always_inline void learn_current_pool(__u64 image, __s32 device, __u64 handle)
{
	struct pool_key current = { .pool = device, .image = image };
	struct pool_key known = { .pool = handle, .image = image };

	if (bpf_map_lookup_elem(&current_pools, &current) || bpf_map_lookup_elem(&pools, &known))
		return;
	set_default_pool(image, device, handle);
}

static __always_inline struct pool *pool_with(__u64 image, __u64 handle)
{
	struct pool_key key = { .pool = pool_address(image, handle), .image = image };
	struct pool *pool = bpf_map_lookup_elem(&pools, &key);

	/* A default pool has its device for an address; of others that are not known, nobody has allocated. */
	if (!pool && key.pool < 4096)
		pool = learn_pool(image, key.pool, key.pool);
	return pool;
}

static __noinline void trim_pool(__u64 image, __u64 handle, __s64 keep)
{
	struct pool *pool = pool_with(image, handle);
	__s64 left;

	if (!pool)
		return;
	left = keep > pool->in_use ? keep : pool->in_use;
	if (left < pool->peak)
		pool->peak = left;
}

static __noinline void pool_attribute(__u64 image, __u64 handle, __u32 attribute, __u64 from)
{
	struct pool *pool = pool_with(image, handle);
	__u64 value = 0;

	if (!pool || READ(value, from))
		return;
	if (attribute == POOL_RELEASE_THRESHOLD)
		pool->threshold = value;
	else if (attribute == POOL_RESERVED_CURRENT)
		pool->peak = value;
}

/* Of a device whose current pool it is, the default pool becomes that. */
static __noinline void end_pool(__u64 image, __u64 handle)
{
	struct pool_key key = { .pool = handle, .image = image };
	struct pool *pool = bpf_map_lookup_elem(&pools, &key);
	struct pool_key current = { .image = image };
	__u64 *address;

	if (!pool)
		return;
	current.pool = pool->device;
	address = bpf_map_lookup_elem(&current_pools, &current);
	if (address && *address == handle)
		bpf_map_delete_elem(&current_pools, &current);
	bpf_map_delete_elem(&pools, &key);
}

/* Calls that have succeeded and say something about pools. */
static __noinline void pool_call(struct thread *thread, struct pending *pending)
{
	__u64 *arguments;
	__u64 handle = 0;

	if (!thread || !pending)
		return;
	arguments = pending->arguments;
	switch (pending->call) {
	case CALL_cuMemPoolCreate:
		if (READ(handle, arguments[0]))
			break;
		end_pool(thread->image, handle); /* of one whose end was not seen */
		learn_pool(thread->image, handle,
			   device_at(arguments[1] + 8)); /* CUmemPoolProps.location */
		break;
	case CALL_cuMemPoolDestroy:
		end_pool(thread->image, arguments[0]);
		break;
	case CALL_cuMemPoolTrimTo:
		trim_pool(thread->image, arguments[0], arguments[1]);
		break;
	case CALL_cuMemPoolSetAttribute:
	case CALL_cuMemPoolGetAttribute:
		pool_attribute(thread->image, arguments[0], arguments[1], arguments[2]);
		break;
	case CALL_cuDeviceGetDefaultMemPool:
		if (!READ(handle, arguments[0]))
			set_default_pool(thread->image, arguments[1], handle);
		break;
	case CALL_cuDeviceGetMemPool:
		if (!READ(handle, arguments[0]))
			learn_current_pool(thread->image, arguments[1], handle);
		break;
	case CALL_cuDeviceSetMemPool:
		set_current_pool(thread->image, arguments[0], arguments[1]);
		break;
	}
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered memory and its pools. A pool reserves what its allocations need and keeps what they give back, until it
 * is trimmed or the context of its device is synchronized. All work of all streams is done at once, so a free has happened
 * when it returns.
 *
 * A destroyed pool lives on, reserving nothing beyond them, until its last allocation is freed; so does its handle.
 */
#include <stdlib.h>

#include "standin.h"

struct properties {
	int type, handle_types;
	struct location location;
	void *security;
	size_t limit;
};

static struct pool *pools;
static struct pool *defaults[MAX_DEVICES], *chosen[MAX_DEVICES];

struct pool *first_pool(void)
{
	return pools;
}

static struct pool *new_pool(int device)
{
	struct pool **at = &pools;
	struct pool *pool = create(sizeof(*pool), POOL, new_handle());

	pool->base.device = device;
	while (*at)
		at = &(*at)->next;
	*at = pool;
	return pool;
}

void pools_start(void)
{
	for (int device = 0; device < devices; device++) {
		defaults[device] = chosen[device] = new_pool(device);
		defaults[device]->is_default = true;
	}
}

/* Keeps `bytes` of the reserve, or what the allocations need. */
static void shrink(struct pool *pool, size_t bytes)
{
	size_t keep = pool->live > bytes ? pool->live : bytes;

	if (keep >= pool->reserved)
		return;
	drain(pool->base.device, pool->reserved - keep);
	pool->reserved = keep;
}

static void end(struct pool *pool)
{
	struct pool **at = &pools;

	shrink(pool, 0);
	if (pool->live)
		return;
	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
	give_back(pool->base.key, HANDLE_BYTES, false);
	free(pool);
}

void pool_release(struct object *object)
{
	object->pool->live -= object->bytes;
	if (object->pool->destroyed)
		end(object->pool);
}

static struct pool *pool_at(handle key)
{
	return (struct pool *)find(POOL, key);
}

static CUresult allocate_from(struct pool *pool, CUdeviceptr *address, size_t bytes)
{
	size_t growth;
	struct object *object;
	CUdeviceptr key;

	if (!pool || !address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > SIZE_MAX - pool->live)
		return CUDA_ERROR_OUT_OF_MEMORY;
	growth = pool->live + bytes > pool->reserved ? pool->live + bytes - pool->reserved : 0;
	if (!room(pool->base.device, growth) ||
	    (growth && pool->limit && pool->reserved + growth > pool->limit))
		return CUDA_ERROR_OUT_OF_MEMORY;
	key = place(bytes);
	if (!key)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fill(pool->base.device, growth);
	pool->reserved += growth;
	pool->live += bytes;
	if (pool->reserved > pool->reserved_high)
		pool->reserved_high = pool->reserved;
	if (pool->live > pool->live_high)
		pool->live_high = pool->live;
	object = create(sizeof(*object), ADDRESS, key);
	object->kind = pool->base.device == HOST ? PINNED_HOST : DEVICE;
	object->device = pool->base.device;
	object->bytes = bytes;
	object->pool = pool;
	account_allocation(object);
	*address = key;
	return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes)
{
	struct context *context;
	CUresult result = current(&context);

	return result ?: allocate_from(chosen[context->base.device], address, bytes);
}

static CUresult allocate_there(CUdeviceptr *address, size_t bytes, handle pool)
{
	struct context *context;
	CUresult result = current(&context);

	return result ?: allocate_from(pool_at(pool), address, bytes);
}

API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, void *stream)
{
	(void)stream;
	return ALLOCATION(allocate(address, bytes));
}

API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, void *stream)
{
	(void)stream;
	return ALLOCATION(allocate(address, bytes));
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, handle pool, void *stream)
{
	(void)stream;
	return ALLOCATION(allocate_there(address, bytes, pool));
}

API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, handle pool,
					  void *stream)
{
	(void)stream;
	return ALLOCATION(allocate_there(address, bytes, pool));
}

static CUresult release(CUdeviceptr address)
{
	struct context *context;
	struct object *object;
	CUresult result = current(&context);

	if (result)
		return result;
	object = find(ADDRESS, address);
	if (!object || !object->pool)
		return CUDA_ERROR_INVALID_VALUE;
	result = refusal();
	if (!result)
		drop(object);
	return result;
}

API CUresult cuMemFreeAsync(CUdeviceptr address, void *stream)
{
	(void)stream;
	return RELEASE(release(address));
}

API CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, void *stream)
{
	(void)stream;
	return RELEASE(release(address));
}

static CUresult make(handle *pool, const struct properties *properties)
{
	struct pool *made;
	CUresult result;
	int device;

	if (!pool || !properties)
		return CUDA_ERROR_INVALID_VALUE;
	result = locate(&properties->location, &device);
	if (result)
		return result;
	made = new_pool(device);
	made->limit = properties->limit;
	*pool = made->base.key;
	return CUDA_SUCCESS;
}

API CUresult cuMemPoolCreate(handle *pool, const struct properties *properties)
{
	return ANSWER(make(pool, properties));
}

static CUresult destroy(struct pool *pool)
{
	CUresult result;

	if (!pool || pool->is_default)
		return CUDA_ERROR_INVALID_VALUE;
	result = refusal();
	if (result)
		return result;
	for (int device = 0; device < devices; device++)
		if (chosen[device] == pool)
			chosen[device] = defaults[device];
	forget(&pool->base);
	pool->destroyed = true;
	end(pool);
	return CUDA_SUCCESS;
}

API CUresult cuMemPoolDestroy(handle pool)
{
	return RELEASE(destroy(pool_at(pool)));
}

static CUresult trim(struct pool *pool, size_t keep)
{
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	shrink(pool, keep);
	return CUDA_SUCCESS;
}

API CUresult cuMemPoolTrimTo(handle pool, size_t keep)
{
	return ANSWER(trim(pool_at(pool), keep));
}

static CUresult tell(handle *pool, struct pool *const *of, CUdevice device)
{
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*pool = of[device]->base.key;
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetDefaultMemPool(handle *pool, CUdevice device)
{
	return ANSWER(tell(pool, defaults, device));
}

API CUresult cuDeviceGetMemPool(handle *pool, CUdevice device)
{
	return ANSWER(tell(pool, chosen, device));
}

static CUresult choose(CUdevice device, struct pool *pool)
{
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!pool || pool->base.device != device)
		return CUDA_ERROR_INVALID_VALUE;
	chosen[device] = pool;
	return CUDA_SUCCESS;
}

API CUresult cuDeviceSetMemPool(CUdevice device, handle pool)
{
	return ANSWER(choose(device, pool_at(pool)));
}

static CUresult synchronize(void)
{
	struct context *context;
	CUresult result = current(&context);

	if (result)
		return result;
	for (struct pool *pool = pools; pool; pool = pool->next)
		if (pool->base.device == context->base.device)
			shrink(pool, pool->threshold);
	return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize(void *stream)
{
	(void)stream;
	return ANSWER(synchronize());
}

API CUresult cuCtxSynchronize(void)
{
	return ANSWER(synchronize());
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a pool tells of itself, and what of it can be set. How it reuses memory is accepted: all work is done at once. */
#include "standin.h"

enum attribute {
	REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
	REUSE_ALLOW_OPPORTUNISTIC = 2,
	REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
	RELEASE_THRESHOLD = 4,
	RESERVED_MEM_CURRENT = 5,
	RESERVED_MEM_HIGH = 6,
	USED_MEM_CURRENT = 7,
	USED_MEM_HIGH = 8,
};

static CUresult set(struct pool *pool, enum attribute attribute, const void *value)
{
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case REUSE_ALLOW_OPPORTUNISTIC:
	case REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		return CUDA_SUCCESS;
	case RELEASE_THRESHOLD:
		pool->threshold = *(const uint64_t *)value;
		return CUDA_SUCCESS;
	case RESERVED_MEM_HIGH: /* the only value that may be set is 0: begin anew */
		pool->reserved_high = pool->reserved;
		return *(const uint64_t *)value ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case USED_MEM_HIGH:
		pool->live_high = pool->live;
		return *(const uint64_t *)value ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

API CUresult cuMemPoolSetAttribute(handle pool, enum attribute attribute, void *value)
{
	return ANSWER(set((struct pool *)find(POOL, pool), attribute, value));
}

static CUresult get(const struct pool *pool, enum attribute attribute, void *value)
{
	const size_t sizes[] = {
		[RELEASE_THRESHOLD] = pool ? pool->threshold : 0,
		[RESERVED_MEM_CURRENT] = pool ? pool->reserved : 0,
		[RESERVED_MEM_HIGH] = pool ? pool->reserved_high : 0,
		[USED_MEM_CURRENT] = pool ? pool->live : 0,
		[USED_MEM_HIGH] = pool ? pool->live_high : 0,
	};

	if (!pool || attribute < REUSE_FOLLOW_EVENT_DEPENDENCIES || attribute > USED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute < RELEASE_THRESHOLD)
		*(int *)value = 1;
	else
		*(uint64_t *)value = sizes[attribute];
	return CUDA_SUCCESS;
}

API CUresult cuMemPoolGetAttribute(handle pool, enum attribute attribute, void *value)
{
	return ANSWER(get((struct pool *)find(POOL, pool), attribute, value));
}

/* Any device may reach any pool. */
API CUresult cuMemPoolSetAccess(handle pool, const void *descriptors, size_t count)
{
	(void)descriptors, (void)count;
	return ANSWER(find(POOL, pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

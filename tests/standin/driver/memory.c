/* SPDX-License-Identifier: Apache-2.0 */
/* Linear memory of the device and managed memory, with the names from when device addresses had 32 bits. */
#include "standin.h"

static CUresult linear(CUdeviceptr *address, size_t bytes, enum kind kind)
{
	struct context *context;
	CUresult result = current(&context);
	uint64_t key;

	if (result)
		return result;
	if (!address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	result = hold(&context->home->owned, ADDRESS, kind, context->base.device, bytes, &key);
	if (!result)
		*address = key;
	return result;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	return ALLOCATION(linear(address, bytes, DEVICE));
}

API CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
	return ALLOCATION(flags != 1 && flags != 2 ? CUDA_ERROR_INVALID_VALUE
						   : linear(address, bytes, MANAGED));
}

static CUresult pitched(CUdeviceptr *address, size_t *pitch, size_t width, size_t height)
{
	size_t row = (width + 511) & ~(size_t)511;
	size_t bytes;
	CUresult result;

	if (!pitch || !width || !height || row < width ||
	    __builtin_mul_overflow(row, height, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	result = linear(address, bytes, DEVICE);
	if (!result)
		*pitch = row;
	return result;
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
				unsigned int element_bytes)
{
	(void)element_bytes;
	return ALLOCATION(pitched(address, pitch, width, height));
}

static CUresult release(CUdeviceptr address)
{
	struct context *context;
	struct object *object;
	CUresult result = current(&context);

	if (result || !address)
		return result;
	object = find(ADDRESS, address);
	if (!object)
		return CUDA_ERROR_INVALID_VALUE;
	result = refusal();
	if (!result)
		drop(object);
	return result;
}

API CUresult cuMemFree_v2(CUdeviceptr address)
{
	return RELEASE(release(address));
}

static CUresult narrow(CUdeviceptr_v1 *address, size_t bytes)
{
	struct context *context;
	struct object *object;
	CUresult result = current(&context);
	CUdeviceptr key;

	if (result)
		return result;
	if (!address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	key = room(context->base.device, bytes) ? place_narrow(bytes) : 0;
	if (!key)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object = create(sizeof(*object), ADDRESS, key);
	object->kind = DEVICE;
	object->device = context->base.device;
	object->bytes = bytes;
	object->narrow = true;
	own(&context->home->owned, object);
	account_allocation(object);
	*address = key;
	return CUDA_SUCCESS;
}

API CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
	return ALLOCATION(narrow(address, bytes));
}

static CUresult narrow_pitched(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width,
			       unsigned int height)
{
	size_t row = ((size_t)width + 511) & ~(size_t)511;
	CUresult result;

	if (!pitch || !width || !height)
		return CUDA_ERROR_INVALID_VALUE;
	result = narrow(address, row * height);
	if (!result)
		*pitch = row;
	return result;
}

API CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width,
			     unsigned int height, unsigned int element_bytes)
{
	(void)element_bytes;
	return ALLOCATION(narrow_pitched(address, pitch, width, height));
}

API CUresult cuMemFree(CUdeviceptr_v1 address)
{
	return RELEASE(release(address));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What programs ask of devices, addresses, handles and errors. Addresses are known by the first one of an allocation. */
#include <stdio.h>
#include <string.h>

#include "standin.h"

enum pointer_attribute {
	POINTER_MEMORY_TYPE = 2,
	POINTER_IS_MANAGED = 8,
	POINTER_DEVICE_ORDINAL = 9,
};

enum memory_type { MEMORY_OF_HOST = 1, MEMORY_OF_DEVICE = 2 };

/* By CUdevice_attribute; what is not named is 0. The figures are of compute capability 8.0. */
static const int attributes[] = {
	[1] = 1024, /* MAX_THREADS_PER_BLOCK */
	[2] = 1024,	  [3] = 1024,  [4] = 64, /* MAX_BLOCK_DIM */
	[5] = 0x7fffffff, [6] = 65535, [7] = 65535, /* MAX_GRID_DIM */
	[8] = 48 << 10, /* MAX_SHARED_MEMORY_PER_BLOCK */
	[10] = 32, /* WARP_SIZE */
	[12] = 64 << 10, /* MAX_REGISTERS_PER_BLOCK */
	[16] = 108, /* MULTIPROCESSOR_COUNT */
	[19] = 1, /* CAN_MAP_HOST_MEMORY */
	[31] = 1, /* CONCURRENT_KERNELS */
	[38] = 40 << 20, /* L2_CACHE_SIZE */
	[39] = 2048, /* MAX_THREADS_PER_MULTIPROCESSOR */
	[41] = 1, /* UNIFIED_ADDRESSING */
	[75] = 8,	  [76] = 0, /* COMPUTE_CAPABILITY */
	[78] = 1, /* STREAM_PRIORITIES_SUPPORTED */
	[81] = 164 << 10, /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
	[82] = 64 << 10, /* MAX_REGISTERS_PER_MULTIPROCESSOR */
	[83] = 1, /* MANAGED_MEMORY */
	[97] = 163 << 10, /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
	[99] = 1, /* HOST_REGISTER_SUPPORTED */
	[102] = 1, /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
	[103] = 1, /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
	[106] = 32, /* MAX_BLOCKS_PER_MULTIPROCESSOR */
	[115] = 1, /* MEMORY_POOLS_SUPPORTED */
};

static const struct {
	CUresult result;
	const char *name, *text;
} errors[] = {
	{ CUDA_SUCCESS, "CUDA_SUCCESS", "no error" },
	{ CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
};

static CUresult name(char *text, int room, CUdevice device)
{
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(text, room, "Stand-in %d", device);
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *text, int room, CUdevice device)
{
	return ANSWER(name(text, room, device));
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	return ANSWER(is_device(device) ? (*bytes = capacity(), CUDA_SUCCESS)
					: CUDA_ERROR_INVALID_DEVICE);
}

static CUresult attribute_of(int *value, int attribute, CUdevice device)
{
	int known = sizeof(attributes) / sizeof(*attributes);

	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attribute >= 0 && attribute < known ? attributes[attribute] : 0;
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	return ANSWER(attribute_of(value, attribute, device));
}

static const struct object *memory_at(CUdeviceptr address)
{
	return find(ADDRESS, address) ?: find(HOST_ADDRESS, address) ?: find(REGISTERED, address);
}

static CUresult tell(void *value, enum pointer_attribute attribute, CUdeviceptr address)
{
	const struct object *object = memory_at(address);

	if (!object)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case POINTER_MEMORY_TYPE:
		*(int *)value = object->space == ADDRESS ? MEMORY_OF_DEVICE : MEMORY_OF_HOST;
		return CUDA_SUCCESS;
	case POINTER_IS_MANAGED:
		*(int *)value = object->kind == MANAGED;
		return CUDA_SUCCESS;
	case POINTER_DEVICE_ORDINAL:
		*(int *)value = object->device == HOST ? 0 : object->device;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

API CUresult cuPointerGetAttribute(void *value, enum pointer_attribute attribute,
				   CUdeviceptr address)
{
	return ANSWER(tell(value, attribute, address));
}

static CUresult range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
	const struct object *object = find(ADDRESS, address);

	if (!object)
		return CUDA_ERROR_INVALID_VALUE;
	if (base)
		*base = object->key;
	if (bytes)
		*bytes = object->bytes;
	return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
	return ANSWER(range(base, bytes, address));
}

API CUresult cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option)
{
	(void)properties, (void)option;
	return ANSWER((*bytes = PAGE, CUDA_SUCCESS));
}

/* Nobody here shares memory, which is what this is asked for. */
API CUresult cuMemGetAllocationPropertiesFromHandle(void *properties, handle key)
{
	(void)properties, (void)key;
	return ANSWER(CUDA_ERROR_NOT_SUPPORTED);
}

static CUresult look_up(int result, const char **name_or_text, bool text)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if ((int)errors[i].result == result) {
			*name_or_text = text ? errors[i].text : errors[i].name;
			return CUDA_SUCCESS;
		}
	*name_or_text = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

/* These two answer before cuInit, too. */
API CUresult cuGetErrorName(int result, const char **error_name)
{
	enter();
	return leave(look_up(result, error_name, false));
}

API CUresult cuGetErrorString(int result, const char **text)
{
	enter();
	return leave(look_up(result, text, true));
}

/* What a GPU would do. Its memory holds nothing here, so there is nothing to be done. */
API CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count, void *stream)
{
	(void)address, (void)value, (void)count, (void)stream;
	return ANSWER(CUDA_SUCCESS);
}

API CUresult cuStreamWriteValue32_v2(void *stream, CUdeviceptr address, uint32_t value,
				     unsigned int flags)
{
	(void)stream, (void)address, (void)value, (void)flags;
	return ANSWER(CUDA_SUCCESS);
}

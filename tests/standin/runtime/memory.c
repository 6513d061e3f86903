/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: all of it is the driver's. What is on the device holds nothing, so that a copy from there brings zeros. */
#include <string.h>

#include "runtime.h"

/* Nothing is allocated where nothing is asked for; the driver would refuse. */
API cudaError_t cudaMalloc(void **address, size_t bytes)
{
	if (!bytes) {
		*address = NULL;
		return keep(with_context());
	}
	return IN_CONTEXT(cuMemAlloc, (CUdeviceptr *)address, bytes);
}

API cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned int flags)
{
	return IN_CONTEXT(cuMemAllocManaged, (CUdeviceptr *)address, bytes, flags);
}

API cudaError_t cudaFree(void *address)
{
	return IN_CONTEXT(cuMemFree, (CUdeviceptr)address);
}

API cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream)
{
	return IN_CONTEXT(cuMemAllocAsync, (CUdeviceptr *)address, bytes, stream);
}

API cudaError_t cudaFreeAsync(void *address, cudaStream_t stream)
{
	return IN_CONTEXT(cuMemFreeAsync, (CUdeviceptr)address, stream);
}

API cudaError_t cudaMallocHost(void **address, size_t bytes)
{
	return IN_CONTEXT(cuMemAllocHost, address, bytes);
}

API cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned int flags)
{
	return IN_CONTEXT(cuMemHostAlloc, address, bytes, flags);
}

API cudaError_t cudaFreeHost(void *address)
{
	return IN_CONTEXT(cuMemFreeHost, address);
}

API cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned int flags)
{
	return IN_CONTEXT(cuMemHostRegister, address, bytes, flags);
}

API cudaError_t cudaHostUnregister(void *address)
{
	return IN_CONTEXT(cuMemHostUnregister, address);
}

API cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	return IN_CONTEXT(cuMemGetInfo, free_bytes, total_bytes);
}

API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
	return IN_CONTEXT(cuDeviceGetDefaultMemPool, pool, device);
}

API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes)
{
	return IN_CONTEXT(cuMemPoolTrimTo, pool, keep_bytes);
}

API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
					void *value)
{
	return IN_CONTEXT(cuMemPoolGetAttribute, pool, (CUmemPool_attribute)attribute, value);
}

API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
					void *value)
{
	return IN_CONTEXT(cuMemPoolSetAttribute, pool, (CUmemPool_attribute)attribute, value);
}

API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
				     const struct cudaMemAccessDesc *descriptors, size_t count)
{
	return IN_CONTEXT(cuMemPoolSetAccess, pool, (const CUmemAccessDesc *)descriptors, count);
}

/* Memory of graphs: there are none. */
API cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
					       void *value)
{
	memset(value, 0, sizeof(uint64_t));
	return cudaSuccess;
}

API cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
					       void *value)
{
	return cudaSuccess;
}

/* Memory that the driver does not know is of type "unregistered", which is 0. */
API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
					 const void *address)
{
	CUdeviceptr key = (CUdeviceptr)address;
	CUmemorytype type = CU_MEMORYTYPE_HOST;
	int managed = 0;
	CUresult result = with_context();

	if (result)
		return keep(result);
	*attributes =
		(struct cudaPointerAttributes){ .device = -1, .hostPointer = (void *)address };
	if (DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, key))
		return cudaSuccess;
	DRIVER(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, key);
	DRIVER(cuPointerGetAttribute)
	(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, key);
	attributes->devicePointer = (void *)address;
	if (type == CU_MEMORYTYPE_DEVICE && !managed)
		attributes->hostPointer = NULL;
	attributes->type = managed			? cudaMemoryTypeManaged
			   : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
							: cudaMemoryTypeDevice;
	return cudaSuccess;
}

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
				cudaStream_t stream)
{
	if (kind == cudaMemcpyDeviceToHost)
		memset(to, 0, bytes);
	else if (kind == cudaMemcpyHostToHost)
		memmove(to, from, bytes);
	return cudaSuccess;
}

API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

API cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
				    size_t bytes, cudaStream_t stream)
{
	return cudaSuccess;
}

API cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes,
				   size_t offset, enum cudaMemcpyKind kind)
{
	return cudaSuccess;
}

API cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes, cudaStream_t stream)
{
	return cudaSuccess;
}

API cudaError_t cudaMemset(void *address, int value, size_t bytes)
{
	return cudaSuccess;
}

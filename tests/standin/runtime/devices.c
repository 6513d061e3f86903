/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, and the one that a thread has chosen. */
#include <stdio.h>
#include <string.h>

#include "runtime.h"

__thread int device_of_thread;

API cudaError_t cudaDriverGetVersion(int *version)
{
	return keep(DRIVER(cuDriverGetVersion)(version));
}

API cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

API cudaError_t cudaGetDeviceCount(int *count)
{
	*count = 0;
	return keep(start() ?: DRIVER(cuDeviceGetCount)(count));
}

API cudaError_t cudaGetDevice(int *device)
{
	*device = device_of_thread;
	return cudaSuccess;
}

API cudaError_t cudaSetDevice(int device)
{
	CUresult result = use(device);

	if (!result)
		device_of_thread = device;
	return keep(result);
}

API cudaError_t cudaDeviceSynchronize(void)
{
	return IN_CONTEXT(cuCtxSynchronize);
}

API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	return keep(start()
			    ?: DRIVER(cuDeviceGetAttribute)(value, (CUdevice_attribute)attribute,
							    device));
}

API cudaError_t cudaDeviceGetPCIBusId(char *text, int room, int device)
{
	snprintf(text, room, "0000:%02X:00.0", device + 1);
	return cudaSuccess;
}

API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = device != peer;
	return cudaSuccess;
}

API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	return cudaSuccess;
}

API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

static int attribute(int device, enum cudaDeviceAttr which)
{
	int value = 0;

	DRIVER(cuDeviceGetAttribute)(&value, (CUdevice_attribute)which, device);
	return value;
}

#define THREE(device, which) \
	{ attribute(device, which##X), attribute(device, which##Y), attribute(device, which##Z) }

API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
	size_t bytes = 0;
	CUresult result = start() ?: DRIVER(cuDeviceTotalMem)(&bytes, device);

	if (result)
		return keep(result);
	*properties = (struct cudaDeviceProp){
		.totalGlobalMem = bytes,
		.major = attribute(device, cudaDevAttrComputeCapabilityMajor),
		.minor = attribute(device, cudaDevAttrComputeCapabilityMinor),
		.multiProcessorCount = attribute(device, cudaDevAttrMultiProcessorCount),
		.warpSize = attribute(device, cudaDevAttrWarpSize),
		.maxThreadsPerBlock = attribute(device, cudaDevAttrMaxThreadsPerBlock),
		.maxThreadsPerMultiProcessor =
			attribute(device, cudaDevAttrMaxThreadsPerMultiProcessor),
		.maxThreadsDim = THREE(device, cudaDevAttrMaxBlockDim),
		.maxGridSize = THREE(device, cudaDevAttrMaxGridDim),
		.sharedMemPerBlock = attribute(device, cudaDevAttrMaxSharedMemoryPerBlock),
		.sharedMemPerBlockOptin =
			attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin),
		.sharedMemPerMultiprocessor =
			attribute(device, cudaDevAttrMaxSharedMemoryPerMultiprocessor),
		.regsPerBlock = attribute(device, cudaDevAttrMaxRegistersPerBlock),
		.regsPerMultiprocessor =
			attribute(device, cudaDevAttrMaxRegistersPerMultiprocessor),
		.l2CacheSize = attribute(device, cudaDevAttrL2CacheSize),
		.unifiedAddressing = attribute(device, cudaDevAttrUnifiedAddressing),
		.memoryPoolsSupported = attribute(device, cudaDevAttrMemoryPoolsSupported),
		.textureAlignment = 512,
		.pciBusID = device + 1,
	};
	DRIVER(cuDeviceGetName)(properties->name, sizeof(properties->name), device);
	return keep(DRIVER(cuDeviceGetUuid)((CUuuid *)&properties->uuid, device));
}

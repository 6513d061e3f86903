/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of NVML (libnvidia-ml.so.1) that PyTorch makes: it counts devices, asks whether they share memory with other
 * machines, and lists processes when memory is short. No process is listed. Written from the NVML API reference.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

enum { NVML_SUCCESS = 0, NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_NOT_FOUND = 6 };

static unsigned int device_count(void)
{
	const char *text = getenv("STANDIN_CUDA_DEVICES");

	return text && *text ? strtoul(text, NULL, 10) : 1;
}

static int device_at(unsigned int index, uintptr_t *device)
{
	*device = index + 1;
	return index < device_count() ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

API int nvmlInit_v2(void)
{
	return NVML_SUCCESS;
}

API int nvmlShutdown(void)
{
	return NVML_SUCCESS;
}

API const char *nvmlErrorString(int result)
{
	return result ? "an error of the stand-in" : "Success";
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = 13000;
	return NVML_SUCCESS;
}

API int nvmlDeviceGetCount_v2(unsigned int *count)
{
	*count = device_count();
	return NVML_SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned int index, uintptr_t *device)
{
	return device_at(index, device);
}

/* The runtime numbers buses from 1 (devices.c). */
API int nvmlDeviceGetHandleByPciBusId_v2(const char *text, uintptr_t *device)
{
	unsigned int domain, bus;

	return sscanf(text, "%x:%x", &domain, &bus) == 2 && bus ? device_at(bus - 1, device)
								: NVML_ERROR_NOT_FOUND;
}

API int nvmlDeviceGetUUID(uintptr_t device, char *text, unsigned int room)
{
	snprintf(text, room, "GPU-5ad00000-0000-4000-8000-0000000000%02x",
		 (unsigned int)device - 1);
	return NVML_SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(uintptr_t device, unsigned int *count, void *rows)
{
	(void)device, (void)rows;
	*count = 0;
	return NVML_SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses(uintptr_t device, unsigned int *count, void *rows)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(device, count, rows);
}

/* Devices that are not connected, neither with each other nor with other machines'. */
API int nvmlDeviceGetGpuFabricInfoV(uintptr_t device, void *information)
{
	(void)device, (void)information;
	return NVML_ERROR_NOT_SUPPORTED;
}

API int nvmlDeviceGetNvLinkRemoteDeviceType(uintptr_t device, unsigned int link, int *type)
{
	(void)device, (void)link, (void)type;
	return NVML_ERROR_NOT_SUPPORTED;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(uintptr_t device, unsigned int link, void *information)
{
	(void)device, (void)link, (void)information;
	return NVML_ERROR_NOT_SUPPORTED;
}

API int nvmlDeviceGetP2PStatus(uintptr_t device, uintptr_t peer, int capability, int *status)
{
	(void)device, (void)peer, (void)capability, (void)status;
	return NVML_ERROR_NOT_SUPPORTED;
}

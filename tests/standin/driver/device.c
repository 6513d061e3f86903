/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the NVIDIA driver library, for machines without a GPU: libcuda.so.1 with the calls that hold memory,
 * written from the public driver API. "Device" memory is address space of the process that nobody touches; host memory is
 * real. It knows no kernels, copies or streams. This file has the library's start and its devices.
 *
 *   STANDIN_CUDA_MIB       capacity of each device (default 8192); beyond it allocations fail with
 *                          CUDA_ERROR_OUT_OF_MEMORY
 *   STANDIN_CUDA_DEVICES   how many devices the machine has (default 1); device N has the UUID
 *                          GPU-5ad00000-0000-4000-8000-0000000000NN
 *   STANDIN_CUDA_INIT_MS   how long cuInit takes (default 0); a real driver's first call is slow, too
 *   CUDA_VISIBLE_DEVICES   which of them, in which order: numbers, or beginnings of UUIDs; what follows an entry that
 *                          names no device is ignored
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

typedef struct {
	unsigned char bytes[16];
} CUuuid;

int devices;
static int physical[MAX_DEVICES]; /* of each ordinal */
static size_t bytes_each;

static unsigned long number(const char *variable, unsigned long otherwise)
{
	const char *text = getenv(variable);

	return text && *text ? strtoul(text, NULL, 10) : otherwise;
}

static int device_named(const char *name, int count)
{
	char uuid[64];
	char *end;
	long index = strtol(name, &end, 10);

	if (end != name && !*end)
		return index >= 0 && index < count ? (int)index : -1;
	for (int i = 0; i < count; i++) {
		snprintf(uuid, sizeof(uuid), "GPU-5ad00000-0000-4000-8000-0000000000%02x", i);
		if (strlen(name) > 4 && !strncmp(uuid, name, strlen(name)))
			return i;
	}
	return -1;
}

static int choose_devices(int count)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char *rest, *name, *copy;
	int chosen = 0;

	if (!visible) {
		for (; chosen < count; chosen++)
			physical[chosen] = chosen;
		return chosen;
	}
	copy = rest = strdup(visible);
	while ((name = strsep(&rest, ",")) && chosen < MAX_DEVICES) {
		int device = device_named(name, count);

		if (device < 0)
			break;
		physical[chosen++] = device;
	}
	free(copy);
	return chosen;
}

static CUresult start(void)
{
	unsigned long count = number("STANDIN_CUDA_DEVICES", 1);
	int chosen = choose_devices(count < MAX_DEVICES ? count : MAX_DEVICES);

	if (!chosen)
		return 100; /* CUDA_ERROR_NO_DEVICE */
	bytes_each = number("STANDIN_CUDA_MIB", 8192) << 20;
	objects_start();
	devices = chosen;
	contexts_start();
	pools_start();
	return CUDA_SUCCESS;
}

size_t capacity(void)
{
	return bytes_each;
}

CUresult locate(const struct location *location, int *device)
{
	if (location->type < 1 || location->type > 4)
		return CUDA_ERROR_INVALID_VALUE;
	*device = location->type == 1 ? location->id : HOST;
	return *device == HOST || is_device(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

API CUresult cuInit(unsigned int flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!devices)
		usleep(1000 * number("STANDIN_CUDA_INIT_MS", 0));
	enter();
	return leave(devices ? CUDA_SUCCESS : start());
}

API CUresult cuDriverGetVersion(int *version)
{
	enter(); /* not needed, but a function that calls others begins like these */
	*version = 13000;
	return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceGetCount(int *count)
{
	return ANSWER((*count = devices, CUDA_SUCCESS));
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	return ANSWER(is_device(ordinal) ? (*device = ordinal, CUDA_SUCCESS)
					 : CUDA_ERROR_INVALID_DEVICE);
}

static CUresult uuid_of(CUuuid *uuid, CUdevice device)
{
	static const unsigned char common[16] = { 0x5a, 0xd0, 0, 0, 0, 0, 0x40, 0, 0x80 };

	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	memcpy(uuid->bytes, common, sizeof(common));
	uuid->bytes[15] = physical[device];
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return ANSWER(uuid_of(uuid, device));
}

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	return ANSWER(uuid_of(uuid, device));
}

static CUresult memory_of(size_t *free_bytes, size_t *total_bytes)
{
	struct context *context;
	CUresult result = current(&context);

	if (result)
		return result;
	*total_bytes = capacity();
	*free_bytes = *total_bytes - filled(context->base.device);
	return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	return ANSWER(memory_of(free_bytes, total_bytes));
}

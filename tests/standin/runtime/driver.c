/* SPDX-License-Identifier: Apache-2.0 */
/* The way to the driver, and the errors that come back. The runtime's codes are the driver's where both have one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime.h"

#define DEVICES 16

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static CUcontext primaries[DEVICES];
static __thread cudaError_t last;

static void open_library(void)
{
	library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
	if (library)
		return;
	fprintf(stderr, "stand-in runtime: %s\n", dlerror());
	exit(127);
}

void *find_in_driver(const char *name)
{
	pthread_once(&once, open_library);
	return dlsym(library, name);
}

void *driver(const char *name)
{
	void *function = find_in_driver(name);

	if (function)
		return function;
	fprintf(stderr, "stand-in runtime: the driver has no %s\n", name);
	exit(127);
}

CUresult start(void)
{
	return DRIVER(cuInit)(0);
}

CUresult use(int device)
{
	CUresult result = start();

	if (result)
		return result;
	if (device < 0 || device >= DEVICES)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	if (!primaries[device])
		result = DRIVER(cuDevicePrimaryCtxRetain)(&primaries[device], device);
	pthread_mutex_unlock(&lock);
	return result ?: DRIVER(cuCtxSetCurrent)(primaries[device]);
}

CUresult with_context(void)
{
	CUcontext context = NULL;
	CUresult result = start() ?: DRIVER(cuCtxGetCurrent)(&context);

	return result || context ? result : use(device_of_thread);
}

cudaError_t keep(CUresult result)
{
	if (result)
		last = (cudaError_t)result;
	return (cudaError_t)result;
}

API cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last;

	last = cudaSuccess;
	return error;
}

API cudaError_t cudaPeekAtLastError(void)
{
	return last;
}

API const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;

	DRIVER(cuGetErrorString)((CUresult)error, &text);
	return text ?: "an error without a text in the stand-in";
}

API const char *cudaGetErrorName(cudaError_t error)
{
	const char *name = NULL;

	DRIVER(cuGetErrorName)((CUresult)error, &name);
	return name ?: "unnamed";
}

/* Of a function that changed its arguments, the driver exports the newest version under the longest name. */
API cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
						 unsigned int version, unsigned long long flags,
						 enum cudaDriverEntryPointQueryResult *status)
{
	char newer[128];

	snprintf(newer, sizeof(newer), "%s_v2", name);
	*function = find_in_driver(newer) ?: find_in_driver(name);
	if (status)
		*status = *function ? cudaDriverEntryPointSuccess
				    : cudaDriverEntryPointSymbolNotFound;
	return cudaSuccess; /* the status tells */
}

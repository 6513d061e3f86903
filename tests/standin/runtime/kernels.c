/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: registered, asked about, launched, and never run. */
#include "runtime.h"

#define CALL_DEPTH 8

/* What `<<<...>>>` puts aside between its two halves. */
static __thread struct {
	dim3 grid, block;
	size_t shared_bytes;
	cudaStream_t stream;
} pushed[CALL_DEPTH];
static __thread int depth;

API void **__cudaRegisterFatBinary(void *binary)
{
	static void *handle;

	return &handle;
}

API void __cudaRegisterFatBinaryEnd(void **handle)
{
}

API void __cudaUnregisterFatBinary(void **handle)
{
}

API void __cudaRegisterFunction(void **handle, const char *function, char *device_function,
				const char *name, int thread_limit, uint3 *thread, uint3 *block,
				dim3 *block_dim, dim3 *grid_dim, int *warp_size)
{
}

API void __cudaRegisterVar(void **handle, char *variable, char *address, const char *name,
			   int external, size_t bytes, int constant, int global)
{
}

API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
	*kernel = (cudaKernel_t)function;
	return cudaSuccess;
}

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
					 cudaStream_t stream)
{
	if (depth == CALL_DEPTH)
		return cudaErrorLaunchOutOfResources;
	pushed[depth].grid = grid;
	pushed[depth].block = block;
	pushed[depth].shared_bytes = shared_bytes;
	pushed[depth++].stream = stream;
	return cudaSuccess;
}

API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
					   void *stream)
{
	if (!depth)
		return cudaErrorMissingConfiguration;
	*grid = pushed[--depth].grid;
	*block = pushed[depth].block;
	*shared_bytes = pushed[depth].shared_bytes;
	*(cudaStream_t *)stream = pushed[depth].stream;
	return cudaSuccess;
}

API cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
				 size_t shared_bytes, cudaStream_t stream)
{
	return keep(with_context());
}

API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
				   size_t shared_bytes, cudaStream_t stream)
{
	return keep(with_context());
}

API cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
					    void **arguments, size_t shared_bytes,
					    cudaStream_t stream)
{
	return keep(with_context());
}

API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *configuration, const void *function,
				    void **arguments)
{
	return keep(with_context());
}

API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
	*attributes = (struct cudaFuncAttributes){
		.maxThreadsPerBlock = 1024,
		.numRegs = 32,
		.ptxVersion = 80,
		.binaryVersion = 80,
		.maxDynamicSharedSizeBytes = 163 << 10,
	};
	return cudaSuccess;
}

API cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute,
				     int value)
{
	return cudaSuccess;
}

API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
						enum cudaFuncAttribute attribute, int value,
						int device)
{
	return cudaSuccess;
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
							      int block_size, size_t shared_bytes)
{
	*blocks = 2;
	return cudaSuccess;
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
	int *blocks, const void *function, int block_size, size_t shared_bytes, unsigned int flags)
{
	*blocks = 2;
	return cudaSuccess;
}

API cudaError_t cudaGetSymbolAddress(void **address, const void *symbol)
{
	*address = (void *)symbol;
	return cudaSuccess;
}

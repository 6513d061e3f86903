/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events: numbers that are told apart. All work is done at once, and no graph is ever captured. */
#include <stdatomic.h>
#include <stdint.h>

#include "runtime.h"

static atomic_uintptr_t handles = 1 << 20; /* above the numbers that stand for default streams */

static void *new_handle(void)
{
	return (void *)atomic_fetch_add(&handles, 16);
}

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
	*stream = new_handle();
	return keep(with_context());
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	return cudaStreamCreateWithPriority(stream, flags, 0);
}

API cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
	return cudaStreamCreateWithPriority(stream, 0, 0);
}

API cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	return cudaSuccess;
}

API cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	return IN_CONTEXT(cuStreamSynchronize, stream);
}

API cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	return cudaSuccess;
}

API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
	*priority = 0;
	return cudaSuccess;
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	return cudaSuccess;
}

API cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function,
				      void *argument, unsigned int flags)
{
	function(stream, cudaSuccess, argument);
	return cudaSuccess;
}

API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
	function(argument);
	return cudaSuccess;
}

API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
	*status = cudaStreamCaptureStatusNone;
	return cudaSuccess;
}

API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
					 unsigned long long *id, cudaGraph_t *graph,
					 const cudaGraphNode_t **dependencies,
					 const cudaGraphEdgeData **edges, size_t *count)
{
	return cudaStreamIsCapturing(stream, status);
}

API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	static __thread enum cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
	enum cudaStreamCaptureMode before = current;

	current = *mode;
	*mode = before;
	return cudaSuccess;
}

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	*event = new_handle();
	return keep(with_context());
}

API cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return cudaEventCreateWithFlags(event, 0);
}

API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	return cudaSuccess;
}

API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
	return cudaSuccess;
}

API cudaError_t cudaEventQuery(cudaEvent_t event)
{
	return cudaSuccess;
}

API cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	return cudaSuccess;
}

API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	return cudaSuccess;
}

API cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
	*milliseconds = 1;
	return cudaSuccess;
}

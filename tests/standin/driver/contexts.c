/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts, and the stack of them that each thread has.
 *
 * A thread without a context is refused what needs one, as by a real driver; but a program that never mentions contexts
 * works on the primary context of device 0, so that small programs stay small. standin_demand_contexts() ends that.
 * The primary context of a device has one handle for ever; other handles are given again soon after their context's end.
 */
#include <stdlib.h>

#include "standin.h"

#define DEPTH 64

static struct context *primaries[MAX_DEVICES];
static bool demanded; /* contexts have been mentioned */
static __thread struct {
	handle context;
	uint64_t serial;
} stack[DEPTH];
static __thread int depth;

struct green {
	struct object base;
	struct context *converted;
};

static struct context *new_context(int device)
{
	struct context *context = create(sizeof(*context), CONTEXT, new_handle());

	context->base.device = device;
	context->home = context;
	return context;
}

void contexts_start(void)
{
	for (int device = 0; device < devices; device++) {
		primaries[device] = new_context(device);
		primaries[device]->primary = true;
	}
}

static struct context *context_at(handle key)
{
	struct context *context = (struct context *)find(CONTEXT, key);

	return context && (!context->home->primary || context->home->base.references) ? context
										      : NULL;
}

CUresult current(struct context **context)
{
	if (!depth && demanded)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!depth) {
		*context = primaries[0];
		if (!(*context)->base.references)
			(*context)->base.references = 1;
		return CUDA_SUCCESS;
	}
	*context = context_at(stack[depth - 1].context);
	return *context && (*context)->base.serial == stack[depth - 1].serial
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult push(struct context *context)
{
	demanded = true;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth == DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth].context = context->base.key;
	stack[depth++].serial = context->base.serial;
	return CUDA_SUCCESS;
}

static CUresult make(handle *context, CUdevice device)
{
	struct context *made;

	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (depth == DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made = new_context(device);
	*context = made->base.key;
	return push(made);
}

API CUresult cuCtxCreate_v2(handle *context, unsigned int flags, CUdevice device)
{
	(void)flags;
	return ANSWER(make(context, device));
}

API CUresult cuCtxCreate_v3(handle *context, void *affinity, int affinities, unsigned int flags,
			    CUdevice device)
{
	(void)affinity, (void)affinities, (void)flags;
	return ANSWER(make(context, device));
}

API CUresult cuCtxCreate_v4(handle *context, void *parameters, unsigned int flags, CUdevice device)
{
	(void)parameters, (void)flags;
	return ANSWER(make(context, device));
}

static CUresult destroy(handle key)
{
	struct context *context = (struct context *)find(CONTEXT, key);
	CUresult result;

	if (!context || context->home != context || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	result = refusal();
	if (result)
		return result;
	if (depth && stack[depth - 1].serial == context->base.serial)
		depth--;
	drop_all(&context->owned);
	drop(&context->base);
	return CUDA_SUCCESS;
}

API CUresult cuCtxDestroy_v2(handle context)
{
	return RELEASE(destroy(context));
}

static CUresult retain(handle *context, CUdevice device)
{
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	demanded = true;
	primaries[device]->base.references++;
	*context = primaries[device]->base.key;
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(handle *context, CUdevice device)
{
	return ANSWER(retain(context, device));
}

static CUresult state_of(CUdevice device, unsigned int *flags, int *active)
{
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = 0;
	*active = primaries[device]->base.references > 0;
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	return ANSWER(state_of(device, flags, active));
}

static CUresult release(CUdevice device)
{
	CUresult result;

	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!primaries[device]->base.references)
		return CUDA_ERROR_INVALID_CONTEXT;
	result = refusal();
	if (!result && !--primaries[device]->base.references)
		drop_all(&primaries[device]->owned);
	return result;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	return RELEASE(release(device));
}

/* Those who have retained the context go on with it, empty. */
static CUresult reset(CUdevice device)
{
	CUresult result = is_device(device) ? refusal() : CUDA_ERROR_INVALID_DEVICE;

	if (!result)
		drop_all(&primaries[device]->owned);
	return result;
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	return RELEASE(reset(device));
}

static CUresult set_current(handle key)
{
	struct context *context = key ? context_at(key) : NULL;

	demanded = true;
	if (key && !context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth)
		depth--;
	return key ? push(context) : CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(handle context)
{
	return ANSWER(set_current(context));
}

API CUresult cuCtxPushCurrent_v2(handle context)
{
	return ANSWER(push(context_at(context)));
}

static CUresult pop(handle *context)
{
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = stack[depth].context;
	return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent_v2(handle *context)
{
	return ANSWER(pop(context));
}

API CUresult cuCtxGetCurrent(handle *context)
{
	return ANSWER((*context = depth ? stack[depth - 1].context : 0, CUDA_SUCCESS));
}

static CUresult device_of(CUdevice *device)
{
	struct context *context;
	CUresult result = current(&context);

	if (!result)
		*device = context->base.device;
	return result;
}

API CUresult cuCtxGetDevice(CUdevice *device)
{
	return ANSWER(device_of(device));
}

static CUresult make_green(handle *green, CUdevice device)
{
	struct green *made;
	handle primary;
	CUresult result = retain(&primary, device);

	if (result)
		return result;
	made = create(sizeof(*made), GREEN_CONTEXT, new_handle());
	made->base.device = device;
	*green = made->base.key;
	return CUDA_SUCCESS;
}

API CUresult cuGreenCtxCreate(handle *green, void *resources, CUdevice device, unsigned int flags)
{
	(void)resources, (void)flags;
	return ANSWER(make_green(green, device));
}

/* The converted context has the primary one's memory. */
static CUresult convert(handle *context, handle key)
{
	struct green *green = (struct green *)find(GREEN_CONTEXT, key);

	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!green->converted) {
		green->converted = new_context(green->base.device);
		green->converted->home = primaries[green->base.device];
	}
	*context = green->converted->base.key;
	return CUDA_SUCCESS;
}

API CUresult cuCtxFromGreenCtx(handle *context, handle green)
{
	return ANSWER(convert(context, green));
}

static CUresult destroy_green(handle key)
{
	struct green *green = (struct green *)find(GREEN_CONTEXT, key);
	int device;
	CUresult result;

	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	device = green->base.device;
	result = primaries[device]->base.references ? release(device) : refusal();
	if (result)
		return result;
	if (green->converted)
		drop(&green->converted->base);
	drop(&green->base);
	return CUDA_SUCCESS;
}

API CUresult cuGreenCtxDestroy(handle green)
{
	return RELEASE(destroy_green(green));
}

/* Not of the driver: a thread without a context is refused, from now on. */
API void standin_demand_contexts(void)
{
	enter();
	demanded = true;
	leave(CUDA_SUCCESS);
}

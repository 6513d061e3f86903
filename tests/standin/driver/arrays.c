/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays. Their bytes are those of their elements: what a device pads them to is not known. */
#include "standin.h"

struct plane {
	size_t width, height;
	unsigned int format, channels;
};

struct volume {
	size_t width, height, depth;
	unsigned int format, channels, flags;
};

static size_t format_bytes(unsigned int format)
{
	switch (format) {
	case 0x01: /* unsigned, 8 bits */
	case 0x08: /* signed */
		return 1;
	case 0x02:
	case 0x09:
	case 0x10: /* half */
		return 2;
	case 0x03:
	case 0x0a:
	case 0x20: /* float */
		return 4;
	default:
		return 0;
	}
}

static size_t at_least_one(size_t extent)
{
	return extent ? extent : 1;
}

/* 0 for what no array can be. */
static size_t bytes_of(const struct volume *volume)
{
	size_t bytes = format_bytes(volume->format) * volume->channels;

	if (volume->channels != 1 && volume->channels != 2 && volume->channels != 4)
		return 0;
	if (__builtin_mul_overflow(bytes, volume->width, &bytes) ||
	    __builtin_mul_overflow(bytes, at_least_one(volume->height), &bytes) ||
	    __builtin_mul_overflow(bytes, at_least_one(volume->depth), &bytes))
		return 0;
	return bytes;
}

static CUresult make(handle *array, enum space space, size_t bytes)
{
	struct context *context;
	CUresult result = current(&context);

	if (result)
		return result;
	if (!array || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	return hold(&context->home->owned, space, ARRAYS, context->base.device, bytes, array);
}

static CUresult make_plane(handle *array, const struct plane *plane)
{
	const struct volume volume = {
		.width = plane->width,
		.height = plane->height,
		.format = plane->format,
		.channels = plane->channels,
	};

	return make(array, ARRAY, bytes_of(&volume));
}

API CUresult cuArrayCreate_v2(handle *array, const struct plane *descriptor)
{
	return ALLOCATION(make_plane(array, descriptor));
}

API CUresult cuArray3DCreate_v2(handle *array, const struct volume *descriptor)
{
	return ALLOCATION(make(array, ARRAY, bytes_of(descriptor)));
}

/* Each level has half the extents of the one before; there are no more than down to 1 x 1 x 1. */
static CUresult make_mipmapped(handle *array, const struct volume *descriptor, unsigned int levels)
{
	struct volume level = *descriptor;
	size_t bytes = bytes_of(&level);

	while (bytes && levels-- > 1 && (level.width > 1 || level.height > 1 || level.depth > 1)) {
		level.width = at_least_one(level.width / 2);
		level.height /= 2;
		level.depth /= 2;
		bytes += bytes_of(&level);
	}
	return make(array, MIPMAPPED_ARRAY, bytes);
}

API CUresult cuMipmappedArrayCreate(handle *array, const struct volume *descriptor,
				    unsigned int levels)
{
	return ALLOCATION(make_mipmapped(array, descriptor, levels));
}

static CUresult destroy(enum space space, handle key)
{
	struct context *context;
	struct object *object;
	CUresult result = current(&context);

	if (result)
		return result;
	object = find(space, key);
	if (!object)
		return CUDA_ERROR_INVALID_HANDLE;
	result = refusal();
	if (!result)
		drop(object);
	return result;
}

API CUresult cuArrayDestroy(handle array)
{
	return RELEASE(destroy(ARRAY, array));
}

API CUresult cuMipmappedArrayDestroy(handle array)
{
	return RELEASE(destroy(MIPMAPPED_ARRAY, array));
}

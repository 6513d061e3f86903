/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: physical memory by handle, reserved addresses, and what is mapped where.
 *
 * Physical memory goes when its references and its mappings are both gone. Its handle names it as long as there are
 * references; mapped memory can be given one again (cuMemRetainAllocationHandle). Imported memory and multicast objects
 * have handles, but no memory of their own: the ledger knows neither. None of this belongs to a context.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin.h"

struct physical {
	struct object base; /* references: by handle */
	unsigned int mappings;
};

struct mapping {
	CUdeviceptr start;
	size_t bytes;
	struct physical *physical;
};

struct reservation {
	struct object base;
	struct mapping **pages; /* what each page is mapped to */
};

struct properties {
	int type, handle_types;
	struct location location;
};

struct multicast {
	unsigned int devices;
	size_t bytes;
};

static struct object *physicals, *reservations;

static bool whole_pages(size_t bytes)
{
	return bytes && !(bytes % PAGE);
}

static struct physical *new_physical(size_t bytes)
{
	struct physical *made = create(sizeof(*made), PHYSICAL, new_handle());

	made->base.bytes = bytes;
	made->base.references = 1;
	own(&physicals, &made->base);
	return made;
}

static struct physical *physical_at(handle key)
{
	struct physical *physical = (struct physical *)find(PHYSICAL, key);

	return physical && physical->base.references ? physical : NULL;
}

static void end_if_unused(struct physical *physical)
{
	if (!physical->base.references && !physical->mappings)
		drop(&physical->base);
}

static CUresult make(handle *key, size_t bytes, const struct properties *properties)
{
	struct physical *made;
	CUresult result;
	int device;

	if (!key || !properties || !whole_pages(bytes))
		return CUDA_ERROR_INVALID_VALUE;
	result = locate(&properties->location, &device);
	if (result)
		return result;
	if (!room(device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	made = new_physical(bytes);
	made->base.kind = device == HOST ? PINNED_HOST : DEVICE;
	made->base.device = device;
	account_allocation(&made->base);
	*key = made->base.key;
	return CUDA_SUCCESS;
}

API CUresult cuMemCreate(handle *key, size_t bytes, const struct properties *properties,
			 unsigned long long flags)
{
	(void)flags;
	return ALLOCATION(make(key, bytes, properties));
}

static CUresult release(handle key)
{
	struct physical *physical = physical_at(key);
	CUresult result = physical ? refusal() : CUDA_ERROR_INVALID_VALUE;

	if (result)
		return result;
	physical->base.references--;
	end_if_unused(physical);
	return CUDA_SUCCESS;
}

API CUresult cuMemRelease(handle key)
{
	return RELEASE(release(key));
}

/* What the import and the multicast object stand for is some other process's, or has been counted already. */
static CUresult make_empty(handle *key, size_t bytes)
{
	if (!key || !whole_pages(bytes))
		return CUDA_ERROR_INVALID_VALUE;
	*key = new_physical(bytes)->base.key;
	return CUDA_SUCCESS;
}

API CUresult cuMulticastCreate(handle *key, const struct multicast *properties)
{
	return ANSWER(make_empty(key, properties->bytes));
}

/* The descriptor's file holds the size. */
static CUresult export(int *descriptor, handle key, int type)
{
	struct physical *physical = physical_at(key);
	int file;

	if (!physical)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	file = memfd_create("standin memory", MFD_CLOEXEC);
	if (file < 0 || pwrite(file, &physical->base.bytes, sizeof(size_t), 0) != sizeof(size_t))
		return CUDA_ERROR_OPERATING_SYSTEM;
	*descriptor = file;
	return CUDA_SUCCESS;
}

API CUresult cuMemExportToShareableHandle(void *descriptor, handle key, int type,
					  unsigned long long flags)
{
	(void)flags;
	return ANSWER(export(descriptor, key, type));
}

static CUresult import(handle *key, int descriptor, int type)
{
	size_t bytes;

	if (type != 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (pread(descriptor, &bytes, sizeof(bytes), 0) != sizeof(bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return make_empty(key, bytes);
}

API CUresult cuMemImportFromShareableHandle(handle *key, void *descriptor, int type)
{
	return ANSWER(import(key, (int)(intptr_t)descriptor, type));
}

static CUresult reserve(CUdeviceptr *address, size_t bytes)
{
	struct reservation *made;
	CUdeviceptr key;

	if (!address || !whole_pages(bytes))
		return CUDA_ERROR_INVALID_VALUE;
	key = place(bytes);
	if (!key)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made = create(sizeof(*made), RESERVATION, key);
	made->base.bytes = bytes;
	made->pages = calloc(bytes / PAGE, sizeof(*made->pages));
	if (!made->pages)
		abort();
	own(&reservations, &made->base);
	*address = key;
	return CUDA_SUCCESS;
}

API CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment,
				 CUdeviceptr wish, unsigned long long flags)
{
	(void)alignment, (void)wish, (void)flags;
	return ANSWER(reserve(address, bytes));
}

static CUresult unreserve(CUdeviceptr address, size_t bytes)
{
	struct reservation *reservation = (struct reservation *)find(RESERVATION, address);
	CUresult result;

	if (!reservation || reservation->base.bytes != bytes)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < bytes / PAGE; i++)
		if (reservation->pages[i])
			return CUDA_ERROR_INVALID_VALUE;
	result = refusal();
	if (result)
		return result;
	free(reservation->pages);
	drop(&reservation->base);
	return CUDA_SUCCESS;
}

API CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
	return RELEASE(unreserve(address, bytes));
}

/* The entries of the pages from `address` on, NULL where these are not reserved together. */
static struct mapping **pages_at(CUdeviceptr address, size_t bytes)
{
	for (struct object *object = reservations; object; object = object->next)
		if (address >= object->key && address - object->key < object->bytes)
			return bytes <= object->bytes - (address - object->key)
				       ? ((struct reservation *)object)->pages +
						 (address - object->key) / PAGE
				       : NULL;
	return NULL;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, handle key)
{
	struct physical *physical = physical_at(key);
	struct mapping **pages = pages_at(address, bytes);
	struct mapping *mapping;

	if (!physical || !pages || address % PAGE || !whole_pages(bytes) || offset % PAGE ||
	    offset > physical->base.bytes || bytes > physical->base.bytes - offset)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < bytes / PAGE; i++)
		if (pages[i])
			return CUDA_ERROR_INVALID_VALUE;
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		abort();
	*mapping = (struct mapping){ .start = address, .bytes = bytes, .physical = physical };
	physical->mappings++;
	for (size_t i = 0; i < bytes / PAGE; i++)
		pages[i] = mapping;
	return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, handle key,
		      unsigned long long flags)
{
	(void)flags;
	return ANSWER(map(address, bytes, offset, key));
}

/* Whether whole mappings lie there, one after the other. */
static bool is_mapped(struct mapping **pages, CUdeviceptr address, size_t bytes)
{
	size_t at = 0;

	if (!pages || address % PAGE || !whole_pages(bytes))
		return false;
	while (at < bytes) {
		struct mapping *mapping = pages[at / PAGE];

		if (!mapping || mapping->start != address + at || mapping->bytes > bytes - at)
			return false;
		at += mapping->bytes;
	}
	return true;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
	struct mapping **pages = pages_at(address, bytes);
	CUresult result = is_mapped(pages, address, bytes) ? refusal() : CUDA_ERROR_INVALID_VALUE;

	if (result)
		return result;
	for (size_t i = 0; i < bytes / PAGE; i++) {
		struct mapping *mapping = pages[i];
		bool last = mapping->start + mapping->bytes == address + (i + 1) * PAGE;

		pages[i] = NULL;
		if (!last)
			continue;
		mapping->physical->mappings--;
		end_if_unused(mapping->physical);
		free(mapping);
	}
	return CUDA_SUCCESS;
}

API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	return RELEASE(unmap(address, bytes));
}

static CUresult grant(CUdeviceptr address, size_t bytes)
{
	return is_mapped(pages_at(address, bytes), address, bytes) ? CUDA_SUCCESS
								   : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const void *descriptors,
			    size_t count)
{
	(void)descriptors, (void)count;
	return ANSWER(grant(address, bytes));
}

static CUresult retain(handle *key, CUdeviceptr address)
{
	struct mapping **pages = pages_at(address, 1);

	if (!key || !pages || !*pages)
		return CUDA_ERROR_INVALID_VALUE;
	(*pages)->physical->base.references++;
	*key = (*pages)->physical->base.key;
	return CUDA_SUCCESS;
}

API CUresult cuMemRetainAllocationHandle(handle *key, void *address)
{
	return ANSWER(retain(key, (uintptr_t)address));
}

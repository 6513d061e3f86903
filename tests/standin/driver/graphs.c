/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, as far as their nodes allocate: such memory is the graph's, from when the node is added to the graph's end. */
#include "standin.h"

struct graph {
	struct object base;
	struct object *owned;
};

struct allocation {
	int type, handle_types;
	struct location location;
	char unused[88];
	size_t bytes;
	CUdeviceptr address;
};

_Static_assert(offsetof(struct allocation, bytes) == 104, "CUDA_MEM_ALLOC_NODE_PARAMS");

static CUresult make(handle *graph)
{
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = ((struct graph *)create(sizeof(struct graph), GRAPH, new_handle()))->base.key;
	return CUDA_SUCCESS;
}

API CUresult cuGraphCreate(handle *graph, unsigned int flags)
{
	return ANSWER(flags ? CUDA_ERROR_INVALID_VALUE : make(graph));
}

static CUresult add_node(struct graph *graph, handle *node)
{
	struct object *object;

	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	object = create(sizeof(*object), GRAPH_NODE, new_handle());
	own(&graph->owned, object);
	*node = object->key;
	return CUDA_SUCCESS;
}

static CUresult add_allocation(handle *node, handle key, struct allocation *allocation)
{
	struct graph *graph = (struct graph *)find(GRAPH, key);
	uint64_t address;
	CUresult result;
	int device;

	if (!graph || !node || !allocation || !allocation->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	result = locate(&allocation->location, &device);
	if (!result && device == HOST)
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (!result)
		result = hold(&graph->owned, GRAPH_ADDRESS, GRAPHS, device, allocation->bytes,
			      &address);
	if (result)
		return result;
	allocation->address = address;
	return add_node(graph, node);
}

API CUresult cuGraphAddMemAllocNode(handle *node, handle graph, const handle *dependencies,
				    size_t count, struct allocation *parameters)
{
	(void)dependencies, (void)count;
	return ALLOCATION(add_allocation(node, graph, parameters));
}

static CUresult add_free(handle *node, handle key, CUdeviceptr address)
{
	struct graph *graph = (struct graph *)find(GRAPH, key);

	return graph && find(GRAPH_ADDRESS, address) ? add_node(graph, node)
						     : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphAddMemFreeNode(handle *node, handle graph, const handle *dependencies,
				   size_t count, CUdeviceptr address)
{
	(void)dependencies, (void)count;
	return ANSWER(add_free(node, graph, address));
}

static CUresult destroy(struct graph *graph)
{
	CUresult result = graph ? refusal() : CUDA_ERROR_INVALID_VALUE;

	if (result)
		return result;
	drop_all(&graph->owned);
	drop(&graph->base);
	return CUDA_SUCCESS;
}

API CUresult cuGraphDestroy(handle graph)
{
	return RELEASE(destroy((struct graph *)find(GRAPH, graph)));
}

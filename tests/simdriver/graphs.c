/* SPDX-License-Identifier: Apache-2.0 */
/* Graph memory and memory of other interfaces: addresses are given out, nothing is booked. */
#include "sim.h"

#define MEM_ALLOC_NODE 10

/* The parts of the node's parameters that count; offsets as in the public headers. */
struct alloc_node {
    char props_and_access[104];
    uint64_t bytes;
    dptr_t address;
};

struct node {
    uint32_t type, reserved[3];
    struct alloc_node alloc;
};

static result_t give_handle(void **result)
{
    PROBLEM(!result, INVALID_VALUE);
    *result = new_handle();
    return OK;
}

/* An address for good: it is never handed out again. */
static result_t give_address(dptr_t *address, uint64_t bytes)
{
    struct block *block = bytes ? block_take(ARENA_HIGH, 0, bytes) : NULL;

    PROBLEM(!block, INVALID_VALUE);
    *address = block->address;
    return OK;
}

#define MAKE(name)                            \
    SIM_CALL(name, (void **result), (result)) \
    {                                         \
        return give_handle(result);           \
    }
MAKE(cuGraphCreate)
MAKE(cuGraphInstantiateWithFlags)
MAKE(cuGraphAddMemFreeNode)
MAKE(cuGraphAddEmptyNode)
MAKE(cuImportExternalMemory)

#define DONE(name)             \
    SIM_CALL(name, (void), ()) \
    {                          \
        return OK;             \
    }
DONE(cuGraphDestroy)
DONE(cuGraphExecDestroy)
DONE(cuGraphLaunch)
DONE(cuDeviceGraphMemTrim)
DONE(cuDeviceSetGraphMemAttribute)
DONE(cuDestroyExternalMemory)

SIM_CALL(cuGraphAddMemAllocNode,
         (void **node, void *graph, void **after, uint64_t count, struct alloc_node *parameters),
         (node, graph, after, count, parameters))
{
    (void)graph;
    (void)after;
    (void)count;
    PROBLEM(!parameters || give_address(&parameters->address, parameters->bytes), INVALID_VALUE);
    return give_handle(node);
}

static result_t add_node(void **result, struct node *node)
{
    PROBLEM(!node, INVALID_VALUE);
    PROBLEM(node->type == MEM_ALLOC_NODE && give_address(&node->alloc.address, node->alloc.bytes),
            INVALID_VALUE);
    return give_handle(result);
}

SIM_CALL(cuGraphAddNode,
         (void **result, void *graph, void **after, uint64_t count, struct node *node),
         (result, graph, after, count, node))
{
    (void)graph;
    (void)after;
    (void)count;
    return add_node(result, node);
}

SIM_CALL(cuGraphAddNode_v2,
         (void **result, void *graph, void **after, void *edges, uint64_t count, struct node *node),
         (result, graph, after, edges, count, node))
{
    (void)graph;
    (void)after;
    (void)edges;
    (void)count;
    return add_node(result, node);
}

SIM_CALL(cuDeviceGetGraphMemAttribute, (int device, int attribute, uint64_t *value),
         (device, attribute, value))
{
    (void)attribute;
    PROBLEM(check_device(device), INVALID_DEVICE);
    PROBLEM(!value, INVALID_VALUE);
    *value = 0;
    return OK;
}

struct mapped_buffer {
    uint64_t offset, bytes;
};

SIM_CALL(cuExternalMemoryGetMappedBuffer,
         (dptr_t * address, void *memory, const struct mapped_buffer *buffer),
         (address, memory, buffer))
{
    (void)memory;
    PROBLEM(!address || !buffer, INVALID_VALUE);
    return give_address(address, buffer->bytes);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered memory. A pool has a device or the host for its place; what it hands out
 * belongs to that device's primary context, or to the process while there is none.
 */
#define _GNU_SOURCE
#include "sim.h"

#include <string.h>

#define MAX_POOLS 256
#define POOL_MAGIC 0x314c4f4f504d4953ULL

enum {
    ATTRIBUTE_THRESHOLD = 4,
    ATTRIBUTE_RESERVED,
    ATTRIBUTE_RESERVED_PEAK,
    ATTRIBUTE_USED,
    ATTRIBUTE_USED_PEAK,
};

struct pool {
    bool live, imported, standard;
    int device; /* -1: on the host */
    uint32_t generation;
    uint64_t threshold, reserved, reserved_peak, used, used_peak;
};

struct pool_props {
    uint32_t type, handle_types;
    struct location location;
    void *security;
    uint64_t max_bytes;
};

struct shared_pool {
    uint64_t magic;
    int32_t device;
};

static struct pool pools[MAX_POOLS]; /* 0 is none */
static uint16_t free_pools[MAX_POOLS];
static int n_free_pools;
static struct pool *current[BOOKS_DEVICES + 1]; /* [device + 1] */

static struct pool *new_pool(int device, bool imported)
{
    struct pool *pool;
    uint32_t generation;

    if (!n_free_pools)
        return NULL;
    pool = &pools[free_pools[--n_free_pools]];
    generation = pool->generation + 1;
    memset(pool, 0, sizeof(*pool));
    pool->live = true;
    pool->imported = imported;
    pool->device = device;
    pool->generation = generation;
    return pool;
}

static struct pool *standard_pool(int device)
{
    return &pools[device + 2];
}

void pools_set_up(void)
{
    memset(pools, 0, sizeof(pools));
    n_free_pools = 0;
    for (int slot = MAX_POOLS - 1; slot > 0; slot--)
        free_pools[n_free_pools++] = slot;
    for (int device = -1; device < sim->n_devices; device++) {
        current[device + 1] = new_pool(device, false);
        current[device + 1]->standard = true;
    }
}

static bool is_pool(const struct pool *pool)
{
    return pool > pools && pool < pools + MAX_POOLS && pool->live;
}

/* The device of a location, or -1 for the host; false where there is no such place. */
static bool place_of(const struct location *location, int *device)
{
    *device = location->type == LOCATION_DEVICE ? location->id : -1;
    return location->type != LOCATION_NONE && location->type <= LOCATION_HOST_NUMA &&
           (*device < 0 || !check_device(*device));
}

SIM_CALL(cuMemPoolCreate, (struct pool * *result, const struct pool_props *props), (result, props))
{
    int device;

    PROBLEM(!result || !props || props->type != 1, INVALID_VALUE);
    PROBLEM(!place_of(&props->location, &device), INVALID_VALUE);
    *result = new_pool(device, false);
    return *result ? OK : OUT_OF_MEMORY;
}

/* What it handed out stays until it is freed. */
SIM_CALL(cuMemPoolDestroy, (struct pool * pool), (pool))
{
    PROBLEM(!is_pool(pool) || pool->standard, INVALID_VALUE);
    if (current[pool->device + 1] == pool)
        current[pool->device + 1] = standard_pool(pool->device);
    pool->live = false;
    free_pools[n_free_pools++] = pool - pools;
    return OK;
}

static result_t get_pool(struct pool **result, int device, bool standard)
{
    PROBLEM(!result, INVALID_VALUE);
    *result = standard ? standard_pool(device) : current[device + 1];
    return OK;
}

static result_t set_pool(struct pool *pool, int device)
{
    PROBLEM(!is_pool(pool) || pool->device != device || pool->imported, INVALID_VALUE);
    current[device + 1] = pool;
    return OK;
}

SIM_CALL(cuDeviceGetDefaultMemPool, (struct pool * *result, int device), (result, device))
{
    PROBLEM(check_device(device), INVALID_DEVICE);
    return get_pool(result, device, true);
}

SIM_CALL(cuDeviceGetMemPool, (struct pool * *result, int device), (result, device))
{
    PROBLEM(check_device(device), INVALID_DEVICE);
    return get_pool(result, device, false);
}

SIM_CALL(cuDeviceSetMemPool, (int device, struct pool *pool), (device, pool))
{
    PROBLEM(check_device(device), INVALID_DEVICE);
    return set_pool(pool, device);
}

SIM_CALL(cuMemGetDefaultMemPool,
         (struct pool * *result, const struct location *location, unsigned type),
         (result, location, type))
{
    int device;

    PROBLEM(!location || !place_of(location, &device), INVALID_VALUE);
    PROBLEM(type != 1, NOT_SUPPORTED);
    return get_pool(result, device, true);
}

SIM_CALL(cuMemGetMemPool, (struct pool * *result, const struct location *location, unsigned type),
         (result, location, type))
{
    int device;

    PROBLEM(!location || !place_of(location, &device), INVALID_VALUE);
    PROBLEM(type != 1, NOT_SUPPORTED);
    return get_pool(result, device, false);
}

SIM_CALL(cuMemSetMemPool, (const struct location *location, unsigned type, struct pool *pool),
         (location, type, pool))
{
    int device;

    PROBLEM(!location || !place_of(location, &device), INVALID_VALUE);
    PROBLEM(type != 1, NOT_SUPPORTED);
    return set_pool(pool, device);
}

static unsigned pool_row(int device)
{
    return books_row_number(KIND_POOL, device < 0 ? HOST_PINNED : HOST_OWN, device);
}

static void count_use(struct pool *pool, uint64_t bytes)
{
    pool->used += bytes;
    if (pool->used > pool->used_peak)
        pool->used_peak = pool->used;
    if (pool->used > pool->reserved)
        pool->reserved = pool->used;
    if (pool->reserved > pool->reserved_peak)
        pool->reserved_peak = pool->reserved;
}

static result_t take_from(struct pool *pool, dptr_t *address, uint64_t bytes)
{
    struct context *owner = primary_owner(pool->device);
    struct block *block;

    PROBLEM(!address || !bytes, INVALID_VALUE);
    PROBLEM(pool->imported, NOT_SUPPORTED);
    PROBLEM(pool->device >= 0 && !room_for(pool->device, bytes), OUT_OF_MEMORY);
    block = block_take(ARENA_HIGH, 0, bytes);
    PROBLEM(!block, OUT_OF_MEMORY);
    block->pool = pool - pools;
    block->pool_generation = pool->generation;
    block_own(block, owner, pool_row(pool->device));
    book_alloc(owner, block->row, bytes);
    count_use(pool, bytes);
    *address = block->address;
    return OK;
}

/* The pool is known by its handle, or is the current one of the current context's device. */
static result_t allocate(result_t result, dptr_t *address, uint64_t bytes, struct pool *pool)
{
    result_t why;
    struct context *context = context_current(&why);
    int device = is_pool(pool) ? pool->device : device_here();

    if (result == OK && !context)
        result = why;
    if (result == OK && !is_pool(pool))
        result = INVALID_VALUE;
    if (result == OK)
        result = take_from(pool, address, bytes);
    return book_failure(result, is_pool(pool) ? pool_row(device) : fallback_row(KIND_POOL), bytes);
}

static struct pool *pool_here(void)
{
    int device = device_here();

    return device < 0 ? NULL : current[device + 1];
}

#define ALLOC_ASYNC(name)                                                           \
    result_t impl_##name(dptr_t *address, uint64_t bytes, void *stream);            \
    result_t impl_##name(dptr_t *address, uint64_t bytes, void *stream)             \
    {                                                                               \
        result_t result = sim_enter(FN_##name, true);                               \
        (void)stream;                                                               \
        return sim_leave(FN_##name, allocate(result, address, bytes, pool_here())); \
    }
ALLOC_ASYNC(cuMemAllocAsync)
ALLOC_ASYNC(cuMemAllocAsync_ptsz)

#define ALLOC_FROM(name)                                                                    \
    result_t impl_##name(dptr_t *address, uint64_t bytes, struct pool *pool, void *stream); \
    result_t impl_##name(dptr_t *address, uint64_t bytes, struct pool *pool, void *stream)  \
    {                                                                                       \
        result_t result = sim_enter(FN_##name, true);                                       \
        (void)stream;                                                                       \
        return sim_leave(FN_##name, allocate(result, address, bytes, pool));                \
    }
ALLOC_FROM(cuMemAllocFromPoolAsync)
ALLOC_FROM(cuMemAllocFromPoolAsync_ptsz)

static result_t free_async(dptr_t address)
{
    struct block *block = block_find(address);
    enum kind kind;

    PROBLEM(!block, INVALID_VALUE);
    kind = row_kind(block->row);
    PROBLEM(kind != KIND_POOL && kind != KIND_DEVICE && !(block->flags & BLOCK_FROM_POOL),
            INVALID_VALUE);
    return give_back(block);
}

SIM_CALL(cuMemFreeAsync, (dptr_t address, void *stream), (address, stream))
{
    (void)stream;
    return free_async(address);
}

SIM_CALL(cuMemFreeAsync_ptsz, (dptr_t address, void *stream), (address, stream))
{
    (void)stream;
    return free_async(address);
}

void pool_returned(const struct block *block)
{
    struct pool *pool = &pools[block->pool];

    if (block->pool && pool->generation == block->pool_generation)
        pool->used -= block->bytes;
}

/* A primary context has ended, and with it all that pools of its device had handed out. */
void pools_emptied(int device)
{
    for (int slot = 1; slot < MAX_POOLS; slot++)
        if (pools[slot].live && pools[slot].device == device) {
            pools[slot].used = pools[slot].reserved = 0;
            pools[slot].generation++;
        }
}

SIM_CALL(cuMemPoolTrimTo, (struct pool * pool, uint64_t keep), (pool, keep))
{
    uint64_t least;

    PROBLEM(!is_pool(pool), INVALID_VALUE);
    least = keep > pool->used ? keep : pool->used;
    if (pool->reserved > least)
        pool->reserved = least;
    return OK;
}

static uint64_t *attribute_of(struct pool *pool, int attribute)
{
    switch (attribute) {
    case ATTRIBUTE_THRESHOLD:
        return &pool->threshold;
    case ATTRIBUTE_RESERVED:
        return &pool->reserved;
    case ATTRIBUTE_RESERVED_PEAK:
        return &pool->reserved_peak;
    case ATTRIBUTE_USED:
        return &pool->used;
    case ATTRIBUTE_USED_PEAK:
        return &pool->used_peak;
    default:
        return NULL;
    }
}

/* Those below the threshold are switches of 32 bits, and nothing depends on them here. */
SIM_CALL(cuMemPoolGetAttribute, (struct pool * pool, int attribute, void *value),
         (pool, attribute, value))
{
    uint64_t *known;

    PROBLEM(!is_pool(pool) || !value, INVALID_VALUE);
    known = attribute_of(pool, attribute);
    if (known)
        *(uint64_t *)value = *known;
    else
        *(int *)value = attribute < ATTRIBUTE_THRESHOLD;
    return OK;
}

SIM_CALL(cuMemPoolSetAttribute, (struct pool * pool, int attribute, const void *value),
         (pool, attribute, value))
{
    uint64_t *known;

    PROBLEM(!is_pool(pool) || !value, INVALID_VALUE);
    known = attribute_of(pool, attribute);
    PROBLEM(attribute == ATTRIBUTE_RESERVED || attribute == ATTRIBUTE_USED, INVALID_VALUE);
    if (known)
        *known = *(const uint64_t *)value;
    return OK;
}

SIM_CALL(cuMemPoolSetAccess, (struct pool * pool, const void *access, uint64_t count),
         (pool, access, count))
{
    (void)access;
    (void)count;
    return is_pool(pool) ? OK : INVALID_VALUE;
}

SIM_CALL(cuMemPoolGetAccess, (unsigned *flags, struct pool *pool, const struct location *location),
         (flags, pool, location))
{
    PROBLEM(!flags || !is_pool(pool) || !location, INVALID_VALUE);
    *flags = 3;
    return OK;
}

SIM_CALL(cuMemPoolExportToShareableHandle,
         (int *fd, struct pool *pool, unsigned type, uint64_t flags), (fd, pool, type, flags))
{
    struct shared_pool shared = {POOL_MAGIC, 0};

    PROBLEM(!fd || !is_pool(pool) || flags, INVALID_VALUE);
    PROBLEM(type != HANDLE_TYPE_FD, NOT_SUPPORTED);
    shared.device = pool->device;
    return share_out(&shared, sizeof(shared), fd);
}

SIM_CALL(cuMemPoolImportFromShareableHandle,
         (struct pool * *result, uint64_t fd, unsigned type, uint64_t flags),
         (result, fd, type, flags))
{
    struct shared_pool shared;

    PROBLEM(!result || flags, INVALID_VALUE);
    PROBLEM(type != HANDLE_TYPE_FD, NOT_SUPPORTED);
    PROBLEM(!share_in(fd, &shared, sizeof(shared)) || shared.magic != POOL_MAGIC, INVALID_VALUE);
    *result = new_pool(shared.device, true);
    return *result ? OK : OUT_OF_MEMORY;
}

bool pool_imported(const void *pool)
{
    return is_pool(pool) && ((const struct pool *)pool)->imported;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Plain allocations: device, pitched, managed, pinned, registered; their frees. */
#include "sim.h"

#define PITCH_ALIGNMENT 512

/* Set while one exported call makes another: the outer one books the failure. */
static __thread bool inside;

static struct context *owner_or_why(result_t *result)
{
    result_t why;
    struct context *owner = context_current(&why);

    if (*result == OK && !owner)
        *result = why;
    return owner;
}

static result_t take_memory(dptr_t *address, uint64_t bytes, enum kind kind, enum host host,
                            enum arena arena)
{
    result_t result = OK;
    struct context *owner = owner_or_why(&result);
    struct block *block;

    PROBLEM(result, result);
    PROBLEM(!address || !bytes, INVALID_VALUE);
    PROBLEM(host == HOST_OWN && !room_for(owner->device, bytes), OUT_OF_MEMORY);
    block = block_take(arena, 0, bytes);
    PROBLEM(!block, OUT_OF_MEMORY);
    block_own(block, owner, books_row_number(kind, host, owner->device));
    book_alloc(owner, block->row, bytes);
    *address = block->address;
    return OK;
}

static result_t allocate(result_t result, dptr_t *address, uint64_t bytes, enum kind kind,
                         enum host host, enum arena arena)
{
    if (result == OK)
        result = take_memory(address, bytes, kind, host, arena);
    if (inside)
        return result;
    return book_failure(result, books_row_number(kind, host, device_here()), bytes);
}

/* An exported allocating function: its failure is booked even where it was injected. */
#define ALLOCATING(name, parameters, body)            \
    result_t impl_##name parameters;                  \
    result_t impl_##name parameters                   \
    {                                                 \
        result_t result = sim_enter(FN_##name, true); \
        result = body;                                \
        return sim_leave(FN_##name, result);          \
    }

static result_t allocate_low(result_t result, uint32_t *address, uint32_t bytes)
{
    dptr_t wide = 0;

    result = allocate(result, address ? &wide : NULL, bytes, KIND_DEVICE, HOST_OWN, ARENA_LOW);
    if (result == OK)
        *address = wide;
    return result;
}

ALLOCATING(cuMemAlloc_v2, (dptr_t * address, uint64_t bytes),
           allocate(result, address, bytes, KIND_DEVICE, HOST_OWN, ARENA_HIGH))
ALLOCATING(cuMemAlloc, (uint32_t *address, uint32_t bytes), allocate_low(result, address, bytes))

static result_t managed(result_t result, dptr_t *address, uint64_t bytes, unsigned flags)
{
    if (result == OK && flags != 1 && flags != 2)
        result = INVALID_VALUE;
    return allocate(result, address, bytes, KIND_MANAGED, HOST_MANAGED, ARENA_HIGH);
}

ALLOCATING(cuMemAllocManaged, (dptr_t * address, uint64_t bytes, unsigned flags),
           managed(result, address, bytes, flags))

/* cuMemAllocHost through the entry of cuMemHostAlloc, where nesting was asked for. */
result_t cuMemHostAlloc(dptr_t *address, uint64_t bytes, unsigned flags);
result_t cuMemAlloc_v2(dptr_t *address, uint64_t bytes);

static result_t pinned(result_t result, dptr_t *address, uint64_t bytes, bool nest)
{
    if (result == OK && nest && sim->nested) {
        inside = true;
        sim_pause();
        result = cuMemHostAlloc(address, bytes, 0);
        sim_resume();
        inside = false;
        return book_failure(result, books_row_number(KIND_PINNED, HOST_PINNED, device_here()),
                            bytes);
    }
    return allocate(result, address, bytes, KIND_PINNED, HOST_PINNED, ARENA_HIGH);
}

ALLOCATING(cuMemHostAlloc, (dptr_t * address, uint64_t bytes, unsigned flags),
           ((void)flags, pinned(result, address, bytes, false)))
ALLOCATING(cuMemAllocHost_v2, (dptr_t * address, uint64_t bytes),
           pinned(result, address, bytes, true))
ALLOCATING(cuMemAllocHost, (dptr_t * address, uint32_t bytes), pinned(result, address, bytes, true))

static uint64_t pitch_of(uint64_t width)
{
    return (width + PITCH_ALIGNMENT - 1) & ~(PITCH_ALIGNMENT - 1ULL);
}

static result_t take_pitched(dptr_t *address, uint64_t bytes, enum arena arena)
{
    result_t result;

    if (!sim->nested || arena != ARENA_HIGH)
        return take_memory(address, bytes, KIND_DEVICE, HOST_OWN, arena);
    inside = true;
    sim_pause();
    result = cuMemAlloc_v2(address, bytes);
    sim_resume();
    inside = false;
    return result;
}

/* A failure is booked with width x height: the pitch is known only after success. */
static result_t pitched(result_t result, dptr_t *address, uint64_t *pitch, uint64_t width,
                        uint64_t height, unsigned element, enum arena arena)
{
    bool wrong = !pitch || (element != 4 && element != 8 && element != 16);

    if (result == OK && wrong)
        result = INVALID_VALUE;
    if (result == OK)
        result = take_pitched(address, pitch_of(width) * height, arena);
    if (result == OK)
        *pitch = pitch_of(width);
    return book_failure(result, books_row_number(KIND_DEVICE, HOST_OWN, device_here()),
                        width * height);
}

ALLOCATING(cuMemAllocPitch_v2,
           (dptr_t * address, uint64_t *pitch, uint64_t width, uint64_t height, unsigned element),
           pitched(result, address, pitch, width, height, element, ARENA_HIGH))

static result_t pitched_low(result_t result, uint32_t *address, uint32_t *pitch, uint32_t width,
                            uint32_t height, unsigned element)
{
    dptr_t wide = 0;
    uint64_t wide_pitch = 0;

    result = pitched(result, address ? &wide : NULL, pitch ? &wide_pitch : NULL, width, height,
                     element, ARENA_LOW);
    if (result == OK) {
        *address = wide;
        *pitch = wide_pitch;
    }
    return result;
}

ALLOCATING(cuMemAllocPitch,
           (uint32_t *address, uint32_t *pitch, uint32_t width, uint32_t height, unsigned element),
           pitched_low(result, address, pitch, width, height, element))

static result_t take_registered(dptr_t address, uint64_t bytes)
{
    result_t result = OK;
    struct context *owner = owner_or_why(&result);
    struct block *block;

    PROBLEM(result, result);
    PROBLEM(!address || !bytes, INVALID_VALUE);
    PROBLEM(block_find(address), ALREADY_REGISTERED);
    block = block_take(ARENA_NONE, address, bytes);
    PROBLEM(!block, OUT_OF_MEMORY);
    block_own(block, owner, books_row_number(KIND_REGISTERED, HOST_REGISTERED, owner->device));
    book_alloc(owner, block->row, bytes);
    return OK;
}

static result_t registered(result_t result, dptr_t address, uint64_t bytes)
{
    if (result == OK)
        result = take_registered(address, bytes);
    return book_failure(result, books_row_number(KIND_REGISTERED, HOST_REGISTERED, device_here()),
                        bytes);
}

ALLOCATING(cuMemHostRegister_v2, (dptr_t address, uint64_t bytes, unsigned flags),
           ((void)flags, registered(result, address, bytes)))
ALLOCATING(cuMemHostRegister, (dptr_t address, uint64_t bytes, unsigned flags),
           ((void)flags, registered(result, address, bytes)))

result_t give_back(struct block *block)
{
    book_free(&sim->contexts[block->owner], block->row, block->bytes);
    pool_returned(block);
    block_drop(block);
    return OK;
}

SIM_CALL(cuMemHostUnregister, (dptr_t address), (address))
{
    struct block *block = block_find(address);

    PROBLEM(!block || row_kind(block->row) != KIND_REGISTERED, NOT_REGISTERED);
    return give_back(block);
}

static result_t free_device(dptr_t address)
{
    struct block *block;
    enum kind kind;

    PROBLEM(!address, OK);
    block = block_find(address);
    PROBLEM(!block, INVALID_VALUE);
    kind = row_kind(block->row);
    PROBLEM(kind != KIND_DEVICE && kind != KIND_MANAGED && kind != KIND_POOL &&
                !(block->flags & BLOCK_FROM_POOL),
            INVALID_VALUE);
    return give_back(block);
}

SIM_CALL(cuMemFree_v2, (dptr_t address), (address))
{
    return free_device(address);
}

SIM_CALL(cuMemFree, (uint32_t address), (address))
{
    return free_device(address);
}

SIM_CALL(cuMemFreeHost, (dptr_t address), (address))
{
    struct block *block = block_find(address);

    PROBLEM(!block || row_kind(block->row) != KIND_PINNED, INVALID_VALUE);
    return give_back(block);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays and mipmaps: what their descriptor asks for, without padding. Sparse and deferred
 * ones have no memory and are not booked.
 */
#include "sim.h"

enum { LAYERED = 0x01, CUBEMAP = 0x04, SPARSE = 0x40, DEFERRED = 0x80 };

struct shape {
    uint64_t width, height, depth;
    unsigned format, channels, flags, levels;
};

struct descriptor {
    uint64_t width, height;
    unsigned format, channels;
};

struct descriptor_v1 {
    unsigned width, height, format, channels;
};

struct descriptor_3d {
    uint64_t width, height, depth;
    unsigned format, channels, flags;
};

struct descriptor_3d_v1 {
    unsigned width, height, depth, format, channels, flags;
};

static unsigned format_bytes(unsigned format)
{
    switch (format) {
    case 0x01: /* 8 bits */
    case 0x08:
        return 1;
    case 0x02: /* 16 bits */
    case 0x09:
    case 0x10:
        return 2;
    case 0x03: /* 32 bits */
    case 0x0a:
    case 0x20:
        return 4;
    default:
        return 0;
    }
}

static uint64_t at_least_one(uint64_t value)
{
    return value ? value : 1;
}

/* Down to one element; the driver clamps a larger number, and 0 to 1. */
static unsigned possible_levels(const struct shape *shape)
{
    uint64_t largest = shape->width > shape->height ? shape->width : shape->height;

    if (!(shape->flags & LAYERED) && shape->depth > largest)
        largest = shape->depth;
    return 64 - __builtin_clzll(at_least_one(largest));
}

static uint64_t shape_bytes(const struct shape *shape)
{
    uint64_t width = shape->width, height = at_least_one(shape->height);
    uint64_t depth = at_least_one(shape->depth), elements = 0;
    unsigned levels = at_least_one(shape->levels), possible = possible_levels(shape);
    bool flat = shape->flags & (LAYERED | CUBEMAP);

    for (unsigned level = 0; level < levels && level < possible; level++) {
        elements += width * height * depth;
        width = at_least_one(width / 2);
        height = at_least_one(height / 2);
        depth = flat ? depth : at_least_one(depth / 2);
    }
    return elements * format_bytes(shape->format) * shape->channels;
}

static bool valid(const struct shape *shape)
{
    return shape->width && format_bytes(shape->format) &&
           (shape->channels == 1 || shape->channels == 2 || shape->channels == 4);
}

/* A handle is an address of the arena like any other. */
static result_t create(dptr_t *array, const struct shape *shape, uint32_t flags)
{
    uint64_t bytes = shape_bytes(shape);
    bool memory = !(shape->flags & (SPARSE | DEFERRED));
    result_t why;
    struct context *owner = context_current(&why);
    struct block *block;

    PROBLEM(!owner, why);
    PROBLEM(!array || !valid(shape), INVALID_VALUE);
    PROBLEM(memory && !room_for(owner->device, bytes), OUT_OF_MEMORY);
    block = block_take(ARENA_HIGH, 0, 1);
    PROBLEM(!block, OUT_OF_MEMORY);
    block->bytes = bytes;
    block->flags = flags | (memory ? 0 : BLOCK_NO_MEMORY);
    block_own(block, owner, books_row_number(KIND_ARRAY, HOST_OWN, owner->device));
    if (memory)
        book_alloc(owner, block->row, bytes);
    *array = block->address;
    return OK;
}

static result_t creating(result_t result, dptr_t *array, const struct shape *shape, uint32_t flags)
{
    if (result == OK)
        result = create(array, shape, flags);
    return book_failure(result, fallback_row(KIND_ARRAY), shape_bytes(shape));
}

/* Exported calls f(array *, descriptor *): `...` is the shape made of the descriptor d. */
#define CREATE(name, type, ...)                                          \
    result_t impl_##name(dptr_t *array, const struct type *d);           \
    result_t impl_##name(dptr_t *array, const struct type *d)            \
    {                                                                    \
        result_t result = sim_enter(FN_##name, true);                    \
        struct shape shape = {0};                                        \
        if (d)                                                           \
            shape = (struct shape)__VA_ARGS__;                           \
        return sim_leave(FN_##name, creating(result, array, &shape, 0)); \
    }
CREATE(cuArrayCreate, descriptor_v1, {d->width, d->height, 0, d->format, d->channels, 0, 1})
CREATE(cuArrayCreate_v2, descriptor, {d->width, d->height, 0, d->format, d->channels, 0, 1})
CREATE(cuArray3DCreate, descriptor_3d_v1,
       {d->width, d->height, d->depth, d->format, d->channels, d->flags, 1})
CREATE(cuArray3DCreate_v2, descriptor_3d,
       {d->width, d->height, d->depth, d->format, d->channels, d->flags, 1})

result_t impl_cuMipmappedArrayCreate(dptr_t *array, const struct descriptor_3d *d, unsigned levels);
result_t impl_cuMipmappedArrayCreate(dptr_t *array, const struct descriptor_3d *d, unsigned levels)
{
    result_t result = sim_enter(FN_cuMipmappedArrayCreate, true);
    struct shape shape = {0};

    if (d)
        shape =
            (struct shape){d->width, d->height, d->depth, d->format, d->channels, d->flags, levels};
    return sim_leave(FN_cuMipmappedArrayCreate, creating(result, array, &shape, BLOCK_MIPMAP));
}

static struct block *array_block(dptr_t array, bool mipmap)
{
    struct block *block = block_find(array);
    bool fits =
        block && row_kind(block->row) == KIND_ARRAY && mipmap == !!(block->flags & BLOCK_MIPMAP);

    return fits ? block : NULL;
}

static result_t destroy(struct block *block)
{
    PROBLEM(!block, INVALID_HANDLE);
    if (!(block->flags & BLOCK_NO_MEMORY))
        return give_back(block);
    block_drop(block);
    return OK;
}

SIM_CALL(cuArrayDestroy, (dptr_t array), (array))
{
    return destroy(array_block(array, false));
}

SIM_CALL(cuMipmappedArrayDestroy, (dptr_t array), (array))
{
    return destroy(array_block(array, true));
}

/* No array of its own: not booked, and not to be destroyed. */
SIM_CALL(cuMipmappedArrayGetLevel, (dptr_t * level, dptr_t array, unsigned number),
         (level, array, number))
{
    PROBLEM(!array_block(array, true), INVALID_HANDLE);
    PROBLEM(!level || number > 64, INVALID_VALUE);
    *level = array + number + 1;
    return OK;
}

struct requirements {
    uint64_t size, alignment;
    uint32_t reserved[4];
};

static result_t require(struct requirements *requirements, const struct block *block)
{
    PROBLEM(!block, INVALID_HANDLE);
    PROBLEM(!requirements, INVALID_VALUE);
    *requirements = (struct requirements){block->bytes, 512, {0}};
    return OK;
}

SIM_CALL(cuArrayGetMemoryRequirements,
         (struct requirements * requirements, dptr_t array, int device),
         (requirements, array, device))
{
    (void)device;
    return require(requirements, array_block(array, false));
}

SIM_CALL(cuMipmappedArrayGetMemoryRequirements,
         (struct requirements * requirements, dptr_t array, int device),
         (requirements, array, device))
{
    (void)device;
    return require(requirements, array_block(array, true));
}

/* Binding memory to tiles of sparse arrays: accepted, without effect. */
SIM_CALL(cuMemMapArrayAsync, (const void *list, unsigned count, void *stream),
         (list, count, stream))
{
    (void)count;
    (void)stream;
    return list ? OK : INVALID_VALUE;
}

SIM_CALL(cuMemMapArrayAsync_ptsz, (const void *list, unsigned count, void *stream),
         (list, count, stream))
{
    (void)count;
    (void)stream;
    return list ? OK : INVALID_VALUE;
}

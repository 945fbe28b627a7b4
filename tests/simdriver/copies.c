/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills, at once; questions about pointers. */
#include "sim.h"

#include <string.h>

static bool on_device(dptr_t address, uint64_t bytes)
{
    return in_arena(address, bytes) || in_reservation(address, bytes);
}

static result_t copy(dptr_t to, dptr_t from, uint64_t bytes)
{
    memmove((void *)to, (const void *)from, bytes);
    return OK;
}

#define COPY(name, checks, extra_parameters, extra_arguments)                 \
    SIM_CALL(name, (dptr_t to, dptr_t from, uint64_t bytes extra_parameters), \
             (to, from, bytes extra_arguments))                               \
    {                                                                         \
        PROBLEM(!to || !from || !(checks), INVALID_VALUE);                    \
        return copy(to, from, bytes);                                         \
    }
#define STREAM , void *stream __attribute__((unused))
#define STREAM_ARGUMENT , stream
#define NONE

#define TO_DEVICE on_device(to, bytes)
#define FROM_DEVICE on_device(from, bytes)

COPY(cuMemcpy, true, NONE, NONE)
COPY(cuMemcpyAsync, true, STREAM, STREAM_ARGUMENT)
COPY(cuMemcpyHtoD_v2, TO_DEVICE, NONE, NONE)
COPY(cuMemcpyHtoDAsync_v2, TO_DEVICE, STREAM, STREAM_ARGUMENT)
COPY(cuMemcpyDtoH_v2, FROM_DEVICE, NONE, NONE)
COPY(cuMemcpyDtoHAsync_v2, FROM_DEVICE, STREAM, STREAM_ARGUMENT)
COPY(cuMemcpyDtoD_v2, TO_DEVICE &&FROM_DEVICE, NONE, NONE)
COPY(cuMemcpyDtoDAsync_v2, TO_DEVICE &&FROM_DEVICE, STREAM, STREAM_ARGUMENT)

#define FILL(name, type, extra_parameters, extra_arguments)                  \
    SIM_CALL(name, (dptr_t to, type value, uint64_t count extra_parameters), \
             (to, value, count extra_arguments))                             \
    {                                                                        \
        PROBLEM(!on_device(to, count * sizeof(type)), INVALID_VALUE);        \
        for (uint64_t i = 0; i < count; i++)                                 \
            ((type *)to)[i] = value;                                         \
        return OK;                                                           \
    }
FILL(cuMemsetD8_v2, uint8_t, NONE, NONE)
FILL(cuMemsetD8Async, uint8_t, STREAM, STREAM_ARGUMENT)
FILL(cuMemsetD16_v2, uint16_t, NONE, NONE)
FILL(cuMemsetD16Async, uint16_t, STREAM, STREAM_ARGUMENT)
FILL(cuMemsetD32_v2, uint32_t, NONE, NONE)
FILL(cuMemsetD32Async, uint32_t, STREAM, STREAM_ARGUMENT)

#define HINT(name)                                                     \
    SIM_CALL(name, (dptr_t address, uint64_t bytes), (address, bytes)) \
    {                                                                  \
        return address && bytes ? OK : INVALID_VALUE;                  \
    }
HINT(cuMemPrefetchAsync)
HINT(cuMemPrefetchAsync_v2)
HINT(cuMemAdvise)
HINT(cuMemAdvise_v2)

/* What is known of an address inside an allocation or a map. */
struct place {
    dptr_t base;
    uint64_t bytes;
    int device;
    enum host host;
    struct context *context;
};

static bool place_of(dptr_t address, struct place *place)
{
    struct block *block = block_containing(address);
    const struct mapping *mapping = block ? NULL : map_containing(address);

    if (!block && !mapping)
        return false;
    if (block) {
        *place = (struct place){block->address, block->bytes, row_device(block->row),
                                row_host(block->row), &sim->contexts[block->owner]};
        return true;
    }
    *place = (struct place){mapping->address, mapping->bytes, -1, HOST_OWN, NULL};
    vmm_handle_device(mapping->handle, &place->device);
    return true;
}

SIM_CALL(cuMemGetAddressRange_v2, (dptr_t * base, uint64_t *bytes, dptr_t address),
         (base, bytes, address))
{
    struct place place;

    PROBLEM(!place_of(address, &place), INVALID_VALUE);
    if (base)
        *base = place.base;
    if (bytes)
        *bytes = place.bytes;
    return OK;
}

SIM_CALL(cuMemHostGetDevicePointer_v2, (dptr_t * result, dptr_t address, unsigned flags),
         (result, address, flags))
{
    struct place place;

    (void)flags;
    PROBLEM(!result || !place_of(address, &place), INVALID_VALUE);
    *result = address;
    return OK;
}

SIM_CALL(cuMemHostGetFlags, (unsigned *flags, dptr_t address), (flags, address))
{
    struct place place;

    PROBLEM(!flags || !place_of(address, &place), INVALID_VALUE);
    *flags = 3;
    return OK;
}

enum {
    POINTER_CONTEXT = 1,
    POINTER_MEMORY_TYPE,
    POINTER_DEVICE_ADDRESS,
    POINTER_HOST_ADDRESS,
    POINTER_SYNC = 6,
    POINTER_BUFFER,
    POINTER_MANAGED,
    POINTER_DEVICE,
    POINTER_LEGACY_IPC,
    POINTER_BASE,
    POINTER_BYTES,
    POINTER_MAPPED,
    POINTER_HANDLE_TYPES,
};

enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2 };

static bool on_host(const struct place *place)
{
    return place->host == HOST_PINNED || place->host == HOST_REGISTERED;
}

static result_t pointer_attribute(void *data, int attribute, dptr_t address,
                                  const struct place *place)
{
    switch (attribute) {
    case POINTER_CONTEXT:
        *(void **)data = place->context;
        return OK;
    case POINTER_MEMORY_TYPE:
        *(unsigned *)data = on_host(place) ? MEMORY_HOST : MEMORY_DEVICE;
        return OK;
    case POINTER_DEVICE_ADDRESS:
        *(dptr_t *)data = address;
        return OK;
    case POINTER_HOST_ADDRESS:
        PROBLEM(!on_host(place) && place->host != HOST_MANAGED, INVALID_VALUE);
        *(dptr_t *)data = address;
        return OK;
    case POINTER_BUFFER:
    case POINTER_BASE:
        *(uint64_t *)data = place->base;
        return OK;
    case POINTER_BYTES:
        *(uint64_t *)data = place->bytes;
        return OK;
    case POINTER_DEVICE:
        *(int *)data = place->device;
        return OK;
    case POINTER_HANDLE_TYPES:
        *(uint64_t *)data = 0;
        return OK;
    case POINTER_MANAGED: /* and the other switches are bytes */
        *(uint8_t *)data = place->host == HOST_MANAGED;
        return OK;
    case POINTER_SYNC:
    case POINTER_LEGACY_IPC:
    case POINTER_MAPPED:
        *(uint8_t *)data = attribute == POINTER_MAPPED;
        return OK;
    default:
        return NOT_SUPPORTED;
    }
}

SIM_CALL(cuPointerGetAttribute, (void *data, int attribute, dptr_t address),
         (data, attribute, address))
{
    struct place place;

    PROBLEM(!data || !place_of(address, &place), INVALID_VALUE);
    return pointer_attribute(data, attribute, address, &place);
}

/* Unknown addresses and attributes leave zeros: that is how a client asks what something is. */
SIM_CALL(cuPointerGetAttributes,
         (unsigned count, const int *attributes, void **data, dptr_t address),
         (count, attributes, data, address))
{
    struct place place;
    bool known = place_of(address, &place);

    PROBLEM(!attributes || !data, INVALID_VALUE);
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = 0;
        bool byte = attributes[i] == POINTER_SYNC || attributes[i] == POINTER_MANAGED;

        if (known)
            pointer_attribute(&value, attributes[i], address, &place);
        else if (attributes[i] == POINTER_DEVICE)
            value = (uint32_t)-2;
        if (byte || attributes[i] == POINTER_LEGACY_IPC || attributes[i] == POINTER_MAPPED)
            *(uint8_t *)data[i] = value;
        else if (attributes[i] == POINTER_MEMORY_TYPE || attributes[i] == POINTER_DEVICE)
            *(uint32_t *)data[i] = value;
        else
            *(uint64_t *)data[i] = value;
    }
    return OK;
}

SIM_CALL(cuPointerSetAttribute, (const void *value, int attribute, dptr_t address),
         (value, attribute, address))
{
    struct place place;

    (void)attribute;
    return value && place_of(address, &place) ? OK : INVALID_VALUE;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: physical memory by handle. It belongs to the process, and
 * is given back when the last reference and the last map are gone. An imported handle is
 * booked at its first map, whole; it can only be mapped whole.
 */
#include "sim.h"

#include <string.h>

#define MAX_HANDLES 65536
#define FIRST_HANDLE 0x5000
#define VMM_MAGIC 0x314d4d564d495356ULL

struct memory {
    bool live, imported, booked;
    uint64_t bytes;
    struct location location;
    uint32_t references, maps;
    uint32_t row;
};

struct props {
    uint32_t type, handle_types;
    struct location location;
    void *security;
    uint64_t flags;
};

struct shared_memory {
    uint64_t magic, bytes;
    struct location location;
};

static struct memory handles[MAX_HANDLES];
static uint32_t free_handles[MAX_HANDLES];
static uint32_t n_free_handles, n_handles;

void vmm_set_up(void)
{
    n_free_handles = n_handles = 0;
    maps_set_up();
}

/* The number freed last is the next one, as the real driver does it. */
static struct memory *new_memory(uint64_t *handle)
{
    uint32_t number;

    if (n_free_handles)
        number = free_handles[--n_free_handles];
    else if (n_handles < MAX_HANDLES)
        number = n_handles++;
    else
        return NULL;
    handles[number] = (struct memory){.live = true, .references = 1};
    *handle = FIRST_HANDLE + number;
    return &handles[number];
}

static struct memory *memory_of(uint64_t handle)
{
    uint64_t number = handle - FIRST_HANDLE;

    return number < n_handles && handles[number].live ? &handles[number] : NULL;
}

static struct context *process(void)
{
    return &sim->contexts[PROCESS_OWNER];
}

static void drop_if_unused(struct memory *memory)
{
    if (memory->references || memory->maps)
        return;
    if (memory->booked)
        book_free(process(), memory->row, memory->bytes);
    memory->live = false;
    free_handles[n_free_handles++] = memory - handles;
}

static void book_memory(struct memory *memory)
{
    if (memory->booked)
        return;
    memory->booked = true;
    book_alloc(process(), memory->row, memory->bytes);
}

/* A device that does not exist is booked as unknown: the books have no row for it. */
static unsigned created_row(const struct props *props)
{
    bool device = props && props->location.type == LOCATION_DEVICE;
    int id = device && !check_device(props->location.id) ? props->location.id : -1;

    return books_row_number(KIND_VMM, device && id >= 0 ? HOST_OWN : HOST_PINNED, id);
}

static result_t create(uint64_t *handle, uint64_t bytes, const struct props *props)
{
    struct memory *memory;

    PROBLEM(!handle || !bytes || bytes % GRANULARITY || !props, INVALID_VALUE);
    PROBLEM(props->type != 1 || props->location.type == LOCATION_NONE ||
                props->location.type > LOCATION_HOST_NUMA,
            INVALID_VALUE);
    PROBLEM(props->location.type == LOCATION_DEVICE && check_device(props->location.id),
            INVALID_DEVICE);
    PROBLEM(props->location.type == LOCATION_DEVICE && !room_for(props->location.id, bytes),
            OUT_OF_MEMORY);
    memory = new_memory(handle);
    PROBLEM(!memory, OUT_OF_MEMORY);
    memory->bytes = bytes;
    memory->location = props->location;
    memory->row = created_row(props);
    book_memory(memory);
    return OK;
}

result_t impl_cuMemCreate(uint64_t *handle, uint64_t bytes, const struct props *props,
                          uint64_t flags);
result_t impl_cuMemCreate(uint64_t *handle, uint64_t bytes, const struct props *props,
                          uint64_t flags)
{
    result_t result = sim_enter(FN_cuMemCreate, true);

    (void)flags;
    if (result == OK)
        result = create(handle, bytes, props);
    return sim_leave(FN_cuMemCreate, book_failure(result, created_row(props), bytes));
}

SIM_CALL(cuMemRelease, (uint64_t handle), (handle))
{
    struct memory *memory = memory_of(handle);

    PROBLEM(!memory || !memory->references, INVALID_VALUE);
    memory->references--;
    drop_if_unused(memory);
    return OK;
}

SIM_CALL(cuMemMap,
         (dptr_t address, uint64_t bytes, uint64_t offset, uint64_t handle, uint64_t flags),
         (address, bytes, offset, handle, flags))
{
    struct memory *memory = memory_of(handle);
    bool whole = memory && offset == 0 && bytes == memory->bytes;

    PROBLEM(!memory || !bytes || bytes % GRANULARITY || flags, INVALID_VALUE);
    PROBLEM(bytes > memory->bytes || offset > memory->bytes - bytes, INVALID_VALUE);
    PROBLEM(memory->imported && !whole, INVALID_VALUE);
    PROBLEM(!map_add(address, bytes, handle - FIRST_HANDLE), INVALID_VALUE);
    memory->maps++;
    book_memory(memory);
    return OK;
}

/* Over one or more whole maps without a hole; else nothing happens. */
SIM_CALL(cuMemUnmap, (dptr_t address, uint64_t bytes), (address, bytes))
{
    PROBLEM(!bytes || !map_covers(address, bytes), INVALID_VALUE);
    while (bytes) {
        uint64_t mapped;
        struct memory *memory = &handles[map_remove(address, &mapped)];

        memory->maps--;
        drop_if_unused(memory);
        address += mapped;
        bytes -= mapped;
    }
    return OK;
}

SIM_CALL(cuMemRetainAllocationHandle, (uint64_t *handle, dptr_t address), (handle, address))
{
    const struct mapping *mapping = map_containing(address);

    PROBLEM(!handle || !mapping, INVALID_VALUE);
    handles[mapping->handle].references++;
    *handle = FIRST_HANDLE + mapping->handle;
    return OK;
}

SIM_CALL(cuMemSetAccess, (dptr_t address, uint64_t bytes, const void *access, uint64_t count),
         (address, bytes, access, count))
{
    PROBLEM(!access || !count || !map_covers(address, bytes), INVALID_VALUE);
    return OK;
}

SIM_CALL(cuMemGetAccess, (uint64_t *flags, const struct location *location, dptr_t address),
         (flags, location, address))
{
    PROBLEM(!flags || !location || !map_containing(address), INVALID_VALUE);
    *flags = 3;
    return OK;
}

SIM_CALL(cuMemGetAllocationGranularity,
         (uint64_t *granularity, const struct props *props, unsigned option),
         (granularity, props, option))
{
    (void)option;
    PROBLEM(!granularity || !props, INVALID_VALUE);
    *granularity = GRANULARITY;
    return OK;
}

SIM_CALL(cuMemGetAllocationPropertiesFromHandle, (struct props * props, uint64_t handle),
         (props, handle))
{
    struct memory *memory = memory_of(handle);

    PROBLEM(!props || !memory, INVALID_VALUE);
    memset(props, 0, sizeof(*props));
    props->type = 1;
    props->handle_types = HANDLE_TYPE_FD;
    props->location = memory->location;
    return OK;
}

SIM_CALL(cuMemExportToShareableHandle, (int *fd, uint64_t handle, unsigned type, uint64_t flags),
         (fd, handle, type, flags))
{
    struct memory *memory = memory_of(handle);
    struct shared_memory shared = {VMM_MAGIC, 0, {0, 0}};

    PROBLEM(!fd || !memory || flags, INVALID_VALUE);
    PROBLEM(type != HANDLE_TYPE_FD, NOT_SUPPORTED);
    shared.bytes = memory->bytes;
    shared.location = memory->location;
    return share_out(&shared, sizeof(shared), fd);
}

static unsigned imported_row(void)
{
    return books_row_number(KIND_IMPORTED, HOST_IMPORTED, device_here());
}

static result_t import(uint64_t *handle, uint64_t fd, unsigned type)
{
    struct shared_memory shared;
    struct memory *memory;

    PROBLEM(!handle, INVALID_VALUE);
    PROBLEM(type != HANDLE_TYPE_FD, NOT_SUPPORTED);
    PROBLEM(!share_in(fd, &shared, sizeof(shared)) || shared.magic != VMM_MAGIC, INVALID_VALUE);
    memory = new_memory(handle);
    PROBLEM(!memory, OUT_OF_MEMORY);
    memory->imported = true;
    memory->bytes = shared.bytes;
    memory->location = shared.location;
    memory->row = imported_row();
    return OK;
}

result_t impl_cuMemImportFromShareableHandle(uint64_t *handle, uint64_t fd, unsigned type);
result_t impl_cuMemImportFromShareableHandle(uint64_t *handle, uint64_t fd, unsigned type)
{
    result_t result = sim_enter(FN_cuMemImportFromShareableHandle, true);

    if (result == OK)
        result = import(handle, fd, type);
    result = book_failure(result, imported_row(), 0);
    return sim_leave(FN_cuMemImportFromShareableHandle, result);
}

bool vmm_handle_device(uint32_t handle, int *device)
{
    *device = handles[handle].location.type == LOCATION_DEVICE ? handles[handle].location.id : -1;
    return *device >= 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of other processes: IPC handles, pointers of imported pools, file descriptors
 * that stand for something. The opaque bytes tell the importer how large it is.
 */
#define _GNU_SOURCE
#include "sim.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define IPC_MAGIC 0x314350494d495356ULL
#define POINTER_MAGIC 0x3152545056505353ULL
#define MAX_OPENED 1024

struct opaque {
    uint64_t magic, instance, address, bytes;
    uint64_t unused[4];
};

/* An IPC handle is opened once for each context; more opens count. */
struct opened {
    dptr_t address; /* 0 = free */
    uint64_t instance, remote;
    struct context *context;
    uint32_t count;
};

static struct opened opened[MAX_OPENED];

result_t share_out(const void *data, size_t bytes, int *fd)
{
    *fd = memfd_create("simulated driver", MFD_CLOEXEC);
    PROBLEM(*fd < 0, OUT_OF_MEMORY);
    return write(*fd, data, bytes) == (ssize_t)bytes ? OK : OUT_OF_MEMORY;
}

bool share_in(int fd, void *data, size_t bytes)
{
    return pread(fd, data, bytes, 0) == (ssize_t)bytes;
}

static struct opaque describe(uint64_t magic, const struct block *block)
{
    return (struct opaque){magic, sim->instance, block->address, block->bytes, {0}};
}

SIM_CALL(cuIpcGetMemHandle, (struct opaque * handle, dptr_t address), (handle, address))
{
    struct block *block = block_find(address);

    PROBLEM(!handle || !block || row_kind(block->row) != KIND_DEVICE, INVALID_VALUE);
    *handle = describe(IPC_MAGIC, block);
    return OK;
}

static unsigned imported_row(void)
{
    return books_row_number(KIND_IMPORTED, HOST_IMPORTED, device_here());
}

static result_t take_imported(dptr_t *address, uint64_t bytes, uint32_t flags)
{
    result_t why;
    struct context *owner = context_current(&why);
    struct block *block;

    PROBLEM(!owner, why);
    block = block_take(ARENA_HIGH, 0, bytes);
    PROBLEM(!block, OUT_OF_MEMORY);
    block->flags = flags;
    block_own(block, owner, imported_row());
    book_alloc(owner, block->row, bytes);
    *address = block->address;
    return OK;
}

static bool still_open(const struct opened *it)
{
    struct block *block = it->address ? block_find(it->address) : NULL;

    return block && block->flags & BLOCK_FROM_IPC;
}

static struct opened *find_opened(const struct opaque *handle, const struct context *context)
{
    for (int i = 0; i < MAX_OPENED; i++) {
        struct opened *it = &opened[i];

        if (it->instance == handle->instance && it->remote == handle->address &&
            it->context == context && still_open(it))
            return it;
    }
    return NULL;
}

static result_t open_first(dptr_t *address, const struct opaque *handle, struct context *context)
{
    int free = 0;

    while (free < MAX_OPENED && still_open(&opened[free]))
        free++;
    PROBLEM(free == MAX_OPENED, OUT_OF_MEMORY);
    PROBLEM(take_imported(address, handle->bytes, BLOCK_FROM_IPC), OUT_OF_MEMORY);
    opened[free] = (struct opened){*address, handle->instance, handle->address, context, 1};
    return OK;
}

static result_t open_handle(dptr_t *address, const struct opaque *handle)
{
    result_t why;
    struct context *context = context_current(&why);
    struct opened *again;

    PROBLEM(!context, why);
    PROBLEM(!address || handle->magic != IPC_MAGIC, INVALID_VALUE);
    PROBLEM(handle->instance == sim->instance, INVALID_CONTEXT);
    again = find_opened(handle, context);
    if (!again)
        return open_first(address, handle, context);
    again->count++;
    *address = again->address;
    return OK;
}

static result_t opening(result_t result, dptr_t *address, const struct opaque *handle)
{
    uint64_t bytes = handle->magic == IPC_MAGIC ? handle->bytes : 0;

    if (result == OK)
        result = open_handle(address, handle);
    return book_failure(result, imported_row(), bytes);
}

#define OPEN(name)                                                               \
    result_t impl_##name(dptr_t *address, struct opaque handle, unsigned flags); \
    result_t impl_##name(dptr_t *address, struct opaque handle, unsigned flags)  \
    {                                                                            \
        result_t result = sim_enter(FN_##name, true);                            \
        (void)flags;                                                             \
        return sim_leave(FN_##name, opening(result, address, &handle));          \
    }
OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

SIM_CALL(cuIpcCloseMemHandle, (dptr_t address), (address))
{
    struct block *block = block_find(address);

    PROBLEM(!block || !(block->flags & BLOCK_FROM_IPC), INVALID_VALUE);
    for (int i = 0; i < MAX_OPENED; i++)
        if (opened[i].address == address) {
            if (--opened[i].count)
                return OK;
            opened[i].address = 0;
        }
    return give_back(block);
}

SIM_CALL(cuMemPoolExportPointer, (struct opaque * data, dptr_t address), (data, address))
{
    struct block *block = block_find(address);

    PROBLEM(!data || !block || row_kind(block->row) != KIND_POOL, INVALID_VALUE);
    *data = describe(POINTER_MAGIC, block);
    return OK;
}

static result_t import_pointer(dptr_t *address, const void *pool, const struct opaque *data)
{
    PROBLEM(!address || !data || data->magic != POINTER_MAGIC, INVALID_VALUE);
    PROBLEM(!pool_imported(pool), INVALID_VALUE);
    return take_imported(address, data->bytes, BLOCK_FROM_POOL);
}

result_t impl_cuMemPoolImportPointer(dptr_t *address, const void *pool, struct opaque *data);
result_t impl_cuMemPoolImportPointer(dptr_t *address, const void *pool, struct opaque *data)
{
    result_t result = sim_enter(FN_cuMemPoolImportPointer, true);
    uint64_t bytes = data && data->magic == POINTER_MAGIC ? data->bytes : 0;

    if (result == OK)
        result = import_pointer(address, pool, data);
    result = book_failure(result, imported_row(), bytes);
    return sim_leave(FN_cuMemPoolImportPointer, result);
}

SIM_CALL(cuIpcGetEventHandle, (void *handle, void *event), (handle, event))
{
    (void)handle;
    (void)event;
    return NOT_SUPPORTED;
}

void ipc_set_up(void)
{
    memset(opened, 0, sizeof(opened));
}

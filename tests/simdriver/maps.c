/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserved address ranges and what is mapped in them. A range is real memory that costs
 * nothing until touched, so that copies to it work; contents follow the address, not the
 * handle.
 */
#define _GNU_SOURCE
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct reservation {
    dptr_t base;
    uint64_t bytes;
    struct mapping *maps; /* by address */
    size_t n_maps, room;
    struct reservation *next;
};

static struct reservation *reservations;

void maps_set_up(void)
{
    reservations = NULL;
}

static struct reservation *reservation_of(dptr_t address, uint64_t bytes)
{
    struct reservation *it = reservations;

    while (it && (address < it->base || address - it->base >= it->bytes ||
                  bytes > it->bytes - (address - it->base)))
        it = it->next;
    return it;
}

bool in_reservation(dptr_t address, uint64_t bytes)
{
    return reservation_of(address, bytes) != NULL;
}

/* Maps more than is needed and gives back what lies before and after the aligned part. */
static dptr_t map_aligned(uint64_t bytes, uint64_t alignment)
{
    char *start = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    dptr_t base = ((dptr_t)start + alignment - 1) & ~(alignment - 1);

    if (start == MAP_FAILED)
        return 0;
    if (base != (dptr_t)start)
        munmap(start, base - (dptr_t)start);
    munmap((void *)(base + bytes), alignment - (base - (dptr_t)start));
    madvise((void *)base, bytes, MADV_DONTFORK);
    return base;
}

SIM_CALL(cuMemAddressReserve,
         (dptr_t * address, uint64_t bytes, uint64_t alignment, dptr_t hint, uint64_t flags),
         (address, bytes, alignment, hint, flags))
{
    struct reservation *it;

    (void)hint;
    PROBLEM(!address || !bytes || bytes % GRANULARITY || flags, INVALID_VALUE);
    PROBLEM(alignment & (alignment - 1), INVALID_VALUE);
    it = calloc(1, sizeof(*it));
    PROBLEM(!it, OUT_OF_MEMORY);
    it->base = map_aligned(bytes, alignment > GRANULARITY ? alignment : GRANULARITY);
    it->bytes = bytes;
    if (!it->base) {
        free(it);
        return OUT_OF_MEMORY;
    }
    it->next = reservations;
    reservations = it;
    *address = it->base;
    return OK;
}

SIM_CALL(cuMemAddressFree, (dptr_t address, uint64_t bytes), (address, bytes))
{
    struct reservation **link = &reservations, *it;

    while (*link && (*link)->base != address)
        link = &(*link)->next;
    it = *link;
    PROBLEM(!it || it->bytes != bytes || it->n_maps, INVALID_VALUE);
    *link = it->next;
    munmap((void *)it->base, it->bytes);
    free(it->maps);
    free(it);
    return OK;
}

/* The index of the first map that ends after the address. */
static size_t first_after(const struct reservation *it, dptr_t address)
{
    size_t low = 0, high = it->n_maps;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (it->maps[middle].address + it->maps[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct mapping *map_containing(dptr_t address)
{
    struct reservation *it = reservation_of(address, 1);
    size_t index = it ? first_after(it, address) : 0;

    return it && index < it->n_maps && it->maps[index].address <= address ? &it->maps[index] : NULL;
}

bool map_add(dptr_t address, uint64_t bytes, uint32_t handle)
{
    struct reservation *it = reservation_of(address, bytes);
    size_t index;

    if (!it || address % GRANULARITY)
        return false;
    index = first_after(it, address);
    if (index < it->n_maps && it->maps[index].address < address + bytes)
        return false;
    if (it->n_maps == it->room) {
        it->room = it->room ? 2 * it->room : 16;
        it->maps = realloc(it->maps, it->room * sizeof(*it->maps));
    }
    memmove(&it->maps[index + 1], &it->maps[index], (it->n_maps - index) * sizeof(*it->maps));
    it->maps[index] = (struct mapping){address, bytes, handle};
    it->n_maps++;
    return true;
}

/* True if whole maps fill the range from its first to its last byte. */
bool map_covers(dptr_t address, uint64_t bytes)
{
    while (bytes) {
        const struct mapping *mapping = map_containing(address);

        if (!mapping || mapping->address != address || mapping->bytes > bytes)
            return false;
        address += mapping->bytes;
        bytes -= mapping->bytes;
    }
    return true;
}

/* Takes away the map that begins here; returns its handle. The caller knows there is one. */
uint32_t map_remove(dptr_t address, uint64_t *bytes)
{
    struct reservation *it = reservation_of(address, 1);
    size_t index = first_after(it, address);
    struct mapping mapping = it->maps[index];

    it->n_maps--;
    memmove(&it->maps[index], &it->maps[index + 1], (it->n_maps - index) * sizeof(*it->maps));
    *bytes = mapping.bytes;
    return mapping.handle;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live allocations by address, and the addresses themselves.
 *
 * A freed block keeps its address and is the next one that its size class hands out
 * (last in, first out), so addresses come again at once. The arenas are readable and
 * writable memory that costs nothing until it is touched.
 */
#define _GNU_SOURCE
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MAX_BLOCKS (1u << 21)
#define SLOTS (1u << 22)
#define CLASSES 192
#define ALIGNMENT 512
#define HIGH_BYTES (4ULL << 40)
#define LOW_BASE 0x80000000ULL /* for the calls with 32-bit pointers: nothing else lies there */
#define LOW_BYTES 0x7ff00000ULL

struct arena_state {
    dptr_t base, next, end;
    uint32_t free[CLASSES];
};

static struct arena_state arenas[ARENA_COUNT];
static struct block *blocks; /* 0 is no block */
static uint32_t *slots;
static uint32_t n_blocks;

static void *map(dptr_t at, uint64_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED_NOREPLACE : 0);
    void *memory = mmap((void *)at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

    if (memory == MAP_FAILED) {
        perror("simulated driver: no address space");
        abort();
    }
    madvise(memory, bytes, MADV_DONTFORK);
    return memory;
}

static void set_up_arena(enum arena arena, dptr_t at, uint64_t bytes)
{
    struct arena_state *state = &arenas[arena];

    *state = (struct arena_state){0};
    state->base = state->next = (dptr_t)map(at, bytes);
    state->end = state->base + bytes;
}

/* In a forked child the old tables are not there: they are marked so. */
void blocks_set_up(void)
{
    blocks = map(0, (uint64_t)MAX_BLOCKS * sizeof(*blocks));
    slots = map(0, (uint64_t)SLOTS * sizeof(*slots));
    n_blocks = 1;
    arenas[ARENA_NONE] = (struct arena_state){0};
    arenas[ARENA_LOW] = (struct arena_state){0};
    set_up_arena(ARENA_HIGH, 0, HIGH_BYTES);
}

/* Four steps to each power of two, nothing below the alignment. */
static unsigned size_class(uint64_t bytes, uint64_t *rounded)
{
    unsigned exponent, quarter;
    uint64_t step = ALIGNMENT;

    if (bytes <= 4 * ALIGNMENT) {
        quarter = bytes ? (bytes - 1) / ALIGNMENT : 0;
        *rounded = (quarter + 1ULL) * ALIGNMENT;
        return quarter;
    }
    exponent = 63 - __builtin_clzll(bytes - 1);
    step = 1ULL << (exponent - 2);
    *rounded = (bytes + step - 1) & ~(step - 1);
    quarter = (bytes - 1) / step - 4;
    return 4 * (exponent - 10) + quarter;
}

static uint32_t slot_of(dptr_t address)
{
    return (address >> 9 ^ address >> 21 ^ address >> 33 ^ (address & 511) << 13) & (SLOTS - 1);
}

static uint32_t find_number(dptr_t address)
{
    for (uint32_t slot = slot_of(address); slots[slot]; slot = (slot + 1) & (SLOTS - 1)) {
        const struct block *block = &blocks[slots[slot]];

        if (block->address == address &&
            block->generation == sim->contexts[block->owner].generation)
            return slots[slot];
    }
    return NO_BLOCK;
}

struct block *block_find(dptr_t address)
{
    uint32_t number = find_number(address);

    return number ? &blocks[number] : NULL;
}

static void table_insert(uint32_t number)
{
    uint32_t slot = slot_of(blocks[number].address);

    while (slots[slot])
        slot = (slot + 1) & (SLOTS - 1);
    slots[slot] = number;
}

/* Moves later entries of the run forward, so that no search ends too early. */
static void table_remove(uint32_t number)
{
    uint32_t hole = slot_of(blocks[number].address), next;

    while (slots[hole] != number)
        hole = (hole + 1) & (SLOTS - 1);
    for (next = (hole + 1) & (SLOTS - 1); slots[next]; next = (next + 1) & (SLOTS - 1)) {
        uint32_t home = slot_of(blocks[slots[next]].address);

        if (((next - home) & (SLOTS - 1)) >= ((next - hole) & (SLOTS - 1))) {
            slots[hole] = slots[next];
            hole = next;
        }
    }
    slots[hole] = 0;
}

static struct block *new_block(void)
{
    if (n_blocks == MAX_BLOCKS)
        return NULL;
    return &blocks[n_blocks++];
}

/*
 * A block that nobody owns yet; NULL when addresses or blocks have run out. In ARENA_NONE
 * the address is the caller's.
 */
struct block *block_take(enum arena arena, dptr_t address, uint64_t bytes)
{
    struct arena_state *state = &arenas[arena];
    uint64_t rounded = 0;
    unsigned class = 0;
    struct block *block;

    blocks_sweep(4);
    if (arena == ARENA_LOW && !state->base)
        set_up_arena(ARENA_LOW, LOW_BASE, LOW_BYTES);
    if (arena != ARENA_NONE)
        class = size_class(bytes, &rounded);
    if (state->free[class]) {
        block = &blocks[state->free[class]];
        state->free[class] = block->next;
    } else {
        if (rounded > state->end - state->next || !(block = new_block()))
            return NULL;
        block->address = state->next;
        state->next += rounded;
    }
    if (arena == ARENA_NONE)
        block->address = address;
    block->bytes = bytes;
    block->arena = arena;
    block->size_class = class;
    block->pool = 0;
    block->flags = 0;
    return block;
}

static void link_block(struct block *block, struct context *owner)
{
    uint32_t number = block - blocks;

    block->next = owner->first;
    block->prev = NO_BLOCK;
    if (owner->first)
        blocks[owner->first].prev = number;
    else
        owner->last = number;
    owner->first = number;
}

static void unlink_block(struct block *block, uint32_t *first, uint32_t *last)
{
    if (block->prev)
        blocks[block->prev].next = block->next;
    else
        *first = block->next;
    if (block->next)
        blocks[block->next].prev = block->prev;
    else
        *last = block->prev;
}

static void recycle(struct block *block)
{
    uint32_t *head = &arenas[block->arena].free[block->size_class];

    table_remove(block - blocks);
    block->next = *head;
    *head = block - blocks;
}

void block_own(struct block *block, struct context *owner, unsigned row)
{
    block->owner = owner - sim->contexts;
    block->generation = owner->generation;
    block->row = row;
    link_block(block, owner);
    table_insert(block - blocks);
}

/* Takes a block from its owner; its address is free for the next allocation. */
void block_drop(struct block *block)
{
    struct context *owner = &sim->contexts[block->owner];

    unlink_block(block, &owner->first, &owner->last);
    recycle(block);
}

/* The owner has ended: its blocks match nothing from now on; most are swept later. */
void blocks_abandon(struct context *owner)
{
    owner->generation++;
    if (!owner->first)
        return;
    blocks[owner->last].next = sim->stale_first;
    if (sim->stale_first)
        blocks[sim->stale_first].prev = owner->last;
    else
        sim->stale_last = owner->last;
    sim->stale_first = owner->first;
    owner->first = owner->last = NO_BLOCK;
    blocks_sweep(1000);
}

void blocks_sweep(unsigned count)
{
    while (count-- && sim->stale_first) {
        struct block *block = &blocks[sim->stale_first];

        unlink_block(block, &sim->stale_first, &sim->stale_last);
        recycle(block);
    }
}

static bool is_live(uint32_t number)
{
    return find_number(blocks[number].address) == number;
}

/* By an address inside it; a walk over all blocks, for rare questions only. */
struct block *block_containing(dptr_t address)
{
    uint32_t exact = find_number(address);

    if (exact)
        return &blocks[exact];
    for (uint32_t number = 1; number < n_blocks; number++)
        if (address - blocks[number].address < blocks[number].bytes && is_live(number))
            return &blocks[number];
    return NULL;
}

bool in_arena(dptr_t address, uint64_t bytes)
{
    for (int arena = ARENA_HIGH; arena < ARENA_COUNT; arena++)
        if (address >= arenas[arena].base && bytes <= arenas[arena].end - address)
            return address < arenas[arena].end;
    return false;
}

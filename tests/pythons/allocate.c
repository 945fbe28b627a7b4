// SPDX-License-Identifier: Apache-2.0
// What a program of this folder has in C.

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

typedef int (*allocate_fn)(uint64_t *address, size_t bytes);
typedef int (*free_fn)(uint64_t address);

// The same allocation, as often as asked for; each is given back.
long allocate_many(allocate_fn allocate, free_fn give_back, long times)
{
    uint64_t address = 0;
    long refused = 0;

    for (long i = 0; i < times; i++) {
        refused += allocate(&address, 4096) != 0;
        refused += give_back(address) != 0;
    }
    return refused;
}

// Waits for a signal, then allocates: a place where others may look at the same stack.
int allocate_when_told(allocate_fn allocate, uint64_t *address, size_t bytes)
{
    sleep(60);
    int result = allocate(address, bytes);

    __asm__ volatile("" : "+r"(result)); // no jump in place of the call
    return result;
}

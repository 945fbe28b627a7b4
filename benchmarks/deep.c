/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls from far down: so many native frames of our own, then `count` allocations
 * and frees, each allocation timed by itself.
 */
#define _GNU_SOURCE
#include "clock.h"

#include <stddef.h>

typedef int (*allocate_t)(uint64_t *, size_t);
typedef int (*release_t)(uint64_t);

static void measure(allocate_t allocate, release_t release, uint64_t *took, size_t count,
                    unsigned pause_us) {
    struct timespec pause = {.tv_nsec = pause_us * 1000L};
    uint64_t pointer, began;

    go_first(1);
    for (size_t i = 0; i < count; i++) {
        began = now_ns();
        allocate(&pointer, 512);
        took[i] = now_ns() - began;
        release(pointer);
        if (pause_us)
            nanosleep(&pause, NULL);
    }
    go_first(0);
}

/* The empty statement keeps the compiler from making a loop of it: frames are the point. */
__attribute__((noinline)) void deep(unsigned depth, allocate_t allocate, release_t release,
                                    uint64_t *took, size_t count, unsigned pause_us) {
    if (depth)
        deep(depth - 1, allocate, release, took, count, pause_us);
    else
        measure(allocate, release, took, count, pause_us);
    __asm__ volatile("" ::: "memory");
}

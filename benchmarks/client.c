/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is measured: a client of the stub that does as its standard input says and
 * answers each line with one line. Its argument is the library.
 *
 *     fill N             N allocations that stay
 *     pairs N DEPTH SITES  N allocations, each freed at once, from DEPTH frames of our own
 *                        or up to SITES - 1 fewer in turn; answers ns per pair
 *     destroy N          a child with N allocations destroys its context; answers ns
 *     exit N             a child with N allocations ends; answers ns until we have its status
 */
#define _GNU_SOURCE
#include "clock.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 512
#define LIVE_BASE 0x100000000ULL
#define PAIR_BASE 0x7000000000ULL
#define MIN_SPREAD 1000

static int (*allocate)(uint64_t *, size_t);
static int (*release)(uint64_t);
static int (*context_create)(uint64_t *, unsigned, int);
static int (*context_destroy)(uint64_t);
static void (*range)(uint64_t, uint64_t);
static uint64_t live;

static void fill(uint64_t count) {
    uint64_t pointer;

    range(LIVE_BASE, count + 1);
    for (uint64_t i = 0; i < count; i++)
        allocate(&pointer, BLOCK);
    live = count;
}

static __attribute__((noinline)) uint64_t pair(void) {
    uint64_t pointer;

    allocate(&pointer, BLOCK);
    release(pointer);
    return pointer;
}

/* The empty statement keeps the compiler from making a loop of it: frames are the point. */
static __attribute__((noinline)) uint64_t pair_below(unsigned depth) {
    uint64_t pointer = depth > 1 ? pair_below(depth - 1) : pair();

    __asm__ volatile("" ::: "memory");
    return pointer;
}

static double pairs(uint64_t count, unsigned depth, unsigned sites) {
    uint64_t began, took;

    range(PAIR_BASE, live > MIN_SPREAD ? live : MIN_SPREAD);
    go_first(1);
    began = now_ns();
    for (uint64_t i = 0; i < count; i++)
        pair_below(depth - i % sites);
    took = now_ns() - began;
    go_first(0);
    return (double)took / count;
}

/* When the child began to end, as it said last, and when it had ended. */
static uint64_t end_of_child(uint64_t count, int by_exit) {
    uint64_t *noted =
        mmap(NULL, 2 * sizeof(*noted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t context, end, took;
    pid_t child = fork();

    if (!child) {
        context_create(&context, 0, 0);
        fill(count);
        go_first(1);
        noted[0] = now_ns();
        if (!by_exit)
            context_destroy(context);
        noted[1] = now_ns();
        _exit(0);
    }
    go_first(1);
    waitpid(child, NULL, 0);
    end = now_ns();
    go_first(0);
    took = by_exit ? end - noted[1] : noted[1] - noted[0];
    munmap(noted, 2 * sizeof(*noted));
    return took;
}

static void answer(const char *line) {
    unsigned long count;
    unsigned depth, sites;

    if (sscanf(line, "fill %lu", &count) == 1)
        fill(count), puts("0");
    else if (sscanf(line, "pairs %lu %u %u", &count, &depth, &sites) == 3)
        printf("%.2f\n", pairs(count, depth, sites));
    else if (sscanf(line, "destroy %lu", &count) == 1)
        printf("%lu\n", end_of_child(count, 0));
    else if (sscanf(line, "exit %lu", &count) == 1)
        printf("%lu\n", end_of_child(count, 1));
    else
        exit(2);
}

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    char line[256];
    uint64_t context;

    if (!library)
        return fprintf(stderr, "client: %s\n", argc > 1 ? dlerror() : "no library"), 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    allocate = dlsym(library, "cuMemAlloc_v2");
    release = dlsym(library, "cuMemFree_v2");
    context_create = dlsym(library, "cuCtxCreate_v2");
    context_destroy = dlsym(library, "cuCtxDestroy_v2");
    range = dlsym(library, "stubRange");
    puts("ready");
    if (!fgets(line, sizeof(line), stdin)) /* the probes come before the first call */
        return 0;
    context_create(&context, 0, 0);
    do
        answer(line);
    while (fgets(line, sizeof(line), stdin));
    return 0;
}

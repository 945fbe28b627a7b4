/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frees at exit, for gpu_checks.py: one before the driver's own exit handlers, one behind
 * them. Prints "late RESULT" and "early RESULT", by the time of their registration.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK (4UL << 20)

typedef unsigned long long dptr_t;

static int (*release)(dptr_t);
static dptr_t blocks[2];

static void free_late(void) { printf("late %d\n", release(blocks[0])); }

static void free_early(void) { printf("early %d\n", release(blocks[1])); }

static void *function(void *library, const char *name) {
    void *found = library ? dlsym(library, name) : NULL;

    if (!found) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(2);
    }
    return found;
}

int main(void) {
    void *library, *context;
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*allocate)(dptr_t *, size_t);

    /* the first to register is the last to be called */
    atexit(free_early);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    init = function(library, "cuInit");
    retain = function(library, "cuDevicePrimaryCtxRetain");
    set = function(library, "cuCtxSetCurrent");
    allocate = function(library, "cuMemAlloc_v2");
    release = function(library, "cuMemFree_v2");
    if (init(0) || retain(&context, 0) || set(context))
        return 3;
    if (allocate(&blocks[0], BLOCK) || allocate(&blocks[1], BLOCK))
        return 4;
    atexit(free_late);
    return 0;
}

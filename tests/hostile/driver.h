/* SPDX-License-Identifier: Apache-2.0 */
/* The driver, as these clients need it: ready to allocate. */
#ifndef HOSTILE_DRIVER_H
#define HOSTILE_DRIVER_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef int (*allocate_fn)(uint64_t *, size_t);

struct driver {
    allocate_fn allocate;
    int (*release)(uint64_t);
};

/* Not 0: it did not start. */
static int open_driver(struct driver *driver)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(library, "cuInit");
    int (*create)(void **, unsigned int, int) = dlsym(library, "cuCtxCreate_v2");
    void *context;

    driver->allocate = (allocate_fn)dlsym(library, "cuMemAlloc_v2");
    driver->release = dlsym(library, "cuMemFree_v2");
    return init(0) || create(&context, 0, 0);
}

/* 1 MiB, from a function of ours: its stack must be whole, whatever came before. */
__attribute__((noinline, unused)) static int honest(allocate_fn allocate, uint64_t *pointer)
{
    int result = allocate(pointer, 1 << 20);

    __asm__ volatile("" ::: "memory");
    return result;
}

#endif

// SPDX-License-Identifier: Apache-2.0
// A library that is loaded, called, unloaded. It is built with -DPLUGIN; without, this is
// the program that does so: its arguments are two such libraries.
#include "snapshot.h"

#ifdef PLUGIN
#include <alloca.h>
#include <stddef.h>

FRAME static int library_leaf(void (*call)(void))
{
    call();
    STAY;
    return 1;
}

FRAME static int library_saves(void (*call)(void), int a, int b, int c, int d)
{
    int sum = library_leaf(call);
    return sum + a * b + c * d;
}

FRAME int library_entry(void (*call)(void), int n)
{
    volatile char wide[64] __attribute__((aligned(64)));
    volatile char *room = (volatile char *)alloca((size_t)n);
    wide[n % 64] = room[n / 2] = 1;
    return library_saves(call, n, room[n / 2], wide[n % 64], n + 1);
}
#else
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

typedef int entry(void (*)(void), int);

int main(int count, char **arguments)
{
    if (count < 3)
        return 2;
    void *first = dlopen(arguments[1], RTLD_NOW);
    if (!first)
        return 3;
    ((entry *)dlsym(first, "library_entry"))(snapshot, 40);
    dlclose(first);
    if (!dlopen(arguments[2], RTLD_NOW))
        return 4;
    puts("loaded the other");
    fflush(stdout);
    pause();
}
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls the driver through code that the program made itself, as a just-in-time
 * compiler does, and says in /tmp/perf-PID.map what it is called.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*made_fn)(uint64_t *, size_t, allocate_fn);

/* push %rbp; mov %rsp,%rbp; call *%rdx; pop %rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd2, 0x5d, 0xc3};

static made_fn make(const char *name, size_t at)
{
    char path[64], *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FILE *map;

    memcpy(memory + at, code, sizeof(code));
    snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
    map = fopen(path, "ae");
    fprintf(map, "%lx %zx %s\n", (long)(memory + at), sizeof(code), name);
    fclose(map);
    return (made_fn)(memory + at);
}

int main(void)
{
    made_fn first = make("Model::load(int) /app/model.js:3", 0x100);
    struct driver driver;
    uint64_t pointer;

    if (open_driver(&driver))
        return 1;
    return first(&pointer, 1 << 20, driver.allocate) |
           make("later", 0x200)(&pointer, 1 << 20, driver.allocate);
}

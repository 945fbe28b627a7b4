/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls the driver through code in files that are no good.
 *
 *     through OFFSET FILE...
 *
 * Each file has a function at OFFSET that calls what it is given; all else in it may be
 * damaged. It is mapped as code, called, and (every second one) taken away again, so that
 * other files come to its addresses. The last allocation, of 1 MiB, goes through nothing.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul

typedef int (*through_fn)(allocate_fn, uint64_t *, size_t);

static int one_file(const char *path, size_t offset, allocate_fn allocate, uint64_t *pointer)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    char *start =
        mmap(NULL, 2 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, (off_t)(offset & -PAGE));
    static unsigned int number;
    int result;

    close(file);
    if (start == MAP_FAILED)
        return 1;
    result = ((through_fn)(start + offset % PAGE))(allocate, pointer, 4096);
    if (number++ % 2)
        munmap(start, 2 * PAGE);
    return result;
}

int main(int argc, char **argv)
{
    struct driver driver;
    uint64_t pointer = 0;
    int failed = 0;

    failed |= open_driver(&driver);
    for (int i = 2; i < argc; i++) {
        failed |= one_file(argv[i], strtoul(argv[1], NULL, 10), driver.allocate, &pointer);
        failed |= driver.release(pointer);
    }
    return failed | honest(driver.allocate, &pointer);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Booking: the process's totals, in a file that outlives it. */
#define _GNU_SOURCE
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A new file even if the pid has one already: after exec, and when a pid comes again. */
static int create_file(const char *folder)
{
    char path[4096];

    for (int counter = 0; counter < 1000000; counter++) {
        int fd;

        snprintf(path, sizeof(path), "%s/%d.%d.books", folder, (int)getpid(), counter);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            fchmod(fd, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

static uint64_t own_start_ticks(void)
{
    char text[1024] = "";
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "re");
    char *after_name;

    if (!file)
        return 0;
    if (fgets(text, sizeof(text), file) && (after_name = strrchr(text, ')')))
        sscanf(after_name + 1,
               " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &ticks);
    fclose(file);
    return ticks;
}

static void describe(struct books *books)
{
    struct stat namespace;

    books->pid = getpid();
    books->start_ticks = own_start_ticks();
    books->pid_namespace = stat("/proc/self/ns/pid", &namespace) ? 0 : namespace.st_ino;
    books->created_ns = sim->instance;
    books->n_devices = sim->n_devices;
    for (int device = 0; device < sim->n_devices; device++)
        books->physical[device] = sim->devices[device].physical;
    prctl(PR_GET_NAME, books->comm);
    __atomic_store_n(&books->magic, BOOKS_MAGIC, __ATOMIC_RELEASE);
}

struct books *books_open(void)
{
    const char *folder = getenv("SIMCUDA_BOOKS");
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, fd = -1;
    struct books *books;

    if (folder && *folder) {
        fd = create_file(folder);
        if (fd < 0 || ftruncate(fd, sizeof(*books))) {
            fprintf(stderr, "simulated driver: cannot write books to %s: %m\n", folder);
            abort();
        }
        flags = MAP_SHARED;
    }
    books = mmap(NULL, sizeof(*books), PROT_READ | PROT_WRITE, flags, fd, 0);
    if (books == MAP_FAILED) {
        perror("simulated driver: no memory for its books");
        abort();
    }
    if (fd >= 0)
        close(fd);
    madvise(books, sizeof(*books), MADV_DONTFORK);
    describe(books);
    return books;
}

enum kind row_kind(unsigned row)
{
    return row / (BOOKS_DEVICES + 1) / BOOKS_HOSTS;
}

enum host row_host(unsigned row)
{
    return row / (BOOKS_DEVICES + 1) % BOOKS_HOSTS;
}

int row_device(unsigned row)
{
    return (int)(row % (BOOKS_DEVICES + 1)) - 1;
}

bool room_for(int device, uint64_t bytes)
{
    const struct device *it = &sim->devices[device];

    return bytes <= it->size && it->used <= it->size - bytes;
}

static void add_use(unsigned row, uint64_t bytes)
{
    struct books *books = sim->books;
    struct books_row *totals = &books->rows[row];

    totals->in_use += bytes;
    if (totals->in_use > totals->peak)
        totals->peak = totals->in_use;
    if (row_host(row) != HOST_OWN)
        return;
    sim->devices[row_device(row)].used += bytes;
    books->in_use += bytes;
    if (books->in_use > books->peak)
        books->peak = books->in_use;
}

static void take_use(unsigned row, uint64_t bytes)
{
    sim->books->rows[row].in_use -= bytes;
    if (row_host(row) != HOST_OWN)
        return;
    sim->devices[row_device(row)].used -= bytes;
    sim->books->in_use -= bytes;
}

void book_alloc(struct context *owner, unsigned row, uint64_t bytes)
{
    sim->books->rows[row].alloc_bytes += bytes;
    sim->books->rows[row].alloc_calls++;
    owner->in_use[row].bytes += bytes;
    owner->in_use[row].calls++;
    add_use(row, bytes);
}

void book_free(struct context *owner, unsigned row, uint64_t bytes)
{
    sim->books->rows[row].free_bytes += bytes;
    sim->books->rows[row].free_calls++;
    owner->in_use[row].bytes -= bytes;
    owner->in_use[row].calls--;
    take_use(row, bytes);
}

/* Everything that an owner still holds, at its end: by row, not by block. */
void book_implicit(struct context *owner)
{
    for (unsigned row = 0; row < BOOKS_ROWS; row++) {
        struct usage *held = &owner->in_use[row];

        if (!held->calls)
            continue;
        sim->books->rows[row].implicit_bytes += held->bytes;
        sim->books->rows[row].implicit_calls += held->calls;
        take_use(row, held->bytes);
        memset(held, 0, sizeof(*held));
    }
}

result_t book_failure(result_t result, unsigned row, uint64_t bytes)
{
    if (result != OK) {
        sim->books->rows[row].fail_bytes += bytes;
        sim->books->rows[row].fail_calls++;
    }
    return result;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated driver's books: what one process allocated, freed and was refused,
 * in a file that is mapped shared and written in place, so that it can be read while
 * the process runs and after kill -9. tests/support/simdriver.py reads the same layout.
 *
 * Kinds and host classes have the numbers of bpf/abi.h.
 */
#ifndef BOOKS_H
#define BOOKS_H

#include <stdint.h>

#define BOOKS_MAGIC 0x31304b4f4f424953ULL /* "SIBOOK01" */
#define BOOKS_DEVICES 8
#define BOOKS_KINDS 9
#define BOOKS_HOSTS 5
#define BOOKS_ROWS (BOOKS_KINDS * BOOKS_HOSTS * (BOOKS_DEVICES + 1))

enum kind {
    KIND_NONE,
    KIND_DEVICE,
    KIND_MANAGED,
    KIND_PINNED,
    KIND_REGISTERED,
    KIND_POOL,
    KIND_VMM,
    KIND_ARRAY,
    KIND_IMPORTED,
};

enum host {
    HOST_OWN,
    HOST_PINNED,
    HOST_REGISTERED,
    HOST_IMPORTED,
    HOST_MANAGED,
};

struct books_row {
    uint64_t alloc_bytes, alloc_calls;
    uint64_t free_bytes, free_calls;
    uint64_t implicit_bytes, implicit_calls;
    uint64_t fail_bytes, fail_calls;
    uint64_t in_use, peak;
};

struct books {
    uint64_t magic; /* written last: a file without it is still being made */
    uint32_t pid;   /* as the process itself sees it */
    uint32_t n_devices;
    uint64_t start_ticks; /* field 22 of /proc/PID/stat: the same in every PID namespace */
    uint64_t pid_namespace;
    uint64_t created_ns; /* boot clock */
    uint64_t in_use;     /* host class 0 only */
    uint64_t peak;
    uint64_t calls; /* of every function of the driver */
    char comm[16];
    int32_t physical[BOOKS_DEVICES]; /* the process's ordinal -> the machine's index */
    uint64_t reserved[5];
    struct books_row rows[BOOKS_ROWS];
};

/* device -1 (none, unknown or the host) has a row of its own. */
static inline unsigned books_row_number(enum kind kind, enum host host, int device)
{
    return (kind * BOOKS_HOSTS + host) * (BOOKS_DEVICES + 1) + (unsigned)(device + 1);
}

#endif

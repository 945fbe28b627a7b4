/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the small runtime share. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int result_t;

enum {
    OK = 0,
    INVALID_VALUE = 1,
    INVALID_SYMBOL = 13,
    NO_DRIVER = 35, /* also what the real one says of a driver that is too old */
    INVALID_DEVICE = 101,
    NOT_READY = 600,
    PEER_ENABLED = 704,
    NOT_SUPPORTED = 801,
};

#define MAX_DEVICES 16

struct ipc_handle {
    char bytes[64];
};

/* A launch's extent, passed by value. */
struct extent {
    unsigned x, y, z;
};

/* The driver's functions, found once by the driver's own lookup. */
#define DRIVER(name, version, parameters) result_t(*name) parameters;
struct driver {
#include "driver.def"
};
#undef DRIVER
extern struct driver cu;

/*
 * start.c. started: the driver is loaded and initialised. ready: the primary context of
 * the thread's device is current besides. done: keeps a failure for cudaGetLastError.
 */
result_t started(void);
result_t ready(void);
result_t done(result_t result);
void *primary_context(int device);

extern __thread int device_here;

#endif

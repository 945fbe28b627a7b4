/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the simulated driver share. */
#ifndef SIM_H
#define SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "books.h"

typedef int result_t;
typedef uint64_t dptr_t;

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALISED = 3,
    SHUTTING_DOWN = 4,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    CONTEXT_DESTROYED = 709,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    NOT_SUPPORTED = 801,
};

#define GRANULARITY (2ULL << 20)
#define MAX_CONTEXTS 1024
#define PROCESS_OWNER 0 /* the slot of contexts[] that stands for the process */
#define MAX_RULES 32
#define NO_BLOCK 0u

enum {
    LOCATION_NONE,
    LOCATION_DEVICE,
    LOCATION_HOST,
    LOCATION_HOST_NUMA,
};

#define HANDLE_TYPE_FD 1

struct location {
    uint32_t type;
    int32_t id;
};

/* What a block is besides its kind. */
enum {
    BLOCK_FROM_IPC = 1,
    BLOCK_FROM_POOL = 2, /* a pointer of an imported pool */
    BLOCK_MIPMAP = 4,
    BLOCK_NO_MEMORY = 8, /* a sparse or deferred array */
};

/* Numbers of all exported functions, in the order of functions.def. */
#define FUNCTION(name) FN_##name,
enum function {
#include "functions.def"
    FN_COUNT
};
#undef FUNCTION

struct usage {
    uint64_t bytes, calls;
};

struct context {
    bool live;
    bool primary;
    int device;
    uint32_t references; /* of a primary context */
    uint32_t generation;
    uint32_t flags;
    uint32_t first, last; /* its blocks */
    struct usage in_use[BOOKS_ROWS];
};

/* One live allocation, or a freed one that keeps its address for the next of its size. */
struct block {
    dptr_t address;
    uint64_t bytes;
    uint32_t next, prev;
    uint32_t generation; /* of the owner: stale once that has moved on */
    uint16_t owner;
    uint16_t row;
    uint32_t pool_generation;
    uint16_t pool;
    uint8_t size_class;
    uint8_t arena;
    uint32_t flags;
};

struct device {
    uint64_t size, used;
    int physical;
    uint16_t primary; /* slot of contexts[] */
};

struct rule {
    int function;
    uint64_t nth; /* 0 = every call */
    result_t result;
};

/*
 * Everything that belongs to one process. It lies in pages that a fork wipes, so a
 * child starts with nothing, however it was made.
 */
struct state {
    pthread_mutex_t lock;
    uint64_t instance; /* 0 = not set up */
    bool initialised;
    bool nested, trace;
    int n_devices;
    int n_rules;
    struct books *books;
    struct device devices[BOOKS_DEVICES];
    struct rule rules[MAX_RULES];
    uint64_t calls[FN_COUNT];
    uint8_t has_rule[FN_COUNT];
    uint32_t latency_us[FN_COUNT];
    uint64_t control_changed;
    uint64_t last_handle;
    uint32_t stale_first, stale_last;
    uint16_t free_contexts[MAX_CONTEXTS];
    int n_free_contexts;
    struct context contexts[MAX_CONTEXTS];
};

extern struct state *sim;
extern const char *const function_names[FN_COUNT];
extern volatile uint32_t simulated_state
    __attribute__((visibility("hidden"))); /* what the entries compare */

/*
 * state.c. sim_enter takes the lock and says what the call must return if it is not to
 * be carried out: torn down, injected, not initialised. sim_leave gives the lock back.
 */
result_t sim_enter(enum function function, bool needs_init);
result_t sim_leave(enum function function, result_t result);
void sim_pause(void);
void sim_resume(void);
int function_number(const char *name, size_t length);
void parse_rules(const char *text);
void *new_handle(void);

#define PROBLEM(condition, code) \
    do {                         \
        if (condition)           \
            return code;         \
    } while (0)

/* Defines the body of an exported function; `arguments` repeats the names in parentheses. */
#define SIM_DEFINE(name, init, parameters, arguments)   \
    static result_t do_##name parameters;               \
    result_t impl_##name parameters;                    \
    result_t impl_##name parameters                     \
    {                                                   \
        result_t verdict_ = sim_enter(FN_##name, init); \
        if (verdict_ == OK)                             \
            verdict_ = do_##name arguments;             \
        return sim_leave(FN_##name, verdict_);          \
    }                                                   \
    static result_t do_##name parameters
#define SIM_CALL(name, parameters, arguments) SIM_DEFINE(name, true, parameters, arguments)
#define SIM_EARLY(name, parameters, arguments) SIM_DEFINE(name, false, parameters, arguments)

/* books.c */
struct books *books_open(void);
enum kind row_kind(unsigned row);
enum host row_host(unsigned row);
int row_device(unsigned row);
bool room_for(int device, uint64_t bytes);
void book_alloc(struct context *owner, unsigned row, uint64_t bytes);
void book_free(struct context *owner, unsigned row, uint64_t bytes);
void book_implicit(struct context *owner);
result_t book_failure(result_t result, unsigned row, uint64_t bytes);

/* blocks.c */
enum arena { ARENA_NONE, ARENA_HIGH, ARENA_LOW, ARENA_COUNT };
void blocks_set_up(void);
struct block *block_take(enum arena arena, dptr_t address, uint64_t bytes);
void block_own(struct block *block, struct context *owner, unsigned row);
void block_drop(struct block *block);
struct block *block_find(dptr_t address);
struct block *block_containing(dptr_t address);
void blocks_abandon(struct context *owner);
void blocks_sweep(unsigned count);
bool in_arena(dptr_t address, uint64_t bytes);

/* context.c */
void contexts_set_up(void);
struct context *context_current(result_t *why);
int device_here(void);
struct context *primary_owner(int device);
result_t check_device(int device);
unsigned fallback_row(enum kind kind);
bool context_active(const struct context *context);

/* memory.c */
result_t give_back(struct block *block);

/* vmm.c, maps.c */
void vmm_set_up(void);
bool in_reservation(dptr_t address, uint64_t bytes);

struct mapping {
    dptr_t address;
    uint64_t bytes;
    uint32_t handle;
};

void maps_set_up(void);
const struct mapping *map_containing(dptr_t address);
bool map_add(dptr_t address, uint64_t bytes, uint32_t handle);
bool map_covers(dptr_t address, uint64_t bytes);
uint32_t map_remove(dptr_t address, uint64_t *bytes);
bool vmm_handle_device(uint32_t handle, int *device);

/* pools.c */
void pools_set_up(void);
void pools_emptied(int device);
void pool_returned(const struct block *block);
bool pool_imported(const void *pool);

/* ipc.c */
void ipc_set_up(void);
result_t share_out(const void *data, size_t bytes, int *fd);
bool share_in(int fd, void *data, size_t bytes);

#endif

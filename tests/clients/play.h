/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the player share; play.c says what it plays. */
#ifndef PLAY_H
#define PLAY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_WORDS 12
#define NOT_EXPECTED (-1000)
#define MISSING (-1) /* what a call gives whose symbol the driver lacks; "= missing" */

struct variable {
    char *name;
    uint64_t value;
    void *blob;
    uint64_t *array;
    size_t count;
    struct variable *next;
};

enum argument_kind { ARG_NUMBER, ARG_VALUE, ARG_OUTPUT, ARG_BLOB, ARG_COUNTER };

struct argument {
    enum argument_kind kind;
    struct variable *variable;
    uint64_t number;
};

struct run;
struct op;
typedef int (*handler_t)(struct run *run, struct op *op);

struct op {
    int line;
    int n_words;
    char *words[MAX_WORDS];
    long expected;
    int thread; /* -1 = not said */
    handler_t handler;
    void *function; /* of the driver, found at first use */
    const char *symbol;
    int n_arguments;
    struct argument arguments[MAX_WORDS];
    struct op *body, *next;
};

/* One thread's way through a program. */
struct run {
    int thread;
    int depth;        /* frames between the interpreter and the driver */
    uint64_t pattern; /* which of two functions each of them is */
    uint64_t counter; /* of the innermost repeat */
    pthread_barrier_t *barrier;
};

extern bool verbose;
extern int failures;

/* script.c */
struct op *parse_script(char *text);
struct argument parse_argument(const char *word, char kind);
struct variable *variable_of(const char *name);
void give_up(int line, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

/* run.c */
void run_program(struct op *ops);
int run_ops(struct run *run, struct op *ops);
uint64_t value_of(struct run *run, const struct argument *argument);

/* verbs.c */
void bind_op(struct op *op);

/* driver.c */
void *driver_symbol(const char *name);
int call_driver(struct run *run, void *function, const uint64_t *arguments);
bool bind_driver_call(struct op *op);
int verb_ipc_open(struct run *run, struct op *op);
int verb_use(struct run *run, struct op *op);
int verb_structure(struct run *run, struct op *op);

/* bench.c */
int verb_pairs(struct run *run, struct op *op);
int verb_rate(struct run *run, struct op *op);
int verb_fill(struct run *run, struct op *op);
int verb_drain(struct run *run, struct op *op);
uint64_t now_ns(void);

#endif

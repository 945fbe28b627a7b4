/* SPDX-License-Identifier: Apache-2.0 */
/* Playing: threads, and one operation after the other in each. */
#define _GNU_SOURCE
#include "play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 64

struct thread_program {
    struct run run;
    struct op *first, **last;
    pthread_t thread;
    bool used;
};

uint64_t value_of(struct run *run, const struct argument *argument)
{
    switch (argument->kind) {
    case ARG_VALUE:
        return argument->variable->value + argument->number;
    case ARG_OUTPUT:
        return (uint64_t)&argument->variable->value;
    case ARG_BLOB:
        return (uint64_t)argument->variable->blob;
    case ARG_COUNTER:
        return run->counter;
    default:
        return argument->number;
    }
}

static void check(struct run *run, struct op *op, int result)
{
    if (verbose) {
        printf("%d %s %d\n", run->thread, op->words[0], result);
        fflush(stdout);
    }
    if (op->expected == NOT_EXPECTED || op->expected == result)
        return;
    fprintf(stderr, "play: line %d: %s gave %d, expected %ld\n", op->line, op->words[0], result,
            op->expected);
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
}

int run_ops(struct run *run, struct op *ops)
{
    for (struct op *op = ops; op; op = op->next)
        if (op->n_words)
            check(run, op, op->handler(run, op));
        else
            run_ops(run, op->body);
    return 0;
}

static void append(struct thread_program *program, const struct op *op)
{
    struct op *copy = malloc(sizeof(*copy));

    *copy = *op;
    copy->next = NULL;
    *program->last = copy;
    program->last = &copy->next;
    program->used = true;
}

/* A barrier without a thread is everybody's; other such lines are thread 0's. */
static void distribute(struct op *ops, struct thread_program *programs)
{
    for (int i = 0; i < MAX_THREADS; i++)
        programs[i].last = &programs[i].first;
    programs[0].used = true;
    for (struct op *op = ops; op; op = op->next)
        if (op->thread > 0 && op->thread < MAX_THREADS)
            programs[op->thread].used = true;
    for (struct op *op = ops; op; op = op->next) {
        bool everybody = op->thread < 0 && op->n_words && !strcmp(op->words[0], "barrier");

        for (int i = 0; i < MAX_THREADS; i++)
            if (everybody ? programs[i].used : i == (op->thread < 0 ? 0 : op->thread))
                append(&programs[i], op);
    }
}

static void *thread_main(void *data)
{
    struct thread_program *program = data;

    run_ops(&program->run, program->first);
    return NULL;
}

/* Thread 0 is the caller; the rest begin at once and are joined at the end. */
void run_program(struct op *ops)
{
    struct thread_program *programs = calloc(MAX_THREADS, sizeof(*programs));
    pthread_barrier_t barrier;
    unsigned n_threads = 0;

    distribute(ops, programs);
    for (int i = 0; i < MAX_THREADS; i++)
        n_threads += programs[i].used;
    pthread_barrier_init(&barrier, NULL, n_threads);
    for (int i = 0; i < MAX_THREADS; i++) {
        programs[i].run = (struct run){.thread = i, .barrier = &barrier};
        if (i && programs[i].used &&
            pthread_create(&programs[i].thread, NULL, thread_main, &programs[i]))
            give_up(0, "no thread");
    }
    thread_main(&programs[0]);
    for (int i = 1; i < MAX_THREADS; i++)
        if (programs[i].used)
            pthread_join(programs[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
}

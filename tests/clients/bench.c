/* SPDX-License-Identifier: Apache-2.0 */
/* Many allocations: as fast as it goes, at a rate, and many at once. */
#define _GNU_SOURCE
#include "play.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static uint64_t number(struct run *run, struct op *op, int word)
{
    struct argument argument;

    if (word >= op->n_words)
        give_up(op->line, "%s: an argument is missing", op->words[0]);
    argument = parse_argument(op->words[word], '*');
    return value_of(run, &argument);
}

struct pair {
    void *allocate, *release;
    uint64_t bytes, pointer;
};

static struct pair find_pair(uint64_t bytes)
{
    return (struct pair){driver_symbol("cuMemAlloc_v2"), driver_symbol("cuMemFree_v2"), bytes, 0};
}

static int one_pair(struct run *run, struct pair *pair)
{
    uint64_t arguments[8] = {(uint64_t)&pair->pointer, pair->bytes};
    int result = call_driver(run, pair->allocate, arguments);

    if (result)
        return result;
    return call_driver(run, pair->release, (uint64_t[8]){pair->pointer});
}

/* pairs COUNT BYTES: prints "pairs COUNT NANOSECONDS-PER-PAIR". */
int verb_pairs(struct run *run, struct op *op)
{
    uint64_t count = number(run, op, 1), began;
    struct pair pair = find_pair(number(run, op, 2));
    int result = 0;

    began = now_ns();
    for (uint64_t i = 0; i < count && !result; i++)
        result = one_pair(run, &pair);
    printf("pairs %lu %.1f\n", count, (double)(now_ns() - began) / (count ? count : 1));
    return result;
}

static void sleep_until(uint64_t moment)
{
    struct timespec until = {moment / 1000000000, moment % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
        ;
}

/* rate PAIRS-PER-SECOND SECONDS BYTES, in steps of a millisecond; prints what was reached. */
int verb_rate(struct run *run, struct op *op)
{
    uint64_t per_second = number(run, op, 1), seconds = number(run, op, 2), done = 0, began;
    struct pair pair = find_pair(number(run, op, 3));
    int result = 0;

    began = now_ns();
    for (uint64_t step = 1; step <= seconds * 1000 && !result; step++) {
        for (; done < per_second * step / 1000 && !result; done++)
            result = one_pair(run, &pair);
        sleep_until(began + step * 1000000);
    }
    printf("rate %lu %.0f\n", done, done * 1e9 / (now_ns() - began));
    return result;
}

/* fill NAME COUNT BYTES: that many live allocations; stops at the first refusal. */
int verb_fill(struct run *run, struct op *op)
{
    struct variable *variable = variable_of(op->words[1]);
    uint64_t count = number(run, op, 2);
    struct pair pair = find_pair(number(run, op, 3));
    int result = 0;

    variable->array = calloc(count, sizeof(uint64_t));
    for (variable->count = 0; variable->count < count && !result; variable->count++) {
        uint64_t *out = &variable->array[variable->count];

        result = call_driver(run, pair.allocate, (uint64_t[8]){(uint64_t)out, pair.bytes});
        variable->count -= result != 0;
    }
    return result;
}

int verb_drain(struct run *run, struct op *op)
{
    struct variable *variable = variable_of(op->words[1]);
    struct pair pair = find_pair(0);
    int result = 0;

    while (variable->count && !result)
        result = call_driver(run, pair.release, (uint64_t[8]){variable->array[--variable->count]});
    free(variable->array);
    variable->array = NULL;
    return result;
}

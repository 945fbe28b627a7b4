/* SPDX-License-Identifier: Apache-2.0 */
/* Control: processes, threads, time, failures to order. */
#define _GNU_SOURCE
#include "play.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t number(struct run *run, struct op *op, int word)
{
    struct argument argument;

    if (word >= op->n_words)
        give_up(op->line, "%s: an argument is missing", op->words[0]);
    argument = parse_argument(op->words[word], '*');
    return value_of(run, &argument);
}

static int verb_barrier(struct run *run, struct op *op)
{
    (void)op;
    pthread_barrier_wait(run->barrier);
    return 0;
}

static int verb_repeat(struct run *run, struct op *op)
{
    uint64_t outer = run->counter, count = number(run, op, 1);

    for (run->counter = 0; run->counter < count; run->counter++)
        run_ops(run, op->body);
    run->counter = outer;
    return 0;
}

/* time LABEL { ... }: prints "LABEL NANOSECONDS". */
static int verb_time(struct run *run, struct op *op)
{
    uint64_t began = now_ns();

    run_ops(run, op->body);
    printf("%s %lu\n", op->n_words > 1 ? op->words[1] : "time", now_ns() - began);
    return 0;
}

static int verb_depth(struct run *run, struct op *op)
{
    run->depth = number(run, op, 1);
    return 0;
}

static int verb_pattern(struct run *run, struct op *op)
{
    run->pattern = number(run, op, 1);
    return 0;
}

/* The child plays the block and ends; its variables are a copy of the parent's. */
static int verb_fork(struct run *run, struct op *op)
{
    pid_t child;

    (void)run;
    fflush(stdout);
    child = fork();
    if (child < 0)
        give_up(op->line, "fork: %m");
    if (child)
        return 0;
    failures = 0;
    run_program(op->body);
    exit(failures ? 3 : 0);
}

/* For all children; the last one's exit status, 128 + signal for a killed one. */
static int verb_wait(struct run *run, struct op *op)
{
    int status = 0, last = 0;

    (void)run;
    (void)op;
    while (wait(&status) > 0)
        last = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return last;
}

/* exec PATH ARGUMENT...; "self" is this program. */
static int verb_exec(struct run *run, struct op *op)
{
    char *arguments[MAX_WORDS + 1] = {NULL};

    (void)run;
    for (int i = 1; i < op->n_words; i++)
        arguments[i - 1] = op->words[i];
    fflush(stdout);
    if (arguments[0] && !strcmp(arguments[0], "self"))
        execv("/proc/self/exe", arguments);
    else if (arguments[0])
        execvp(arguments[0], arguments);
    give_up(op->line, "exec: %m");
}

static int verb_exit(struct run *run, struct op *op)
{
    exit(op->n_words > 1 ? (int)number(run, op, 1) : 0);
}

/* The thread ends here; where it is the first one, its process goes on with the others. */
static int verb_leave(struct run *run, struct op *op)
{
    (void)run;
    (void)op;
    pthread_exit(NULL);
}

static int verb_kill9(struct run *run, struct op *op)
{
    (void)run;
    (void)op;
    kill(getpid(), SIGKILL);
    return 0;
}

static int verb_signal(struct run *run, struct op *op)
{
    return raise(number(run, op, 1));
}

static int verb_sleep(struct run *run, struct op *op)
{
    usleep(1000 * number(run, op, 1));
    return 0;
}

static int verb_spin(struct run *run, struct op *op)
{
    uint64_t until = now_ns() + 1000 * number(run, op, 1);

    while (now_ns() < until)
        ;
    return 0;
}

static int verb_say(struct run *run, struct op *op)
{
    (void)run;
    for (int i = 1; i < op->n_words; i++)
        printf("%s%s", op->words[i], i + 1 < op->n_words ? " " : "\n");
    fflush(stdout);
    return 0;
}

/* clear VARIABLE: so that what was freed is not freed again. */
static int verb_clear(struct run *run, struct op *op)
{
    (void)run;
    variable_of(op->words[1])->value = 0;
    return 0;
}

static int verb_show(struct run *run, struct op *op)
{
    printf("%s %lu\n", op->words[1], number(run, op, 1));
    return 0;
}

static int verb_touch(struct run *run, struct op *op)
{
    int fd = open(op->words[1], O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

    (void)run;
    if (fd >= 0)
        close(fd);
    return fd < 0;
}

/* until FILE { ... }: again and again, a thousand times between two looks for FILE. */
static int verb_until(struct run *run, struct op *op)
{
    uint64_t outer = run->counter;

    for (run->counter = 0; run->counter % 1000 || access(op->words[1], F_OK); run->counter++)
        run_ops(run, op->body);
    run->counter = outer;
    return 0;
}

static int verb_await(struct run *run, struct op *op)
{
    (void)run;
    while (access(op->words[1], F_OK))
        usleep(1000);
    return 0;
}

static int verb_teardown(struct run *run, struct op *op)
{
    void (*teardown)(void);

    (void)run;
    (void)op;
    *(void **)&teardown = driver_symbol("simcudaTeardown");
    if (!teardown)
        return MISSING;
    teardown();
    return 0;
}

/* inject FUNCTION:NTH:RESULT,... counted from here on; "inject none" ends it. */
static int verb_inject(struct run *run, struct op *op)
{
    void (*fail)(const char *);

    (void)run;
    *(void **)&fail = driver_symbol("simcudaFail");
    if (!fail)
        return MISSING;
    fail(strcmp(op->words[1], "none") ? op->words[1] : "");
    return 0;
}

static const struct {
    const char *verb;
    handler_t handler;
    int words; /* at least */
} verbs[] = {
    {"barrier", verb_barrier, 1},
    {"repeat", verb_repeat, 2},
    {"time", verb_time, 1},
    {"depth", verb_depth, 2},
    {"pattern", verb_pattern, 2},
    {"fork", verb_fork, 1},
    {"wait", verb_wait, 1},
    {"exec", verb_exec, 2},
    {"exit", verb_exit, 1},
    {"kill9", verb_kill9, 1},
    {"leave", verb_leave, 1},
    {"signal", verb_signal, 2},
    {"sleep", verb_sleep, 2},
    {"spin", verb_spin, 2},
    {"say", verb_say, 1},
    {"clear", verb_clear, 2},
    {"show", verb_show, 2},
    {"touch", verb_touch, 2},
    {"await", verb_await, 2},
    {"until", verb_until, 2},
    {"teardown", verb_teardown, 1},
    {"inject", verb_inject, 2},
    {"use", verb_use, 1},
    {"ipcopen", verb_ipc_open, 3},
    {"blob", verb_structure, 3},
    {"prop", verb_structure, 4},
    {"poolprops", verb_structure, 4},
    {"location", verb_structure, 4},
    {"desc", verb_structure, 6},
    {"desc3", verb_structure, 8},
    {"desc1", verb_structure, 6},
    {"desc31", verb_structure, 8},
    {"graphnode", verb_structure, 5},
    {"nodeparams", verb_structure, 4},
    {"pairs", verb_pairs, 3},
    {"rate", verb_rate, 4},
    {"fill", verb_fill, 4},
    {"drain", verb_drain, 2},
};

void bind_op(struct op *op)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].verb, op->words[0]))
            continue;
        if (op->n_words < verbs[i].words)
            give_up(op->line, "%s: an argument is missing", op->words[0]);
        op->handler = verbs[i].handler;
        return;
    }
    if (!bind_driver_call(op))
        give_up(op->line, "unknown operation: %s", op->words[0]);
}

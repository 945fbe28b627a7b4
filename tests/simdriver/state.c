/* SPDX-License-Identifier: Apache-2.0 */
/* The process's state, its set-up from the environment, injected failures, teardown. */
#define _GNU_SOURCE
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LIVE_STATE 0x11223344u
#define DEAD_STATE 0x321cba00u /* the entries compare with this */
#define DEFAULT_DEVICES "8G,8G"

struct state *sim;
volatile uint32_t simulated_state = LIVE_STATE;

#define FUNCTION(name) #name,
const char *const function_names[FN_COUNT] = {
#include "functions.def"
};
#undef FUNCTION

__attribute__((constructor)) static void map_state(void)
{
    sim = mmap(NULL, sizeof(*sim), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sim == MAP_FAILED || madvise(sim, sizeof(*sim), MADV_WIPEONFORK)) {
        perror("simulated driver: no memory for its state");
        abort();
    }
}

void simcudaTeardown(void)
{
    simulated_state = DEAD_STATE;
}

int function_number(const char *name, size_t length)
{
    for (int function = 0; function < FN_COUNT; function++)
        if (strlen(function_names[function]) == length &&
            !memcmp(function_names[function], name, length))
            return function;
    return -1;
}

/* One "function:nth or *:result". Unknown text is refused aloud: a test must not run without it. */
static bool parse_rule(const char *text, struct rule *rule)
{
    const char *nth = strchr(text, ':');
    const char *result = nth ? strchr(nth + 1, ':') : NULL;

    if (!result)
        return false;
    rule->function = function_number(text, nth - text);
    rule->nth = nth[1] == '*' ? 0 : strtoull(nth + 1, NULL, 10);
    rule->result = atoi(result + 1);
    return rule->function >= 0;
}

void parse_rules(const char *text)
{
    memset(sim->has_rule, 0, sizeof(sim->has_rule));
    sim->n_rules = 0;
    while (text && *text && *text != '\n' && sim->n_rules < MAX_RULES) {
        struct rule *rule = &sim->rules[sim->n_rules];
        size_t length = strcspn(text, ",\n");

        if (!parse_rule(text, rule)) {
            fprintf(stderr, "simulated driver: not a failure rule: %.*s\n", (int)length, text);
            abort();
        }
        sim->has_rule[rule->function] = 1;
        sim->n_rules++;
        text += length + (text[length] == ',');
    }
}

void simcudaFail(const char *rules)
{
    pthread_mutex_lock(&sim->lock);
    memset(sim->calls, 0, sizeof(sim->calls));
    parse_rules(rules);
    pthread_mutex_unlock(&sim->lock);
}

/* SIMCUDA_CONTROL names a file with one line of rules, read again whenever it changes. */
static void read_control(const char *path)
{
    char text[4096] = "";
    struct stat status;
    uint64_t changed;
    FILE *file;

    if (stat(path, &status))
        return;
    changed = status.st_mtim.tv_sec * 1000000000ULL + status.st_mtim.tv_nsec;
    if (changed == sim->control_changed || !(file = fopen(path, "re")))
        return;
    sim->control_changed = changed;
    if (!fgets(text, sizeof(text), file))
        text[0] = 0;
    fclose(file);
    memset(sim->calls, 0, sizeof(sim->calls));
    parse_rules(text);
}

static void parse_latency(const char *text)
{
    while (text && *text) {
        const char *colon = strchr(text, ':');
        int function = colon ? function_number(text, colon - text) : -1;

        if (function < 0) {
            fprintf(stderr, "simulated driver: not a latency: %s\n", text);
            abort();
        }
        sim->latency_us[function] = atoi(colon + 1);
        text = strchr(colon, ',');
        text = text ? text + 1 : NULL;
    }
}

static uint64_t parse_size(const char **text)
{
    char *end;
    uint64_t size = strtoull(*text, &end, 10);
    const char *units = "KMGT", *unit = *end ? strchr(units, *end) : NULL;

    if (unit)
        size <<= 10 * (unit - units + 1);
    *text = end + (unit != NULL);
    *text += strspn(*text, ",");
    return size;
}

/* CUDA_VISIBLE_DEVICES as a list of indices: the process's ordinals are its own. */
static void choose_visible(const uint64_t *sizes, int n_sizes)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    sim->n_devices = 0;
    for (int i = 0; i < BOOKS_DEVICES && i < n_sizes; i++) {
        int physical = i;

        if (visible) {
            char *end;

            physical = strtol(visible, &end, 10);
            if (end == visible || physical < 0 || physical >= n_sizes)
                return;
            visible = end + (*end == ',');
        }
        sim->devices[i].size = sizes[physical];
        sim->devices[i].physical = physical;
        sim->n_devices++;
    }
}

static void set_up_devices(void)
{
    const char *text = getenv("SIMCUDA_DEVICES");
    uint64_t sizes[BOOKS_DEVICES];
    int n_sizes = 0;

    text = text && *text ? text : DEFAULT_DEVICES;
    while (*text && n_sizes < BOOKS_DEVICES && *text >= '0' && *text <= '9')
        sizes[n_sizes++] = parse_size(&text);
    choose_visible(sizes, n_sizes);
}

static void set_up(void)
{
    struct timespec now;
    const char *nested = getenv("SIMCUDA_NESTED");
    const char *teardown = getenv("SIMCUDA_TEARDOWN");

    clock_gettime(CLOCK_BOOTTIME, &now);
    sim->instance = now.tv_sec * 1000000000ULL + now.tv_nsec;
    sim->nested = nested && *nested == '1';
    sim->trace = getenv("SIMCUDA_TRACE") != NULL;
    set_up_devices();
    sim->books = books_open();
    parse_rules(getenv("SIMCUDA_FAIL"));
    parse_latency(getenv("SIMCUDA_LATENCY"));
    blocks_set_up();
    contexts_set_up();
    vmm_set_up();
    pools_set_up();
    ipc_set_up();
    if (teardown && *teardown == '1')
        atexit(simcudaTeardown);
}

static result_t injected(enum function function)
{
    for (int i = 0; i < sim->n_rules; i++) {
        const struct rule *rule = &sim->rules[i];

        if (rule->function == (int)function &&
            (rule->nth == 0 || rule->nth == sim->calls[function]))
            return rule->result;
    }
    return OK;
}

result_t sim_enter(enum function function, bool needs_init)
{
    static const char *control;
    static bool looked;

    pthread_mutex_lock(&sim->lock);
    if (!sim->instance)
        set_up();
    if (!looked) {
        control = getenv("SIMCUDA_CONTROL");
        looked = true;
    }
    if (control)
        read_control(control);
    sim->calls[function]++;
    sim->books->calls++;
    if (simulated_state == DEAD_STATE)
        return SHUTTING_DOWN;
    if (sim->has_rule[function]) {
        result_t result = injected(function);

        if (result != OK)
            return result;
    }
    return needs_init && !sim->initialised ? NOT_INITIALISED : OK;
}

/* Latency comes after the work and outside the lock: what was freed is already free for others. */
result_t sim_leave(enum function function, result_t result)
{
    uint32_t latency = sim->latency_us[function];

    if (sim->trace)
        fprintf(stderr, "simulated driver: %s %d\n", function_names[function], result);
    pthread_mutex_unlock(&sim->lock);
    if (latency)
        usleep(latency);
    return result;
}

/* Around a call through another exported entry, which takes the lock itself. */
void sim_pause(void)
{
    pthread_mutex_unlock(&sim->lock);
}

void sim_resume(void)
{
    pthread_mutex_lock(&sim->lock);
}

/* For what is only counted: streams, events, modules, graphs. */
void *new_handle(void)
{
    return (void *)(0x70000000ULL + 16 * ++sim->last_handle);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: who owns memory, and what is current in a thread. A handle is the address of
 * a slot; the slot freed last is handed out next.
 */
#include "sim.h"

#include <string.h>

#define MAX_STACK 64

typedef struct context *context_t;

struct thread_stack {
    uint64_t instance; /* of the process it was filled in; else it is a parent's */
    int depth;
    context_t entries[MAX_STACK];
};

static __thread struct thread_stack thread_stack;

static struct thread_stack *own_stack(void)
{
    if (thread_stack.instance != sim->instance) {
        thread_stack.instance = sim->instance;
        thread_stack.depth = 0;
    }
    return &thread_stack;
}

static struct context *new_context(int device, bool primary)
{
    struct context *context;

    if (!sim->n_free_contexts)
        return NULL;
    context = &sim->contexts[sim->free_contexts[--sim->n_free_contexts]];
    context->live = !primary;
    context->primary = primary;
    context->device = device;
    context->references = 0;
    context->flags = 0;
    return context;
}

/* Slot 0 is the process, the next are the primary contexts of its devices. */
void contexts_set_up(void)
{
    for (int slot = MAX_CONTEXTS - 1; slot > PROCESS_OWNER; slot--)
        sim->free_contexts[sim->n_free_contexts++] = slot;
    sim->contexts[PROCESS_OWNER].live = true;
    sim->contexts[PROCESS_OWNER].device = -1;
    for (int device = 0; device < sim->n_devices; device++)
        sim->devices[device].primary = new_context(device, true) - sim->contexts;
}

result_t check_device(int device)
{
    return device >= 0 && device < sim->n_devices ? OK : INVALID_DEVICE;
}

static bool is_context(const struct context *context)
{
    return context > sim->contexts && context < sim->contexts + MAX_CONTEXTS &&
           ((const char *)context - (const char *)sim->contexts) % sizeof(*context) == 0;
}

bool context_active(const struct context *context)
{
    return is_context(context) && context->live;
}

static struct context *primary_of(int device)
{
    return &sim->contexts[sim->devices[device].primary];
}

/* Pool memory goes with the primary context, or with the process while there is none. */
struct context *primary_owner(int device)
{
    struct context *context = device < 0 ? NULL : primary_of(device);

    return context && context->live ? context : &sim->contexts[PROCESS_OWNER];
}

/*
 * By handle alone: a thread that still holds the handle of a context that was destroyed
 * is in the next one that gets this handle, as it would be with plain pointers.
 */
struct context *context_current(result_t *why)
{
    struct thread_stack *stack = own_stack();
    context_t top = stack->depth ? stack->entries[stack->depth - 1] : NULL;

    *why = top ? CONTEXT_DESTROYED : INVALID_CONTEXT;
    if (!top || !top->live)
        return NULL;
    *why = OK;
    return top;
}

int device_here(void)
{
    result_t why;
    struct context *context = context_current(&why);

    return context ? context->device : -1;
}

/* Where a failure is booked whose place is not known: at the current device. */
unsigned fallback_row(enum kind kind)
{
    return books_row_number(kind, HOST_OWN, device_here());
}

static result_t push(struct context *context)
{
    struct thread_stack *stack = own_stack();

    PROBLEM(stack->depth == MAX_STACK, INVALID_VALUE);
    stack->entries[stack->depth++] = context;
    return OK;
}

static void end_context(struct context *context)
{
    book_implicit(context);
    blocks_abandon(context);
    context->live = false;
    if (context->primary)
        pools_emptied(context->device);
}

static result_t create(context_t *result, unsigned flags, int device)
{
    struct context *context;

    PROBLEM(!result, INVALID_VALUE);
    PROBLEM(check_device(device), INVALID_DEVICE);
    context = new_context(device, false);
    PROBLEM(!context, OUT_OF_MEMORY);
    if (push(context)) {
        context->live = false;
        sim->free_contexts[sim->n_free_contexts++] = context - sim->contexts;
        return INVALID_VALUE;
    }
    context->flags = flags;
    *result = context;
    return OK;
}

SIM_CALL(cuCtxCreate, (context_t * result, unsigned flags, int device), (result, flags, device))
{
    return create(result, flags, device);
}

SIM_CALL(cuCtxCreate_v2, (context_t * result, unsigned flags, int device), (result, flags, device))
{
    return create(result, flags, device);
}

SIM_CALL(cuCtxCreate_v3, (context_t * result, void *params, int count, unsigned flags, int device),
         (result, params, count, flags, device))
{
    (void)params;
    (void)count;
    return create(result, flags, device);
}

SIM_CALL(cuCtxCreate_v4, (context_t * result, void *params, unsigned flags, int device),
         (result, params, flags, device))
{
    (void)params;
    return create(result, flags, device);
}

/* Pops it here if it is on top; other threads keep a handle that is good for nothing. */
static result_t destroy(context_t context)
{
    struct thread_stack *stack = own_stack();

    PROBLEM(!context_active(context) || context->primary, INVALID_CONTEXT);
    if (stack->depth && stack->entries[stack->depth - 1] == context)
        stack->depth--;
    end_context(context);
    sim->free_contexts[sim->n_free_contexts++] = context - sim->contexts;
    return OK;
}

SIM_CALL(cuCtxDestroy, (context_t context), (context))
{
    return destroy(context);
}

SIM_CALL(cuCtxDestroy_v2, (context_t context), (context))
{
    return destroy(context);
}

/* Without cuCtxAttach there is one use, so the first detach is the end. */
SIM_CALL(cuCtxDetach, (context_t context), (context))
{
    return destroy(context);
}

SIM_CALL(cuCtxSetCurrent, (context_t context), (context))
{
    struct thread_stack *stack = own_stack();

    PROBLEM(context && !context_active(context), INVALID_CONTEXT);
    if (stack->depth)
        stack->depth--;
    return context ? push(context) : OK;
}

SIM_CALL(cuCtxGetCurrent, (context_t * result), (result))
{
    struct thread_stack *stack = own_stack();

    PROBLEM(!result, INVALID_VALUE);
    *result = stack->depth ? stack->entries[stack->depth - 1] : NULL;
    return OK;
}

static result_t push_current(context_t context)
{
    PROBLEM(!context_active(context), INVALID_CONTEXT);
    return push(context);
}

SIM_CALL(cuCtxPushCurrent, (context_t context), (context))
{
    return push_current(context);
}

SIM_CALL(cuCtxPushCurrent_v2, (context_t context), (context))
{
    return push_current(context);
}

static result_t pop_current(context_t *result)
{
    struct thread_stack *stack = own_stack();

    PROBLEM(!stack->depth, INVALID_CONTEXT);
    stack->depth--;
    if (result)
        *result = stack->entries[stack->depth];
    return OK;
}

SIM_CALL(cuCtxPopCurrent, (context_t * result), (result))
{
    return pop_current(result);
}

SIM_CALL(cuCtxPopCurrent_v2, (context_t * result), (result))
{
    return pop_current(result);
}

SIM_CALL(cuDevicePrimaryCtxRetain, (context_t * result, int device), (result, device))
{
    struct context *context;

    PROBLEM(!result, INVALID_VALUE);
    PROBLEM(check_device(device), INVALID_DEVICE);
    context = primary_of(device);
    context->live = true;
    context->references++;
    *result = context;
    return OK;
}

static result_t release(int device)
{
    struct context *context;

    PROBLEM(check_device(device), INVALID_DEVICE);
    context = primary_of(device);
    PROBLEM(!context->references, INVALID_CONTEXT);
    if (--context->references == 0)
        end_context(context);
    return OK;
}

SIM_CALL(cuDevicePrimaryCtxRelease, (int device), (device))
{
    return release(device);
}

SIM_CALL(cuDevicePrimaryCtxRelease_v2, (int device), (device))
{
    return release(device);
}

/* A reset does not release: who has retained the context still may use its handle. */
static result_t reset(int device)
{
    struct context *context;

    PROBLEM(check_device(device), INVALID_DEVICE);
    context = primary_of(device);
    if (context->live)
        end_context(context);
    context->live = context->references > 0;
    return OK;
}

SIM_CALL(cuDevicePrimaryCtxReset, (int device), (device))
{
    return reset(device);
}

SIM_CALL(cuDevicePrimaryCtxReset_v2, (int device), (device))
{
    return reset(device);
}

SIM_CALL(cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active),
         (device, flags, active))
{
    PROBLEM(!flags || !active, INVALID_VALUE);
    PROBLEM(check_device(device), INVALID_DEVICE);
    *flags = primary_of(device)->flags;
    *active = primary_of(device)->live;
    return OK;
}

SIM_CALL(cuDevicePrimaryCtxSetFlags_v2, (int device, unsigned flags), (device, flags))
{
    PROBLEM(check_device(device), INVALID_DEVICE);
    primary_of(device)->flags = flags;
    return OK;
}

SIM_CALL(cuCtxGetDevice, (int *device), (device))
{
    result_t why;
    struct context *context = context_current(&why);

    PROBLEM(!device, INVALID_VALUE);
    PROBLEM(!context, why);
    *device = context->device;
    return OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events and settings of contexts: everything is done at once, so little is kept. */
#include "sim.h"

static result_t give_handle(void **result)
{
    PROBLEM(!result, INVALID_VALUE);
    *result = new_handle();
    return OK;
}

SIM_CALL(cuStreamCreate, (void **stream, unsigned flags), (stream, flags))
{
    (void)flags;
    return give_handle(stream);
}

SIM_CALL(cuStreamCreateWithPriority, (void **stream, unsigned flags, int priority),
         (stream, flags, priority))
{
    (void)flags;
    (void)priority;
    return give_handle(stream);
}

SIM_CALL(cuEventCreate, (void **event, unsigned flags), (event, flags))
{
    (void)flags;
    return give_handle(event);
}

/* Calls that need one handle and have nothing to do. */
#define NOTHING(name)                        \
    SIM_CALL(name, (void *handle), (handle)) \
    {                                        \
        (void)handle;                        \
        return OK;                           \
    }
NOTHING(cuStreamDestroy_v2)
NOTHING(cuStreamSynchronize)
NOTHING(cuStreamQuery)
NOTHING(cuEventDestroy_v2)
NOTHING(cuEventSynchronize)
NOTHING(cuEventQuery)
NOTHING(cuCtxEnablePeerAccess)
NOTHING(cuCtxDisablePeerAccess)
NOTHING(cuCtxSetCacheConfig)

SIM_CALL(cuStreamWaitEvent, (void *stream, void *event, unsigned flags), (stream, event, flags))
{
    (void)stream;
    (void)event;
    (void)flags;
    return OK;
}

SIM_CALL(cuEventRecord, (void *event, void *stream), (event, stream))
{
    (void)event;
    (void)stream;
    return OK;
}

SIM_CALL(cuEventRecordWithFlags, (void *event, void *stream, unsigned flags),
         (event, stream, flags))
{
    (void)event;
    (void)stream;
    (void)flags;
    return OK;
}

static result_t no_time(float *milliseconds)
{
    PROBLEM(!milliseconds, INVALID_VALUE);
    *milliseconds = 0;
    return OK;
}

SIM_CALL(cuEventElapsedTime, (float *milliseconds, void *start, void *end),
         (milliseconds, start, end))
{
    (void)start;
    (void)end;
    return no_time(milliseconds);
}

SIM_CALL(cuEventElapsedTime_v2, (float *milliseconds, void *start, void *end),
         (milliseconds, start, end))
{
    (void)start;
    (void)end;
    return no_time(milliseconds);
}

static result_t set_int(int *result, int value)
{
    PROBLEM(!result, INVALID_VALUE);
    *result = value;
    return OK;
}

SIM_CALL(cuStreamIsCapturing, (void *stream, int *status), (stream, status))
{
    (void)stream;
    return set_int(status, 0);
}

SIM_CALL(cuStreamGetPriority, (void *stream, int *priority), (stream, priority))
{
    (void)stream;
    return set_int(priority, 0);
}

SIM_CALL(cuStreamGetFlags, (void *stream, int *flags), (stream, flags))
{
    (void)stream;
    return set_int(flags, 1);
}

SIM_CALL(cuStreamGetId, (void *stream, uint64_t *id), (stream, id))
{
    PROBLEM(!id, INVALID_VALUE);
    *id = (uint64_t)stream;
    return OK;
}

static result_t give_context(void **result)
{
    result_t why;
    struct context *context = context_current(&why);

    PROBLEM(!result, INVALID_VALUE);
    PROBLEM(!context, why);
    *result = context;
    return OK;
}

SIM_CALL(cuStreamGetCtx, (void *stream, void **context), (stream, context))
{
    (void)stream;
    return give_context(context);
}

SIM_CALL(cuStreamGetDevice, (void *stream, int *device), (stream, device))
{
    (void)stream;
    return set_int(device, device_here());
}

/* The function is called outside the lock: it may call the driver. */
SIM_CALL(cuLaunchHostFunc, (void *stream, void (*function)(void *), void *data),
         (stream, function, data))
{
    (void)stream;
    PROBLEM(!function, INVALID_VALUE);
    sim_pause();
    function(data);
    sim_resume();
    return OK;
}

SIM_CALL(cuStreamAddCallback,
         (void *stream, void (*function)(void *, result_t, void *), void *data, unsigned flags),
         (stream, function, data, flags))
{
    (void)flags;
    PROBLEM(!function, INVALID_VALUE);
    sim_pause();
    function(stream, OK, data);
    sim_resume();
    return OK;
}

SIM_CALL(cuCtxSynchronize, (void), ())
{
    result_t why;

    context_current(&why);
    return why;
}

SIM_CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest))
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return OK;
}

SIM_CALL(cuCtxGetFlags, (unsigned *flags), (flags))
{
    result_t why;
    struct context *context = context_current(&why);

    PROBLEM(!flags, INVALID_VALUE);
    PROBLEM(!context, why);
    *flags = context->flags;
    return OK;
}

SIM_CALL(cuCtxGetApiVersion, (void *context, unsigned *version), (context, version))
{
    (void)context;
    return set_int((int *)version, 3020);
}

SIM_CALL(cuCtxGetId, (void *context, uint64_t *id), (context, id))
{
    PROBLEM(!id, INVALID_VALUE);
    *id = (uint64_t)context;
    return OK;
}

SIM_CALL(cuCtxGetLimit, (uint64_t *value, int limit), (value, limit))
{
    (void)limit;
    PROBLEM(!value, INVALID_VALUE);
    *value = 1024;
    return OK;
}

SIM_CALL(cuCtxSetLimit, (int limit, uint64_t value), (limit, value))
{
    (void)limit;
    (void)value;
    return OK;
}

SIM_CALL(cuCtxGetCacheConfig, (int *config), (config))
{
    return set_int(config, 0);
}

SIM_CALL(cuProfilerStart, (void), ())
{
    return OK;
}

SIM_CALL(cuProfilerStop, (void), ())
{
    return OK;
}

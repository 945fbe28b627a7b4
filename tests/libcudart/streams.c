/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events. Nothing is ever captured into a graph. */
#include "runtime.h"

result_t cudaStreamCreateWithFlags(void **stream, unsigned flags)
{
    return done(ready() ?: cu.StreamCreate(stream, flags));
}

result_t cudaStreamCreate(void **stream)
{
    return cudaStreamCreateWithFlags(stream, 0);
}

result_t cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    return done(ready() ?: cu.StreamCreateWithPriority(stream, flags, priority));
}

result_t cudaStreamGetPriority(void *stream, int *priority)
{
    return done(ready() ?: cu.StreamGetPriority(stream, priority));
}

result_t cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    return done(ready() ?: cu.StreamWaitEvent(stream, event, flags));
}

#define OF_ONE(runtime_name, driver_name)               \
    result_t runtime_name(void *handle)                 \
    {                                                   \
        return done(ready() ?: cu.driver_name(handle)); \
    }
OF_ONE(cudaStreamDestroy, StreamDestroy)
OF_ONE(cudaStreamSynchronize, StreamSynchronize)
OF_ONE(cudaStreamQuery, StreamQuery)
OF_ONE(cudaEventDestroy, EventDestroy)
OF_ONE(cudaEventQuery, EventQuery)
OF_ONE(cudaEventSynchronize, EventSynchronize)

result_t cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data,
                               unsigned flags)
{
    return done(ready() ?: cu.StreamAddCallback(stream, function, data, flags));
}

result_t cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data)
{
    return done(ready() ?: cu.LaunchHostFunc(stream, function, data));
}

result_t cudaEventCreateWithFlags(void **event, unsigned flags)
{
    return done(ready() ?: cu.EventCreate(event, flags));
}

result_t cudaEventCreate(void **event)
{
    return cudaEventCreateWithFlags(event, 0);
}

result_t cudaEventRecord(void *event, void *stream)
{
    return done(ready() ?: cu.EventRecord(event, stream));
}

result_t cudaEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
    return done(ready() ?: cu.EventRecordWithFlags(event, stream, flags));
}

result_t cudaEventElapsedTime(float *milliseconds, void *start, void *end)
{
    return done(ready() ?: cu.EventElapsedTime(milliseconds, start, end));
}

result_t cudaIpcGetEventHandle(struct ipc_handle *handle, void *event)
{
    return done(ready() ?: cu.IpcGetEventHandle(handle, event));
}

result_t cudaStreamIsCapturing(void *stream, int *status)
{
    return done(ready() ?: cu.StreamIsCapturing(stream, status));
}

/* What is asked besides the status is defined only while something is captured. */
result_t cudaStreamGetCaptureInfo(void *stream, int *status)
{
    return cudaStreamIsCapturing(stream, status);
}

result_t cudaThreadExchangeStreamCaptureMode(int *mode)
{
    static __thread int mine;
    int before = mine;

    mine = *mode;
    *mode = before;
    return OK;
}

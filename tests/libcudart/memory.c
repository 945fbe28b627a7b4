/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: each call is one call of the driver, on the same thread, as in the real one. */
#include "runtime.h"

/* Nothing is asked of the driver for nothing. */
#define NONE(pointer, bytes)            \
    do {                                \
        if (!(pointer))                 \
            return done(INVALID_VALUE); \
        if (!(bytes)) {                 \
            *(pointer) = NULL;          \
            return OK;                  \
        }                               \
    } while (0)

result_t cudaMalloc(void **pointer, size_t bytes)
{
    NONE(pointer, bytes);
    return done(ready() ?: cu.MemAlloc(pointer, bytes));
}

/* 4: the smallest element, which any row is a multiple of in pitch. */
result_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    NONE(pointer, width && height);
    return done(ready() ?: cu.MemAllocPitch(pointer, (uint64_t *)pitch, width, height, 4));
}

result_t cudaMallocManaged(void **pointer, size_t bytes, unsigned flags)
{
    return done(ready() ?: cu.MemAllocManaged(pointer, bytes, flags));
}

/* Both host calls are cuMemHostAlloc: the real one never asks for cuMemAllocHost. */
result_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    NONE(pointer, bytes);
    return done(ready() ?: cu.MemHostAlloc(pointer, bytes, flags));
}

result_t cudaMallocHost(void **pointer, size_t bytes)
{
    NONE(pointer, bytes);
    return done(ready() ?: cu.MemHostAlloc(pointer, bytes, 0));
}

result_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    return done(ready() ?: cu.MemHostRegister(pointer, bytes, flags));
}

result_t cudaHostUnregister(void *pointer)
{
    return done(ready() ?: cu.MemHostUnregister(pointer));
}

/* cudaFree(0) is a common way to make the context. */
result_t cudaFree(void *pointer)
{
    return done(ready() ?: pointer ? cu.MemFree(pointer) : OK);
}

result_t cudaFreeHost(void *pointer)
{
    return done(ready() ?: pointer ? cu.MemFreeHost(pointer) : OK);
}

result_t cudaMallocAsync(void **pointer, size_t bytes, void *stream)
{
    NONE(pointer, bytes);
    return done(ready() ?: cu.MemAllocAsync(pointer, bytes, stream));
}

result_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, void *pool, void *stream)
{
    NONE(pointer, bytes);
    return done(ready() ?: cu.MemAllocFromPoolAsync(pointer, bytes, pool, stream));
}

result_t cudaFreeAsync(void *pointer, void *stream)
{
    return done(ready() ?: pointer ? cu.MemFreeAsync(pointer, stream) : OK);
}

result_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    return done(ready() ?: cu.MemGetInfo((uint64_t *)unused, (uint64_t *)total));
}

result_t cudaDeviceGetDefaultMemPool(void **pool, int device)
{
    return done(started() ?: cu.DeviceGetDefaultMemPool(pool, device));
}

result_t cudaMemPoolGetAttribute(void *pool, int attribute, void *value)
{
    return done(started() ?: cu.MemPoolGetAttribute(pool, attribute, value));
}

result_t cudaMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    return done(started() ?: cu.MemPoolSetAttribute(pool, attribute, value));
}

result_t cudaMemPoolSetAccess(void *pool, const void *descriptions, size_t count)
{
    return done(started() ?: cu.MemPoolSetAccess(pool, descriptions, count));
}

result_t cudaMemPoolTrimTo(void *pool, size_t bytes)
{
    return done(started() ?: cu.MemPoolTrimTo(pool, bytes));
}

result_t cudaIpcGetMemHandle(struct ipc_handle *handle, void *pointer)
{
    return done(ready() ?: cu.IpcGetMemHandle(handle, pointer));
}

result_t cudaIpcOpenMemHandle(void **pointer, struct ipc_handle handle, unsigned flags)
{
    return done(ready() ?: cu.IpcOpenMemHandle(pointer, handle, flags));
}

result_t cudaIpcCloseMemHandle(void *pointer)
{
    return done(ready() ?: cu.IpcCloseMemHandle(pointer));
}

struct pointer_attributes {
    int type, device;
    void *on_device, *on_host;
    long reserved[8];
};

enum { UNREGISTERED, HOST, DEVICE, MANAGED };

/* The driver's numbers: memory type, device address, host address, managed, ordinal. */
result_t cudaPointerGetAttributes(struct pointer_attributes *result, const void *pointer)
{
    static const int attributes[] = {2, 3, 4, 8, 9};
    unsigned type = 0;
    unsigned char managed = 0;
    void *wanted[] = {&type, &result->on_device, &result->on_host, &managed, &result->device};
    result_t problem = ready();

    *result = (struct pointer_attributes){.device = -2};
    if (!problem)
        problem = cu.PointerGetAttributes(5, attributes, wanted, pointer);
    result->type = managed ? MANAGED : type == 1 ? HOST : type == 2 ? DEVICE : UNREGISTERED;
    return done(problem);
}

/* The direction follows from the addresses. */
result_t cudaMemcpy(void *to, const void *from, size_t bytes, int direction)
{
    (void)direction;
    return done(ready() ?: bytes ? cu.Memcpy(to, from, bytes) : OK);
}

result_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int direction, void *stream)
{
    (void)direction;
    return done(ready() ?: bytes ? cu.MemcpyAsync(to, from, bytes, stream) : OK);
}

result_t cudaMemcpyPeerAsync(void *to, int device, const void *from, int peer, size_t bytes,
                             void *stream)
{
    (void)device;
    (void)peer;
    return cudaMemcpyAsync(to, from, bytes, 0, stream);
}

result_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                           size_t width, size_t height, int direction, void *stream)
{
    result_t result = OK;

    for (size_t row = 0; !result && row < height; row++)
        result = cudaMemcpyAsync((char *)to + row * to_pitch, (const char *)from + row * from_pitch,
                                 width, direction, stream);
    return result;
}

result_t cudaMemset(void *to, int value, size_t bytes)
{
    return done(ready() ?: bytes ? cu.MemsetD8(to, (unsigned char)value, bytes) : OK);
}

result_t cudaMemsetAsync(void *to, int value, size_t bytes, void *stream)
{
    return done(ready() ?: bytes ? cu.MemsetD8Async(to, (unsigned char)value, bytes, stream) : OK);
}

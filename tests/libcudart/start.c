/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the driver, the contexts, the last error. */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>

#define RUNTIME_VERSION 13020

typedef result_t lookup_t(const char *, void **, int, uint64_t, int *);

struct driver cu;
__thread int device_here;

static lookup_t *lookup;
static result_t start_result = NO_DRIVER;
static void *contexts[MAX_DEVICES];
static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread void *current;
static __thread result_t last_error;

static result_t unknown_function(void)
{
    return NOT_SUPPORTED;
}

static void *find(const char *name, int version)
{
    void *address = NULL;

    lookup(name, &address, version, 0, NULL);
    return address ? address : (void *)unknown_function;
}

/* The library is opened by name, so that the search path decides which driver it is. */
static void start(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    lookup = library ? (lookup_t *)dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (!lookup)
        return;
#define DRIVER(name, version, parameters) cu.name = find("cu" #name, version);
#include "driver.def"
#undef DRIVER
    start_result = cu.Init(0);
}

result_t started(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, start);
    return start_result;
}

/* Retained at the first use and never given back, as in the real one. */
void *primary_context(int device)
{
    pthread_mutex_lock(&context_lock);
    if (!contexts[device] && cu.DevicePrimaryCtxRetain(&contexts[device], device))
        contexts[device] = NULL;
    pthread_mutex_unlock(&context_lock);
    return contexts[device];
}

result_t ready(void)
{
    result_t result = started();
    void *context = result ? NULL : primary_context(device_here);

    if (!context)
        return result ? result : INVALID_DEVICE;
    if (context == current)
        return OK;
    result = cu.CtxSetCurrent(context);
    current = result ? NULL : context;
    return result;
}

result_t done(result_t result)
{
    if (result && result != NOT_READY)
        last_error = result;
    return result;
}

result_t cudaPeekAtLastError(void)
{
    return last_error;
}

result_t cudaGetLastError(void)
{
    result_t result = last_error;

    last_error = OK;
    return result;
}

const char *cudaGetErrorName(result_t error)
{
    const char *text = NULL;

    if (started() || cu.GetErrorName(error, &text) || !text)
        return "unknown error";
    return text;
}

const char *cudaGetErrorString(result_t error)
{
    const char *text = NULL;

    if (started() || cu.GetErrorString(error, &text) || !text)
        return error == NO_DRIVER ? "no libcuda.so.1" : "unknown error";
    return text;
}

result_t cudaRuntimeGetVersion(int *version)
{
    *version = RUNTIME_VERSION;
    return OK;
}

/* Without a driver its version is 0, which is no failure. */
result_t cudaDriverGetVersion(int *version)
{
    *version = 0;
    return started() == NO_DRIVER ? OK : done(cu.DriverGetVersion(version));
}

/* A function that is not there is told by the status alone. */
result_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                          unsigned long long flags, int *status)
{
    int ignored;

    *function = NULL;
    if (started() == NO_DRIVER)
        return done(NO_DRIVER);
    lookup(name, function, (int)version, flags, status ? status : &ignored);
    return OK;
}

result_t cudaProfilerStart(void)
{
    return done(ready() ?: cu.ProfilerStart());
}

result_t cudaProfilerStop(void)
{
    return done(ready() ?: cu.ProfilerStop());
}

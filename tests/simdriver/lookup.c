/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a function by name and version; names of results; private tables: none. */
#define _GNU_SOURCE
#include "sim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define FLAG_PER_THREAD 2

enum { FOUND, NO_SYMBOL, VERSION_TOO_LOW };

/* The version from which a suffixed symbol is meant; those not named here: _v2 since 3020. */
static const struct {
    const char *symbol;
    int since;
} versions[] = {
    {"cuCtxCreate_v3", 11040},
    {"cuCtxCreate_v4", 12050},
    {"cuCtxDestroy_v2", 4000},
    {"cuCtxPopCurrent_v2", 4000},
    {"cuCtxPushCurrent_v2", 4000},
    {"cuDeviceGetUuid_v2", 11040},
    {"cuDevicePrimaryCtxRelease_v2", 11000},
    {"cuDevicePrimaryCtxReset_v2", 11000},
    {"cuDevicePrimaryCtxSetFlags_v2", 11000},
    {"cuEventDestroy_v2", 4000},
    {"cuEventElapsedTime_v2", 12080},
    {"cuGetProcAddress_v2", 12000},
    {"cuIpcOpenMemHandle_v2", 11000},
    {"cuLinkAddData_v2", 6050},
    {"cuLinkCreate_v2", 6050},
    {"cuMemHostRegister_v2", 6050},
    {"cuMemPrefetchAsync_v2", 12020},
    {"cuMemAdvise_v2", 12020},
    {"cuStreamDestroy_v2", 4000},
    {"cuStreamGetCaptureInfo_v2", 11030},
    {"cuStreamGetCaptureInfo_v3", 12030},
    {"cuStreamGetCtx_v2", 12050},
};

static int since(const char *symbol)
{
    for (unsigned i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
        if (!strcmp(versions[i].symbol, symbol))
            return versions[i].since;
    return strstr(symbol, "_v") ? 3020 : 2000;
}

/* Only what the library exports: a build may leave symbols out. */
static void *exported(const char *symbol)
{
    static void *library;
    Dl_info self;

    if (!library && dladdr(exported, &self))
        library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return library && strncmp(symbol, "cu", 2) == 0 ? dlsym(library, symbol) : NULL;
}

static void *find_version(const char *name, const char *suffix, int version)
{
    static const char *const twins[] = {"_v4", "_v3", "_v2", ""};

    for (unsigned i = 0; i < sizeof(twins) / sizeof(twins[0]); i++) {
        char symbol[128];
        void *address;

        snprintf(symbol, sizeof(symbol), "%s%s", name, twins[i]);
        if (version < since(symbol))
            continue;
        snprintf(symbol, sizeof(symbol), "%s%s%s", name, twins[i], suffix);
        if ((address = exported(symbol)))
            return address;
    }
    return NULL;
}

static void *find(const char *name, int version, uint64_t flags)
{
    static const char *const per_thread[] = {"_ptsz", "_ptds"};

    for (int i = 0; i < 2 && flags & FLAG_PER_THREAD; i++) {
        void *address = find_version(name, per_thread[i], version);

        if (address)
            return address;
    }
    return find_version(name, "", version);
}

static result_t look_up(const char *name, void **result, int version, uint64_t flags, int *status)
{
    PROBLEM(!name || !result, INVALID_VALUE);
    *result = find(name, version, flags);
    if (status)
        *status = *result ? FOUND : exported(name) ? VERSION_TOO_LOW : NO_SYMBOL;
    return *result ? OK : NOT_FOUND;
}

SIM_EARLY(cuGetProcAddress, (const char *name, void **result, int version, uint64_t flags),
          (name, result, version, flags))
{
    return look_up(name, result, version, flags, NULL);
}

SIM_EARLY(cuGetProcAddress_v2,
          (const char *name, void **result, int version, uint64_t flags, int *status),
          (name, result, version, flags, status))
{
    return look_up(name, result, version, flags, status);
}

/* There are none, and we imitate none. */
SIM_EARLY(cuGetExportTable, (const void **table, const void *id), (table, id))
{
    (void)id;
    if (table)
        *table = NULL;
    return NOT_FOUND;
}

static const struct {
    result_t result;
    const char *name, *text;
} results[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALISED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {SHUTTING_DOWN, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no device"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CONTEXT_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "already registered"},
    {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "not registered"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

static result_t describe(result_t result, const char **text, bool name)
{
    PROBLEM(!text, INVALID_VALUE);
    *text = NULL;
    for (unsigned i = 0; i < sizeof(results) / sizeof(results[0]); i++)
        if (results[i].result == result)
            *text = name ? results[i].name : results[i].text;
    return *text ? OK : INVALID_VALUE;
}

SIM_EARLY(cuGetErrorName, (result_t result, const char **text), (result, text))
{
    return describe(result, text, true);
}

SIM_EARLY(cuGetErrorString, (result_t result, const char **text), (result, text))
{
    return describe(result, text, false);
}

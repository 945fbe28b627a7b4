/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the driver, their short names, and the structures that they take. */
#define _GNU_SOURCE
#include "play.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The template has a letter for each argument: & output variable, * value, @ blob, from
 * the script in this order; a digit stands for itself and is not written in the script.
 */
static const struct {
    const char *verb, *symbol, *template;
} short_names[] = {
    {"init", "cuInit", "0"},
    {"retain", "cuDevicePrimaryCtxRetain", "&*"},
    {"release", "cuDevicePrimaryCtxRelease_v2", "*"},
    {"reset", "cuDevicePrimaryCtxReset_v2", "*"},
    {"ctx", "cuCtxCreate_v2", "&0*"},
    {"ctx3", "cuCtxCreate_v3", "&000*"},
    {"ctx4", "cuCtxCreate_v4", "&00*"},
    {"destroy", "cuCtxDestroy_v2", "*"},
    {"set", "cuCtxSetCurrent", "*"},
    {"push", "cuCtxPushCurrent_v2", "*"},
    {"pop", "cuCtxPopCurrent_v2", "&"},
    {"alloc", "cuMemAlloc_v2", "&*"},
    {"alloc1", "cuMemAlloc", "&*"},
    {"pitch", "cuMemAllocPitch_v2", "&&**4"},
    {"pitch1", "cuMemAllocPitch", "&&**4"},
    {"managed", "cuMemAllocManaged", "&*1"},
    {"allochost", "cuMemAllocHost_v2", "&*"},
    {"allochost1", "cuMemAllocHost", "&*"},
    {"hostalloc", "cuMemHostAlloc", "&*0"},
    {"register", "cuMemHostRegister_v2", "@*0"},
    {"register1", "cuMemHostRegister", "@*0"},
    {"unregister", "cuMemHostUnregister", "@"},
    {"free", "cuMemFree_v2", "*"},
    {"free1", "cuMemFree", "*"},
    {"freehost", "cuMemFreeHost", "*"},
    {"async", "cuMemAllocAsync", "&*0"},
    {"asyncz", "cuMemAllocAsync_ptsz", "&*0"},
    {"frompool", "cuMemAllocFromPoolAsync", "&**0"},
    {"frompoolz", "cuMemAllocFromPoolAsync_ptsz", "&**0"},
    {"freeasync", "cuMemFreeAsync", "*0"},
    {"freeasyncz", "cuMemFreeAsync_ptsz", "*0"},
    {"pool", "cuMemPoolCreate", "&@"},
    {"pooldestroy", "cuMemPoolDestroy", "*"},
    {"defaultpool", "cuDeviceGetDefaultMemPool", "&*"},
    {"currentpool", "cuDeviceGetMemPool", "&*"},
    {"poolexport", "cuMemPoolExportPointer", "@*"},
    {"poolimport", "cuMemPoolImportPointer", "&*@"},
    {"create", "cuMemCreate", "&*@0"},
    {"releasehandle", "cuMemRelease", "*"},
    {"reserve", "cuMemAddressReserve", "&*000"},
    {"unreserve", "cuMemAddressFree", "**"},
    {"map", "cuMemMap", "**0*0"},
    {"unmap", "cuMemUnmap", "**"},
    {"retainhandle", "cuMemRetainAllocationHandle", "&*"},
    {"export", "cuMemExportToShareableHandle", "&*10"},
    {"import", "cuMemImportFromShareableHandle", "&*1"},
    {"array", "cuArrayCreate_v2", "&@"},
    {"array3", "cuArray3DCreate_v2", "&@"},
    {"array1", "cuArrayCreate", "&@"},
    {"array31", "cuArray3DCreate", "&@"},
    {"mip", "cuMipmappedArrayCreate", "&@*"},
    {"arraydestroy", "cuArrayDestroy", "*"},
    {"mipdestroy", "cuMipmappedArrayDestroy", "*"},
    {"ipcget", "cuIpcGetMemHandle", "@*"},
    {"ipcclose", "cuIpcCloseMemHandle", "*"},
};

void *driver_symbol(const char *name)
{
    static void *library;

    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        give_up(0, "%s", dlerror());
    return dlsym(library, name);
}

typedef int (*driver_t)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t);

/* What the asm keeps apart: no tail calls, so that every function has its frame. */
#define FRAME __attribute__((noinline, noclone, optimize("no-optimize-sibling-calls")))

FRAME int allocate_leaf(void *function, const uint64_t *arguments)
{
    driver_t call = (driver_t)function;
    int result = call(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                      arguments[5], arguments[6], arguments[7]);

    __asm__ volatile("" ::: "memory");
    return result;
}

static int go_deeper(void *function, const uint64_t *arguments, int depth, uint64_t pattern);

FRAME int allocate_middle(void *function, const uint64_t *arguments, int depth, uint64_t pattern)
{
    int result = go_deeper(function, arguments, depth - 1, pattern >> 1);

    __asm__ volatile("" ::: "memory");
    return result;
}

FRAME int allocate_other(void *function, const uint64_t *arguments, int depth, uint64_t pattern)
{
    int result = go_deeper(function, arguments, depth - 1, pattern >> 1);

    __asm__ volatile("" ::: "memory");
    return result;
}

static inline __attribute__((always_inline)) int go_deeper(void *function,
                                                           const uint64_t *arguments, int depth,
                                                           uint64_t pattern)
{
    if (depth <= 0)
        return allocate_leaf(function, arguments);
    if (pattern & 1)
        return allocate_other(function, arguments, depth, pattern);
    return allocate_middle(function, arguments, depth, pattern);
}

/* Through run->depth frames of this program; run->pattern makes stacks differ. */
int call_driver(struct run *run, void *function, const uint64_t *arguments)
{
    return go_deeper(function, arguments, run->depth, run->pattern);
}

static int verb_call(struct run *run, struct op *op)
{
    uint64_t arguments[MAX_WORDS] = {0};

    if (!op->function)
        op->function = driver_symbol(op->symbol);
    if (!op->function)
        return MISSING;
    for (int i = 0; i < op->n_arguments; i++)
        arguments[i] = value_of(run, &op->arguments[i]);
    return call_driver(run, op->function, arguments);
}

static void bind_short(struct op *op, const char *template)
{
    int word = 1;

    for (; *template; template++) {
        struct argument *argument = &op->arguments[op->n_arguments++];

        if (*template >= '0' && *template <= '9') {
            *argument = (struct argument){ARG_NUMBER, NULL, *template - '0'};
            continue;
        }
        if (word == op->n_words)
            give_up(op->line, "%s: an argument is missing", op->words[0]);
        *argument = parse_argument(op->words[word++], *template);
    }
    if (word != op->n_words)
        give_up(op->line, "%s: too many arguments", op->words[0]);
}

bool bind_driver_call(struct op *op)
{
    op->handler = verb_call;
    op->symbol = op->words[0];
    if (!strncmp(op->words[0], "cu", 2) && isupper((unsigned char)op->words[0][2])) {
        for (int i = 1; i < op->n_words; i++)
            op->arguments[op->n_arguments++] = parse_argument(op->words[i], '*');
        return true;
    }
    for (size_t i = 0; i < sizeof(short_names) / sizeof(short_names[0]); i++)
        if (!strcmp(short_names[i].verb, op->words[0])) {
            op->symbol = short_names[i].symbol;
            bind_short(op, short_names[i].template);
            return true;
        }
    return false;
}

struct ipc_handle {
    char bytes[64];
};

/* ipcopen P HANDLE [SYMBOL]: the handle goes by value. */
int verb_ipc_open(struct run *run, struct op *op)
{
    int (*open)(uint64_t *, struct ipc_handle, unsigned);
    const char *symbol = op->n_words > 3 ? op->words[3] : "cuIpcOpenMemHandle_v2";
    struct ipc_handle handle;
    int result;

    (void)run;
    *(void **)&open = driver_symbol(symbol);
    if (!open)
        return MISSING;
    memcpy(&handle, variable_of(op->words[2])->blob, sizeof(handle));
    result = open(&variable_of(op->words[1])->value, handle, 1);
    __asm__ volatile("" ::: "memory");
    return result;
}

/* use N: initialise, retain the primary context of device N and make it current. */
int verb_use(struct run *run, struct op *op)
{
    uint64_t context = 0, device = op->n_words > 1 ? strtoull(op->words[1], NULL, 0) : 0;
    int result = call_driver(run, driver_symbol("cuInit"), (uint64_t[8]){0});

    if (!result)
        result = call_driver(run, driver_symbol("cuDevicePrimaryCtxRetain"),
                             (uint64_t[8]){(uint64_t)&context, device});
    if (!result)
        result = call_driver(run, driver_symbol("cuCtxSetCurrent"), (uint64_t[8]){context});
    return result;
}

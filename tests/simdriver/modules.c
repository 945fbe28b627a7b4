/* SPDX-License-Identifier: Apache-2.0 */
/* Code: anything loads, every function is found, a launch does nothing. */
#include "sim.h"

#include <string.h>

static result_t give_handle(void **result)
{
    PROBLEM(!result, INVALID_VALUE);
    *result = new_handle();
    return OK;
}

/* Calls whose first argument takes the new handle and whose others do not matter here. */
#define LOAD(name)                            \
    SIM_CALL(name, (void **result), (result)) \
    {                                         \
        return give_handle(result);           \
    }
LOAD(cuModuleLoad)
LOAD(cuModuleLoadData)
LOAD(cuModuleLoadDataEx)
LOAD(cuModuleLoadFatBinary)
LOAD(cuModuleGetFunction)
LOAD(cuLibraryLoadData)
LOAD(cuLibraryGetKernel)
LOAD(cuLibraryGetModule)
LOAD(cuKernelGetFunction)
LOAD(cuFuncGetModule)

#define DONE(name)             \
    SIM_CALL(name, (void), ()) \
    {                          \
        return OK;             \
    }
DONE(cuModuleUnload)
DONE(cuLibraryUnload)
DONE(cuFuncSetAttribute)
DONE(cuFuncSetCacheConfig)
DONE(cuKernelSetAttribute)
DONE(cuLaunchKernel)
DONE(cuLaunchKernelEx)
DONE(cuLaunchCooperativeKernel)
DONE(cuLinkAddData_v2)
DONE(cuLinkDestroy)

SIM_CALL(cuModuleGetGlobal_v2, (dptr_t * address, uint64_t *bytes, void *module, const char *name),
         (address, bytes, module, name))
{
    (void)address;
    (void)bytes;
    (void)module;
    (void)name;
    return NOT_FOUND;
}

SIM_CALL(cuModuleGetLoadingMode, (int *mode), (mode))
{
    PROBLEM(!mode, INVALID_VALUE);
    *mode = 2;
    return OK;
}

/* Threads a block, 32 registers, no local memory. */
static result_t function_attribute(int *value, int attribute)
{
    PROBLEM(!value, INVALID_VALUE);
    *value = attribute == 0                     ? 1024
             : attribute == 4                   ? 32
             : attribute == 5 || attribute == 6 ? 90
                                                : 0;
    return OK;
}

SIM_CALL(cuFuncGetAttribute, (int *value, int attribute, void *function),
         (value, attribute, function))
{
    (void)function;
    return function_attribute(value, attribute);
}

SIM_CALL(cuKernelGetAttribute, (int *value, int attribute, void *kernel, int device),
         (value, attribute, kernel, device))
{
    (void)kernel;
    (void)device;
    return function_attribute(value, attribute);
}

SIM_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks), (blocks))
{
    PROBLEM(!blocks, INVALID_VALUE);
    *blocks = 1;
    return OK;
}

SIM_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, (int *blocks), (blocks))
{
    PROBLEM(!blocks, INVALID_VALUE);
    *blocks = 1;
    return OK;
}

SIM_CALL(cuOccupancyMaxPotentialBlockSize, (int *grid, int *block), (grid, block))
{
    PROBLEM(!grid || !block, INVALID_VALUE);
    *grid = 16;
    *block = 256;
    return OK;
}

SIM_CALL(cuLinkCreate_v2, (unsigned count, int *options, void **values, void **state),
         (count, options, values, state))
{
    (void)count;
    (void)options;
    (void)values;
    return give_handle(state);
}

SIM_CALL(cuLinkComplete, (void *state, void **image, uint64_t *bytes), (state, image, bytes))
{
    static char linked[64] = "simulated image";

    (void)state;
    PROBLEM(!image || !bytes, INVALID_VALUE);
    *image = linked;
    *bytes = sizeof(linked);
    return OK;
}

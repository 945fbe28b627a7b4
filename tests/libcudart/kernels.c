/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code of the device: it is registered and launched, and nothing runs. What a client could
 * only use with real code or graphs is not supported.
 */
#include "runtime.h"

struct configuration {
    struct extent grid, block;
    size_t shared;
    void *stream;
};

static __thread struct configuration pushed;

void **__cudaRegisterFatBinary(void *image)
{
    static void *handle;

    handle = image;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

/* Kernels and variables need no book: nothing asks for more than the host's address. */
void __cudaRegisterFunction(void **handle, const char *host)
{
    (void)handle;
    (void)host;
}

void __cudaRegisterVar(void **handle, char *host)
{
    (void)handle;
    (void)host;
}

unsigned __cudaPushCallConfiguration(struct extent grid, struct extent block, size_t shared,
                                     void *stream)
{
    pushed = (struct configuration){grid, block, shared, stream};
    return 0;
}

result_t __cudaPopCallConfiguration(struct extent *grid, struct extent *block, size_t *shared,
                                    void **stream)
{
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *stream = pushed.stream;
    return OK;
}

static result_t launch(const void *function, struct extent grid, struct extent block,
                       void **arguments, size_t shared, void *stream)
{
    return done(ready()
                    ?: cu.LaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                       (unsigned)shared, stream, arguments, NULL));
}

result_t cudaLaunchKernel(const void *function, struct extent grid, struct extent block,
                          void **arguments, size_t shared, void *stream)
{
    return launch(function, grid, block, arguments, shared, stream);
}

result_t cudaLaunchCooperativeKernel(const void *function, struct extent grid, struct extent block,
                                     void **arguments, size_t shared, void *stream)
{
    return launch(function, grid, block, arguments, shared, stream);
}

result_t __cudaLaunchKernel(const void *kernel, struct extent grid, struct extent block,
                            void **arguments, size_t shared, void *stream)
{
    return launch(kernel, grid, block, arguments, shared, stream);
}

result_t __cudaGetKernel(const void **kernel, const void *function)
{
    *kernel = function;
    return OK;
}

result_t cudaLaunchKernelExC(const struct configuration *configuration, const void *function,
                             void **arguments)
{
    return launch(function, configuration->grid, configuration->block, arguments,
                  configuration->shared, configuration->stream);
}

struct function_attributes {
    size_t shared, constant, local;
    int threads_per_block, registers, ptx, binary;
};

result_t cudaFuncGetAttributes(struct function_attributes *result, const void *function)
{
    (void)function;
    *result = (struct function_attributes){
        .threads_per_block = 1024, .registers = 32, .ptx = 90, .binary = 90};
    return OK;
}

result_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks)
{
    *blocks = 1;
    return OK;
}

result_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks)
{
    *blocks = 1;
    return OK;
}

/* A variable of the device can be written, and nobody will ever read it. */
result_t cudaMemcpyToSymbol(const void *symbol)
{
    return symbol ? OK : done(INVALID_SYMBOL);
}

result_t cudaGetSymbolAddress(void **address, const void *symbol)
{
    (void)symbol;
    *address = NULL;
    return done(INVALID_SYMBOL);
}

#define DONE(name)      \
    result_t name(void) \
    {                   \
        return OK;      \
    }
DONE(cudaFuncSetAttribute)
DONE(cudaKernelSetAttributeForDevice)

#define REFUSED(name)               \
    result_t name(void)             \
    {                               \
        return done(NOT_SUPPORTED); \
    }
REFUSED(cudaGraphAddNode)
REFUSED(cudaGraphConditionalHandleCreate)
REFUSED(cudaGraphDestroy)
REFUSED(cudaGraphExecDestroy)
REFUSED(cudaGraphGetNodes)
REFUSED(cudaGraphInstantiate)
REFUSED(cudaGraphInstantiateWithFlags)
REFUSED(cudaGraphLaunch)
REFUSED(cudaGraphNodeGetDependencies)
REFUSED(cudaGraphRetainUserObject)
REFUSED(cudaIpcOpenEventHandle)
REFUSED(cudaLibraryGetGlobal)
REFUSED(cudaLibraryGetKernel)
REFUSED(cudaLibraryGetKernelCount)
REFUSED(cudaLibraryGetManaged)
REFUSED(cudaLibraryGetUnifiedFunction)
REFUSED(cudaLibraryLoadData)
REFUSED(cudaLibraryLoadFromFile)
REFUSED(cudaLibraryUnload)
REFUSED(cudaStreamBeginCapture)
REFUSED(cudaStreamBeginCaptureToGraph)
REFUSED(cudaStreamEndCapture)
REFUSED(cudaStreamUpdateCaptureDependencies)
REFUSED(cudaUserObjectCreate)
REFUSED(cudaUserObjectRelease)

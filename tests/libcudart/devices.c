/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: which is meant, what they can. */
#include "runtime.h"

#include <string.h>

static int device_count(void)
{
    int count = 0;

    if (cu.DeviceGetCount(&count))
        return 0;
    return count < MAX_DEVICES ? count : MAX_DEVICES;
}

static result_t check_device(int device)
{
    result_t result = started();

    if (result)
        return result;
    return device >= 0 && device < device_count() ? OK : INVALID_DEVICE;
}

result_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    return done(started() ?: cu.DeviceGetCount(count));
}

result_t cudaGetDevice(int *device)
{
    *device = device_here;
    return done(started());
}

/* Makes the context too, as the real one does since 12. */
result_t cudaSetDevice(int device)
{
    result_t result = check_device(device);

    if (result)
        return done(result);
    device_here = device;
    return done(ready());
}

/* Attributes have the driver's numbers. */
result_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    return done(started() ?: cu.DeviceGetAttribute(value, attribute, device));
}

/*
 * Where the properties stand in the structure of CUDA 13 that are plain attributes of the
 * driver, and how wide they are there. Found by setting each field of the structure that
 * cuda-bindings 13.5 has and looking for the bytes that changed.
 */
static const struct {
    uint16_t offset, bytes, attribute;
} properties[] = {
    {296, 8, 8},   /* shared memory per block */
    {304, 4, 12},  /* registers per block */
    {308, 4, 10},  /* warp */
    {312, 8, 11},  /* pitch */
    {320, 4, 1},   /* threads per block */
    {324, 4, 2},   /* block dimensions */
    {328, 4, 3},   /* */
    {332, 4, 4},   /* */
    {336, 4, 5},   /* grid dimensions */
    {340, 4, 6},   /* */
    {344, 4, 7},   /* */
    {352, 8, 9},   /* constant memory */
    {360, 4, 75},  /* compute capability */
    {364, 4, 76},  /* */
    {368, 8, 14},  /* texture alignment */
    {384, 4, 16},  /* multiprocessors */
    {392, 4, 19},  /* can map host memory */
    {560, 4, 31},  /* concurrent kernels */
    {568, 4, 33},  /* PCI bus */
    {572, 4, 34},  /* PCI device */
    {576, 4, 50},  /* PCI domain */
    {584, 4, 40},  /* copy engines */
    {588, 4, 41},  /* unified addressing */
    {592, 4, 37},  /* bus width */
    {596, 4, 38},  /* level 2 cache */
    {604, 4, 39},  /* threads per multiprocessor */
    {608, 4, 78},  /* stream priorities */
    {624, 8, 81},  /* shared memory per multiprocessor */
    {632, 4, 82},  /* registers per multiprocessor */
    {636, 4, 83},  /* managed memory */
    {656, 4, 89},  /* concurrent managed access */
    {664, 4, 91},  /* registered host pointers are usable */
    {672, 8, 97},  /* shared memory per block, opt-in */
    {688, 4, 106}, /* blocks per multiprocessor */
    {720, 4, 115}, /* memory pools */
    {736, 4, 119}, /* handle types of pools */
};

#define PROPERTIES_BYTES 784 /* what is known of it; behind that it is reserved */
#define OFFSET_UUID 256
#define OFFSET_TOTAL 288

result_t cudaGetDeviceProperties(void *result, int device)
{
    result_t problem = check_device(device);
    char *bytes = result;

    if (problem)
        return done(problem);
    memset(bytes, 0, PROPERTIES_BYTES);
    cu.DeviceGetName(bytes, OFFSET_UUID, device);
    cu.DeviceGetUuid(bytes + OFFSET_UUID, device);
    cu.DeviceTotalMem((uint64_t *)(bytes + OFFSET_TOTAL), device);
    for (unsigned i = 0; i < sizeof(properties) / sizeof(properties[0]); i++) {
        int value = 0;

        cu.DeviceGetAttribute(&value, properties[i].attribute, device);
        memcpy(bytes + properties[i].offset, &(uint64_t){(unsigned)value}, properties[i].bytes);
    }
    return OK;
}

result_t cudaDeviceGetPCIBusId(char *name, int length, int device)
{
    return done(started() ?: cu.DeviceGetPCIBusId(name, length, device));
}

result_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    return done(started() ?: cu.DeviceCanAccessPeer(can, device, peer));
}

result_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    result_t result = check_device(peer) ?: ready();

    return done(result ?: cu.CtxEnablePeerAccess(primary_context(peer), flags));
}

result_t cudaDeviceSynchronize(void)
{
    return done(ready() ?: cu.CtxSynchronize());
}

result_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return done(ready() ?: cu.CtxGetStreamPriorityRange(least, greatest));
}

result_t cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value)
{
    return done(ready() ?: cu.DeviceGetGraphMemAttribute(device, attribute, value));
}

result_t cudaDeviceSetGraphMemAttribute(int device, int attribute, void *value)
{
    return done(ready() ?: cu.DeviceSetGraphMemAttribute(device, attribute, value));
}

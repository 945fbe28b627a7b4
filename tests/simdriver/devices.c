/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up, devices and what they say about themselves. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

#define DRIVER_VERSION 13000

SIM_EARLY(cuInit, (unsigned flags), (flags))
{
    PROBLEM(flags, INVALID_VALUE);
    PROBLEM(!sim->n_devices, NO_DEVICE);
    sim->initialised = true;
    return OK;
}

SIM_EARLY(cuDriverGetVersion, (int *version), (version))
{
    PROBLEM(!version, INVALID_VALUE);
    *version = DRIVER_VERSION;
    return OK;
}

SIM_CALL(cuDeviceGetCount, (int *count), (count))
{
    PROBLEM(!count, INVALID_VALUE);
    *count = sim->n_devices;
    return OK;
}

SIM_CALL(cuDeviceGet, (int *device, int ordinal), (device, ordinal))
{
    PROBLEM(!device, INVALID_VALUE);
    PROBLEM(check_device(ordinal), INVALID_DEVICE);
    *device = ordinal;
    return OK;
}

SIM_CALL(cuDeviceGetName, (char *name, int length, int device), (name, length, device))
{
    PROBLEM(!name || length <= 0, INVALID_VALUE);
    PROBLEM(check_device(device), INVALID_DEVICE);
    snprintf(name, length, "Simulated device");
    return OK;
}

/* The machine's index is in the last byte; the NVML stand-in prints the same. */
static result_t get_uuid(unsigned char *uuid, int device)
{
    PROBLEM(!uuid, INVALID_VALUE);
    PROBLEM(check_device(device), INVALID_DEVICE);
    memcpy(uuid, "simulated device", 16);
    uuid[15] = sim->devices[device].physical;
    return OK;
}

SIM_CALL(cuDeviceGetUuid, (unsigned char *uuid, int device), (uuid, device))
{
    return get_uuid(uuid, device);
}

SIM_CALL(cuDeviceGetUuid_v2, (unsigned char *uuid, int device), (uuid, device))
{
    return get_uuid(uuid, device);
}

SIM_CALL(cuDeviceGetLuid, (char *luid, unsigned *mask, int device), (luid, mask, device))
{
    (void)luid;
    (void)mask;
    (void)device;
    return NOT_SUPPORTED;
}

SIM_CALL(cuDeviceGetPCIBusId, (char *name, int length, int device), (name, length, device))
{
    PROBLEM(!name || length <= 0, INVALID_VALUE);
    PROBLEM(check_device(device), INVALID_DEVICE);
    snprintf(name, length, "0000:%02x:00.0", sim->devices[device].physical + 1);
    return OK;
}

SIM_CALL(cuDeviceGetByPCIBusId, (int *device, const char *name), (device, name))
{
    int domain, bus;

    PROBLEM(!device || !name || sscanf(name, "%x:%x", &domain, &bus) != 2, INVALID_VALUE);
    for (int i = 0; i < sim->n_devices; i++)
        if (sim->devices[i].physical == bus - 1) {
            *device = i;
            return OK;
        }
    return INVALID_DEVICE;
}

static result_t total_memory(uint64_t *bytes, int device)
{
    PROBLEM(!bytes, INVALID_VALUE);
    PROBLEM(check_device(device), INVALID_DEVICE);
    *bytes = sim->devices[device].size;
    return OK;
}

SIM_CALL(cuDeviceTotalMem_v2, (uint64_t *bytes, int device), (bytes, device))
{
    return total_memory(bytes, device);
}

static const struct {
    int attribute, value;
} attributes[] = {
    {1, 1024},                                  /* threads per block */
    {2, 1024},                                  /* block dimensions */
    {3, 1024},     {4, 64},    {5, 2147483647}, /* grid dimensions */
    {6, 65535},    {7, 65535}, {8, 49152},      /* shared memory per block */
    {9, 65536},                                 /* constant memory */
    {10, 32},                                   /* warp */
    {12, 65536},                                /* registers per block */
    {13, 1500000},                              /* clock, kHz */
    {14, 512},                                  /* texture alignment */
    {16, 16},                                   /* multiprocessors */
    {19, 1},                                    /* can map host memory */
    {36, 1500000}, {37, 256},  {39, 1536},      /* threads per multiprocessor */
    {41, 1},                                    /* unified addressing */
    {75, 9},                                    /* compute capability */
    {76, 0},       {78, 1},                     /* stream priorities */
    {81, 102400},                               /* shared memory and registers per multiprocessor */
    {82, 65536},   {83, 1},                     /* managed memory */
    {89, 1},                                    /* concurrent managed access */
    {91, 1},      /* host pointers may be used for registered memory */
    {97, 101376}, /* shared memory per block, opt-in */
    {102, 1},     /* virtual memory management */
    {103, 1},     /* handles by file descriptor */
    {106, 16},    /* blocks per multiprocessor */
    {115, 1},     /* memory pools */
    {119, 1},     /* pool handles: file descriptor */
    {125, 1},     /* IPC events */
};

static int attribute_of(int attribute, int device)
{
    if (attribute == 33)
        return sim->devices[device].physical + 1; /* PCI bus */
    for (unsigned i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
        if (attributes[i].attribute == attribute)
            return attributes[i].value;
    return 0;
}

SIM_CALL(cuDeviceGetAttribute, (int *value, int attribute, int device), (value, attribute, device))
{
    PROBLEM(!value, INVALID_VALUE);
    PROBLEM(check_device(device), INVALID_DEVICE);
    *value = attribute_of(attribute, device);
    return OK;
}

SIM_CALL(cuDeviceComputeCapability, (int *major, int *minor, int device), (major, minor, device))
{
    PROBLEM(!major || !minor, INVALID_VALUE);
    PROBLEM(check_device(device), INVALID_DEVICE);
    *major = attribute_of(75, device);
    *minor = attribute_of(76, device);
    return OK;
}

SIM_CALL(cuDeviceCanAccessPeer, (int *can, int device, int peer), (can, device, peer))
{
    PROBLEM(!can, INVALID_VALUE);
    PROBLEM(check_device(device) || check_device(peer), INVALID_DEVICE);
    *can = device != peer;
    return OK;
}

SIM_CALL(cuDeviceGetP2PAttribute, (int *value, int attribute, int device, int peer),
         (value, attribute, device, peer))
{
    (void)attribute;
    PROBLEM(!value, INVALID_VALUE);
    PROBLEM(check_device(device) || check_device(peer), INVALID_DEVICE);
    *value = 0;
    return OK;
}

static result_t memory_info(uint64_t *unused, uint64_t *total)
{
    result_t why;
    struct context *context = context_current(&why);

    PROBLEM(!context, why);
    PROBLEM(!unused || !total, INVALID_VALUE);
    *total = sim->devices[context->device].size;
    *unused = *total - sim->devices[context->device].used;
    return OK;
}

SIM_CALL(cuMemGetInfo_v2, (uint64_t *unused, uint64_t *total), (unused, total))
{
    return memory_info(unused, total);
}

/* 32 bits hold no more than 4 GiB: the old twin saturates. */
SIM_CALL(cuMemGetInfo, (uint32_t *unused, uint32_t *total), (unused, total))
{
    uint64_t wide_unused = 0, wide_total = 0;
    result_t result = memory_info(&wide_unused, &wide_total);

    PROBLEM(result, result);
    PROBLEM(!unused || !total, INVALID_VALUE);
    *unused = wide_unused > UINT32_MAX ? UINT32_MAX : wide_unused;
    *total = wide_total > UINT32_MAX ? UINT32_MAX : wide_total;
    return OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client asks for when it starts and must find, though the simulated devices have
 * nothing of the kind: multicast, parts of a device. PyTorch's allocator looks all of them
 * up at once and stops where one is missing.
 */
#include "sim.h"

SIM_CALL(cuStreamWriteValue32, (void *stream, uint32_t *address, uint32_t value, unsigned flags),
         (stream, address, value, flags))
{
    (void)stream;
    (void)flags;
    PROBLEM(!address, INVALID_VALUE);
    *address = value;
    return OK;
}

SIM_CALL(cuStreamWriteValue32_v2, (void *stream, uint32_t *address, uint32_t value, unsigned flags),
         (stream, address, value, flags))
{
    (void)stream;
    (void)flags;
    PROBLEM(!address, INVALID_VALUE);
    *address = value;
    return OK;
}

#define REFUSED(name)          \
    SIM_CALL(name, (void), ()) \
    {                          \
        return NOT_SUPPORTED;  \
    }
REFUSED(cuMulticastCreate)
REFUSED(cuMulticastAddDevice)
REFUSED(cuMulticastBindMem)
REFUSED(cuMulticastUnbind)
REFUSED(cuCtxFromGreenCtx)
REFUSED(cuDevResourceGenerateDesc)
REFUSED(cuDevSmResourceSplitByCount)
REFUSED(cuDeviceGetDevResource)
REFUSED(cuGreenCtxCreate)
REFUSED(cuGreenCtxDestroy)
REFUSED(cuGreenCtxStreamCreate)

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every hooked function of libcuda by its exported name. Several names may mean one
 * call; the first of them is its name in events. igsdk/_abi.py has the same list and
 * a test compares them.
 */
#ifndef IGSDK_SYMBOLS_H
#define IGSDK_SYMBOLS_H

#include "abi.h"

/* One name for each call. */
#define FOR_EACH_CALL(DO)                                                 \
	DO(cuMemAlloc_v2, IGSDK_CALL_MEM_ALLOC)                           \
	DO(cuMemAlloc, IGSDK_CALL_MEM_ALLOC_V1)                           \
	DO(cuMemAllocPitch_v2, IGSDK_CALL_MEM_ALLOC_PITCH)                \
	DO(cuMemAllocPitch, IGSDK_CALL_MEM_ALLOC_PITCH_V1)                \
	DO(cuMemAllocManaged, IGSDK_CALL_MEM_ALLOC_MANAGED)               \
	DO(cuMemAllocHost_v2, IGSDK_CALL_MEM_ALLOC_HOST)                  \
	DO(cuMemAllocHost, IGSDK_CALL_MEM_ALLOC_HOST_V1)                  \
	DO(cuMemHostAlloc, IGSDK_CALL_MEM_HOST_ALLOC)                     \
	DO(cuMemHostRegister_v2, IGSDK_CALL_MEM_HOST_REGISTER)            \
	DO(cuMemHostUnregister, IGSDK_CALL_MEM_HOST_UNREGISTER)           \
	DO(cuMemFree_v2, IGSDK_CALL_MEM_FREE)                             \
	DO(cuMemFree, IGSDK_CALL_MEM_FREE_V1)                             \
	DO(cuMemFreeHost, IGSDK_CALL_MEM_FREE_HOST)                       \
	DO(cuMemAllocAsync, IGSDK_CALL_MEM_ALLOC_ASYNC)                   \
	DO(cuMemAllocFromPoolAsync, IGSDK_CALL_MEM_ALLOC_FROM_POOL_ASYNC) \
	DO(cuMemFreeAsync, IGSDK_CALL_MEM_FREE_ASYNC)                     \
	DO(cuMemPoolCreate, IGSDK_CALL_MEM_POOL_CREATE)                   \
	DO(cuMemPoolDestroy, IGSDK_CALL_MEM_POOL_DESTROY)                 \
	DO(cuDeviceGetDefaultMemPool, IGSDK_CALL_DEVICE_GET_MEM_POOL)     \
	DO(cuMemGetDefaultMemPool, IGSDK_CALL_MEM_GET_MEM_POOL)           \
	DO(cuMemPoolExportPointer, IGSDK_CALL_MEM_POOL_EXPORT_POINTER)    \
	DO(cuMemPoolImportPointer, IGSDK_CALL_MEM_POOL_IMPORT_POINTER)    \
	DO(cuMemCreate, IGSDK_CALL_MEM_CREATE)                            \
	DO(cuMemRelease, IGSDK_CALL_MEM_RELEASE)                          \
	DO(cuMemMap, IGSDK_CALL_MEM_MAP)                                  \
	DO(cuMemUnmap, IGSDK_CALL_MEM_UNMAP)                              \
	DO(cuMemRetainAllocationHandle, IGSDK_CALL_MEM_RETAIN_HANDLE)     \
	DO(cuMemImportFromShareableHandle, IGSDK_CALL_MEM_IMPORT_HANDLE)  \
	DO(cuArrayCreate_v2, IGSDK_CALL_ARRAY_CREATE)                     \
	DO(cuArray3DCreate_v2, IGSDK_CALL_ARRAY_3D_CREATE)                \
	DO(cuMipmappedArrayCreate, IGSDK_CALL_MIPMAPPED_ARRAY_CREATE)     \
	DO(cuArrayDestroy, IGSDK_CALL_ARRAY_DESTROY)                      \
	DO(cuMipmappedArrayDestroy, IGSDK_CALL_MIPMAPPED_ARRAY_DESTROY)   \
	DO(cuIpcGetMemHandle, IGSDK_CALL_IPC_GET_MEM_HANDLE)              \
	DO(cuIpcOpenMemHandle_v2, IGSDK_CALL_IPC_OPEN_MEM_HANDLE)         \
	DO(cuIpcCloseMemHandle, IGSDK_CALL_IPC_CLOSE_MEM_HANDLE)          \
	DO(cuCtxCreate_v2, IGSDK_CALL_CTX_CREATE)                         \
	DO(cuCtxCreate_v3, IGSDK_CALL_CTX_CREATE_V3)                      \
	DO(cuCtxCreate_v4, IGSDK_CALL_CTX_CREATE_V4)                      \
	DO(cuCtxDestroy_v2, IGSDK_CALL_CTX_DESTROY)                       \
	DO(cuCtxSetCurrent, IGSDK_CALL_CTX_SET_CURRENT)                   \
	DO(cuCtxPushCurrent_v2, IGSDK_CALL_CTX_PUSH_CURRENT)              \
	DO(cuCtxPopCurrent_v2, IGSDK_CALL_CTX_POP_CURRENT)                \
	DO(cuDevicePrimaryCtxRetain, IGSDK_CALL_PRIMARY_CTX_RETAIN)       \
	DO(cuDevicePrimaryCtxRelease_v2, IGSDK_CALL_PRIMARY_CTX_RELEASE)  \
	DO(cuDevicePrimaryCtxReset_v2, IGSDK_CALL_PRIMARY_CTX_RESET)      \
	DO(cuGraphAddMemAllocNode, IGSDK_CALL_GRAPH_ADD_MEM_ALLOC_NODE)   \
	DO(cuImportExternalMemory, IGSDK_CALL_IMPORT_EXTERNAL_MEMORY)     \
	DO(cuMemMapArrayAsync, IGSDK_CALL_MEM_MAP_ARRAY_ASYNC)            \
	DO(cuArrayCreate, IGSDK_CALL_ARRAY_CREATE_V1)                     \
	DO(cuArray3DCreate, IGSDK_CALL_ARRAY_3D_CREATE_V1)                \
	DO(cuGraphAddNode, IGSDK_CALL_GRAPH_ADD_NODE)                     \
	DO(cuGraphAddNode_v2, IGSDK_CALL_GRAPH_ADD_NODE_V2)               \
	DO(cuDeviceGetUuid_v2, IGSDK_CALL_DEVICE_GET_UUID)

/* Other names for them: older versions, and twins for per-thread streams. */
#define FOR_EACH_TWIN(DO)                                                      \
	DO(cuMemHostRegister, IGSDK_CALL_MEM_HOST_REGISTER)                    \
	DO(cuMemAllocAsync_ptsz, IGSDK_CALL_MEM_ALLOC_ASYNC)                   \
	DO(cuMemAllocFromPoolAsync_ptsz, IGSDK_CALL_MEM_ALLOC_FROM_POOL_ASYNC) \
	DO(cuMemFreeAsync_ptsz, IGSDK_CALL_MEM_FREE_ASYNC)                     \
	DO(cuDeviceGetMemPool, IGSDK_CALL_DEVICE_GET_MEM_POOL)                 \
	DO(cuMemGetMemPool, IGSDK_CALL_MEM_GET_MEM_POOL)                       \
	DO(cuIpcOpenMemHandle, IGSDK_CALL_IPC_OPEN_MEM_HANDLE)                 \
	DO(cuCtxCreate, IGSDK_CALL_CTX_CREATE)                                 \
	DO(cuCtxDestroy, IGSDK_CALL_CTX_DESTROY)                               \
	DO(cuCtxDetach, IGSDK_CALL_CTX_DESTROY)                                \
	DO(cuCtxPushCurrent, IGSDK_CALL_CTX_PUSH_CURRENT)                      \
	DO(cuCtxPopCurrent, IGSDK_CALL_CTX_POP_CURRENT)                        \
	DO(cuDevicePrimaryCtxRelease, IGSDK_CALL_PRIMARY_CTX_RELEASE)          \
	DO(cuDevicePrimaryCtxReset, IGSDK_CALL_PRIMARY_CTX_RESET)              \
	DO(cuMemMapArrayAsync_ptsz, IGSDK_CALL_MEM_MAP_ARRAY_ASYNC)            \
	DO(cuDeviceGetUuid, IGSDK_CALL_DEVICE_GET_UUID)

#define API_NAME(SYMBOL, CALL) SYMBOL = CALL,

enum igsdk_api {
	no_api = IGSDK_CALL_NONE,
	FOR_EACH_CALL(API_NAME)
} __attribute__((packed));

#endif

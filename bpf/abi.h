/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the program and its runtime exchange: rows of maps, records of rings,
 * settings. Included by BPF C and by the C++ extension; igsdk/_abi.py holds the
 * same layouts as numpy dtypes and a test compares sizes and offsets.
 *
 * Every structure is free of implicit padding, so that keys compare bytewise.
 */
#ifndef IGSDK_ABI_H
#define IGSDK_ABI_H

#ifdef __bpf__
#include "kernel.h"
#else
#include <cstdint>
typedef uint8_t u8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
#endif

/* Inspektor Gadget's names for what a member means; the sizes are its own too. */
typedef u64 gadget_timestamp; /* boot clock, ns */
typedef u64 gadget_bytes;
typedef u64 gadget_mntns_id;
typedef u32 gadget_pid;
typedef u32 gadget_tid;
typedef u32 gadget_uid;
typedef u32 gadget_gid;
typedef char gadget_comm;

#define IGSDK_MAX_FRAMES 127
#define IGSDK_COMM_LEN 16
#define IGSDK_NO_INDEX 0xffffffffu

/* What sort of memory (design section 2). */
enum igsdk_kind {
	IGSDK_KIND_NONE,
	IGSDK_KIND_DEVICE,
	IGSDK_KIND_MANAGED,
	IGSDK_KIND_PINNED,
	IGSDK_KIND_REGISTERED,
	IGSDK_KIND_POOL,
	IGSDK_KIND_VMM,
	IGSDK_KIND_ARRAY,
	IGSDK_KIND_IMPORTED,
};

/* host_raw: whose memory it is, and so what it may be summed with. */
enum igsdk_host {
	IGSDK_HOST_OWN,	       /* memory of a device, allocated by the process */
	IGSDK_HOST_PINNED,     /* host memory: pinned, or vmm and pool placed on the host */
	IGSDK_HOST_REGISTERED, /* host memory that existed before */
	IGSDK_HOST_IMPORTED,   /* another process's memory */
	IGSDK_HOST_MANAGED,    /* pages may be anywhere */
};

/* How an account or a context came to its end. */
enum igsdk_ended {
	IGSDK_LIVE,
	IGSDK_ENDED_CONTEXT,
	IGSDK_ENDED_PROCESS,
};

/* Where bytes are booked: one key of the heap data source. */
struct igsdk_account_key {
	u64 process; /* instance: hash of tgid, leader start time and exec id */
	u64 stack;   /* capture key, 0 = stacks are off */
	u32 context; /* generation, 0 = unknown or none */
	u8 kind;
	u8 host;
	s16 device; /* ordinal in the process's own view, -1 = unknown */
};

/* Running totals; bytes and calls since the program's first event. */
struct igsdk_totals {
	u64 alloc_bytes;
	u64 alloc_calls;
	u64 free_bytes;
	u64 free_calls;
	u64 fail_bytes;
	u64 fail_calls;
};

/*
 * One account. Neither its end nor implicit frees are stored: it has ended when
 * its usage row or its process has, and from then on all that no call freed
 * counts as given back. So a free that races with the end of its context can't
 * be counted twice, and an end costs the same with one account or a million.
 */
struct igsdk_account {
	struct igsdk_account_key key;
	struct igsdk_totals totals;
	u64 untracked_bytes; /* allocated while the live table was full */
	u32 generation;	     /* of this slot; even = free slot, odd = in use */
	u32 usage;	     /* slot of the usage row it belongs to */
	u8 overflow;	     /* the [accounts full] account */
	u8 captured;	     /* its stack went up the captures ring */
	u16 pad;
	u32 process; /* slot */
};

/*
 * process x context x kind x device, without stacks: exact even when stacks
 * are lost. The processes data source is the sum over contexts.
 */
struct igsdk_usage_key {
	u64 process;
	u32 context;
	u8 kind;
	u8 host;
	s16 device;
};

struct igsdk_usage {
	struct igsdk_usage_key key;
	struct igsdk_totals totals;
	u64 in_use; /* IGSDK_USAGE_GONE once ended: late frees must not count */
	u64 ended_at;
	u32 generation; /* odd = in use */
	u32 process;	/* slot */
	u32 next;	/* next usage row of the same process */
	u32 overflow;	/* slot of the [accounts full] account */
	u8 ended;	/* enum igsdk_ended; never ENDED_PROCESS, see the process */
	u8 pad[7];
};

/* The bit that tells, and a reserve below it that late frees can't use up. */
#define IGSDK_USAGE_ENDED (1ULL << 63)
#define IGSDK_USAGE_GONE (IGSDK_USAGE_ENDED | IGSDK_USAGE_ENDED >> 1)

struct igsdk_process {
	u64 instance;
	gadget_timestamp start_ns; /* boot clock, of the thread-group leader */
	gadget_mntns_id mntns_id;
	gadget_timestamp first_ns; /* boot clock, first call seen */
	gadget_timestamp ended_at;
	gadget_bytes in_use; /* host 0 only */
	gadget_bytes peak;
	u64 unknown_frees; /* successful frees of addresses never seen */
	u64 cgroup_id;
	u32 generation; /* odd = in use */
	gadget_pid pid; /* tgid in the initial PID namespace */
	u32 ns_pid;	/* tgid in the process's own PID namespace */
	u32 exec_id;
	gadget_uid uid;
	gadget_gid gid;
	u32 usages;  /* head of the list of usage rows */
	u32 number;  /* never reused within a run */
	u32 context; /* last context generation handed out */
	u8 ended;
	u8 late; /* had libcuda mapped before the probes were there */
	u8 pad[2];
	gadget_comm comm[IGSDK_COMM_LEN];
};

/* Records of the `events` ring. All begin with the same header. */
enum igsdk_record {
	IGSDK_RECORD_ALLOC = 1,
	IGSDK_RECORD_FREE,
	IGSDK_RECORD_FAILURE,
	IGSDK_RECORD_CONTEXT_END,
	IGSDK_RECORD_PROCESS_END,
};

/* 56 bytes. CONTEXT_END: address = context generation. */
struct igsdk_event {
	gadget_timestamp time; /* at the call's return */
	u64 address;
	gadget_bytes bytes;
	gadget_bytes in_use; /* of the process, host 0, after this event */
	u32 account;	     /* slot; IGSDK_NO_INDEX for *_END */
	u32 generation;	     /* of the slot; for *_END of the process */
	gadget_tid tid;	     /* initial PID namespace */
	u32 latency_ns;	     /* saturates */
	u32 process;	     /* slot */
	u16 result;	     /* CUresult */
	u8 record;	     /* enum igsdk_record */
	u8 call;	     /* enum igsdk_call */
};

/*
 * Records of the `captures` ring: a stack the first time that its process uses
 * it. The fixed part is followed by `n_frames` u64 return addresses, leaf
 * first; then (version 2 of the capture, later) `n_python` Python frames and
 * `stack_bytes` bytes of stack from regs.sp upwards. A reader skips what it does
 * not know by `size`.
 */
enum igsdk_capture_flags {
	IGSDK_CAPTURE_FRAME_POINTERS = 1 << 0,
	IGSDK_CAPTURE_REGISTERS = 1 << 1,
	IGSDK_CAPTURE_STACK_BYTES = 1 << 2,
	IGSDK_CAPTURE_PYTHON = 1 << 3,
	IGSDK_CAPTURE_TRUNCATED = 1 << 4,
	IGSDK_CAPTURE_FAILED = 1 << 5,
};

struct igsdk_capture {
	u64 process; /* instance */
	u64 key;     /* hash of the addresses; means something with its process only */
	u64 time;
	u64 ip;
	u64 sp;
	u64 fp;
	u32 size; /* of the whole record */
	u32 pid;
	u32 tid;
	u32 flags;
	u16 n_frames;
	u16 n_python;
	u32 stack_bytes;
	s32 error; /* negative errno of the walk, 0 = none */
	u32 pad;
};

/* Losses, counted in the kernel by cause; index of the `losses` array. */
enum igsdk_loss {
	IGSDK_LOSS_EVENTS,	   /* events ring full */
	IGSDK_LOSS_CAPTURES,	   /* captures ring full: the stack is sent at its next use */
	IGSDK_LOSS_PROCESSES_FULL, /* threads whose calls go to the one global row */
	IGSDK_LOSS_USAGE_FULL,
	IGSDK_LOSS_ACCOUNTS_FULL, /* calls booked to [accounts full] */
	IGSDK_LOSS_LIVE_FULL,	  /* allocations whose free can't be matched */
	IGSDK_LOSS_THREADS,	  /* calls without in-flight state */
	IGSDK_LOSS_CONTEXTS_FULL,
	IGSDK_LOSS_READ_FAULT,	 /* result could not be read from user memory */
	IGSDK_LOSS_STACK_FAILED, /* stack walks that gave nothing */
	IGSDK_LOSS_NESTED,	 /* hooked calls inside a hooked call: not booked */
	IGSDK_LOSS_ABANDONED,	 /* calls that never returned to their probe */
	IGSDK_LOSS_UNKNOWN_FREE,
	IGSDK_LOSS_MISSED_FREE,	     /* an address was handed out again without a free */
	IGSDK_LOSS_NOT_BOOKED_GRAPH, /* graph memory nodes seen */
	IGSDK_LOSS_NOT_BOOKED_EXTERNAL,
	IGSDK_LOSS_NOT_BOOKED_SPARSE,
	IGSDK_LOSS_SIZE_UNKNOWN,   /* imports whose size nobody told */
	IGSDK_LOSS_FORMAT_UNKNOWN, /* arrays of a format without a known size */
	IGSDK_LOSS_UNMAP_PARTIAL,  /* unmap covered more maps than one call may walk */
	IGSDK_LOSS_SECCOMP,	   /* calls left alone: their return probe might kill */
	IGSDK_LOSS_COUNT,
};

/* What the runtime says of a process: value of the `pids` map. */
enum igsdk_pid_flags {
	IGSDK_PID_TRACKED = 1 << 0,
	IGSDK_PID_LATE = 1 << 1,
};

/* What a process was told when it asked which device has an ordinal. */
struct igsdk_device {
	u64 ordinal;
	u32 process; /* number */
	u32 pad;
	u8 uuid[16];
};

/* One file mapping, as the task_vma iterator writes it. */
struct igsdk_mapping {
	u64 start;
	u64 end;
	u64 offset;
	u64 inode; /* of the real file, below overlayfs */
	u32 device;
	u32 pid;
};

/* Which events enter the ring. */
enum igsdk_event_mode {
	IGSDK_EVENTS_NONE,
	IGSDK_EVENTS_FAILURES,
	IGSDK_EVENTS_ALL,
};

/* Hooked calls. The attach cookie is the number; igsdk/_abi.py has the names. */
enum igsdk_call {
	IGSDK_CALL_NONE,
	IGSDK_CALL_MEM_ALLOC,
	IGSDK_CALL_MEM_ALLOC_V1,
	IGSDK_CALL_MEM_ALLOC_PITCH,
	IGSDK_CALL_MEM_ALLOC_PITCH_V1,
	IGSDK_CALL_MEM_ALLOC_MANAGED,
	IGSDK_CALL_MEM_ALLOC_HOST,
	IGSDK_CALL_MEM_ALLOC_HOST_V1,
	IGSDK_CALL_MEM_HOST_ALLOC,
	IGSDK_CALL_MEM_HOST_REGISTER,
	IGSDK_CALL_MEM_HOST_UNREGISTER,
	IGSDK_CALL_MEM_FREE,
	IGSDK_CALL_MEM_FREE_V1,
	IGSDK_CALL_MEM_FREE_HOST,
	IGSDK_CALL_MEM_ALLOC_ASYNC,
	IGSDK_CALL_MEM_ALLOC_FROM_POOL_ASYNC,
	IGSDK_CALL_MEM_FREE_ASYNC,
	IGSDK_CALL_MEM_POOL_CREATE,
	IGSDK_CALL_MEM_POOL_DESTROY,
	IGSDK_CALL_DEVICE_GET_MEM_POOL,
	IGSDK_CALL_MEM_GET_MEM_POOL,
	IGSDK_CALL_MEM_POOL_EXPORT_POINTER,
	IGSDK_CALL_MEM_POOL_IMPORT_POINTER,
	IGSDK_CALL_MEM_CREATE,
	IGSDK_CALL_MEM_RELEASE,
	IGSDK_CALL_MEM_MAP,
	IGSDK_CALL_MEM_UNMAP,
	IGSDK_CALL_MEM_RETAIN_HANDLE,
	IGSDK_CALL_MEM_IMPORT_HANDLE,
	IGSDK_CALL_ARRAY_CREATE,
	IGSDK_CALL_ARRAY_3D_CREATE,
	IGSDK_CALL_MIPMAPPED_ARRAY_CREATE,
	IGSDK_CALL_ARRAY_DESTROY,
	IGSDK_CALL_MIPMAPPED_ARRAY_DESTROY,
	IGSDK_CALL_IPC_GET_MEM_HANDLE,
	IGSDK_CALL_IPC_OPEN_MEM_HANDLE,
	IGSDK_CALL_IPC_CLOSE_MEM_HANDLE,
	IGSDK_CALL_CTX_CREATE,
	IGSDK_CALL_CTX_CREATE_V3,
	IGSDK_CALL_CTX_CREATE_V4,
	IGSDK_CALL_CTX_DESTROY,
	IGSDK_CALL_CTX_SET_CURRENT,
	IGSDK_CALL_CTX_PUSH_CURRENT,
	IGSDK_CALL_CTX_POP_CURRENT,
	IGSDK_CALL_PRIMARY_CTX_RETAIN,
	IGSDK_CALL_PRIMARY_CTX_RELEASE,
	IGSDK_CALL_PRIMARY_CTX_RESET,
	IGSDK_CALL_GRAPH_ADD_MEM_ALLOC_NODE,
	IGSDK_CALL_IMPORT_EXTERNAL_MEMORY,
	IGSDK_CALL_MEM_MAP_ARRAY_ASYNC,
	IGSDK_CALL_ARRAY_CREATE_V1,
	IGSDK_CALL_ARRAY_3D_CREATE_V1,
	IGSDK_CALL_GRAPH_ADD_NODE,
	IGSDK_CALL_GRAPH_ADD_NODE_V2,
	IGSDK_CALL_DEVICE_GET_UUID,
	IGSDK_CALL_COUNT,
};

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rows of the image's data sources. A row stands alone: it names its process, and
 * carries running totals beside the change since the row before it. Whoever reads
 * replaces totals by (boot, epoch, row) and adds nothing up.
 *
 * Numbers and names of the enums are those of abi.h; a reader shows the names.
 */
#ifndef IGSDK_ROWS_H
#define IGSDK_ROWS_H

#include "inspektor.h"
#include "symbols.h"

#define SMALL_ENUM __attribute__((packed))

enum igsdk_memory_kind {
	unknown = IGSDK_KIND_NONE,
	device = IGSDK_KIND_DEVICE,
	managed = IGSDK_KIND_MANAGED,
	pinned = IGSDK_KIND_PINNED,
	registered = IGSDK_KIND_REGISTERED,
	pool = IGSDK_KIND_POOL,
	vmm = IGSDK_KIND_VMM,
	array = IGSDK_KIND_ARRAY,
	imported = IGSDK_KIND_IMPORTED,
} SMALL_ENUM;

enum igsdk_memory_host {
	own = IGSDK_HOST_OWN,
	pinned_host = IGSDK_HOST_PINNED,
	registered_host = IGSDK_HOST_REGISTERED,
	other_process = IGSDK_HOST_IMPORTED,
	anywhere = IGSDK_HOST_MANAGED,
} SMALL_ENUM;

enum igsdk_row_state {
	live = IGSDK_LIVE,
	context_ended = IGSDK_ENDED_CONTEXT,
	process_ended = IGSDK_ENDED_PROCESS,
} SMALL_ENUM;

enum igsdk_stack_state {
	stack_off, /* nobody asked for stacks */
	stack_taken,
	stack_unreadable, /* no frame could be read */
	stack_table_full, /* another stack has its place in ig_ustack */
	stack_none,	  /* the account for what found no account of its own */
} SMALL_ENUM;

enum igsdk_event_type {
	ALLOCATION = IGSDK_RECORD_ALLOC,
	FREE = IGSDK_RECORD_FREE,
	FAILURE = IGSDK_RECORD_FAILURE,
} SMALL_ENUM;

/* The causes of losses by the runtime's names for them. */
enum igsdk_loss_cause {
	lost_events = IGSDK_LOSS_EVENTS,
	lost_captures = IGSDK_LOSS_CAPTURES,
	lost_processes_full = IGSDK_LOSS_PROCESSES_FULL,
	lost_usage_full = IGSDK_LOSS_USAGE_FULL,
	lost_accounts_full = IGSDK_LOSS_ACCOUNTS_FULL,
	lost_live_full = IGSDK_LOSS_LIVE_FULL,
	lost_threads = IGSDK_LOSS_THREADS,
	lost_contexts_full = IGSDK_LOSS_CONTEXTS_FULL,
	lost_read_fault = IGSDK_LOSS_READ_FAULT,
	lost_stack_failed = IGSDK_LOSS_STACK_FAILED,
	lost_nested = IGSDK_LOSS_NESTED,
	lost_abandoned = IGSDK_LOSS_ABANDONED,
	lost_unknown_free = IGSDK_LOSS_UNKNOWN_FREE,
	lost_missed_free = IGSDK_LOSS_MISSED_FREE,
	lost_not_booked_graph = IGSDK_LOSS_NOT_BOOKED_GRAPH,
	lost_not_booked_external = IGSDK_LOSS_NOT_BOOKED_EXTERNAL,
	lost_not_booked_sparse = IGSDK_LOSS_NOT_BOOKED_SPARSE,
	lost_size_unknown = IGSDK_LOSS_SIZE_UNKNOWN,
	lost_format_unknown = IGSDK_LOSS_FORMAT_UNKNOWN,
	lost_unmap_partial = IGSDK_LOSS_UNMAP_PARTIAL,
	lost_seccomp = IGSDK_LOSS_SECCOMP,
	lost_python_fault = IGSDK_LOSS_PYTHON_FAULT,
	lost_stack_bytes = IGSDK_LOSS_STACK_BYTES,
	lost_stack_table = IGSDK_LOSS_STACK_TABLE,
	lost_rows = IGSDK_LOSS_ROWS,
};

/* CUresult, as far as an allocating call may give it. */
enum igsdk_cuda_result {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_MAP_FAILED = 205,
	CUDA_ERROR_ECC_UNCORRECTABLE = 214,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_NOT_PERMITTED = 800,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_SYSTEM_NOT_READY = 802,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_UNKNOWN = 999,
};

/* Bytes and calls; the eight columns of change and of total, in this order. */
struct flows {
	u64 alloc_bytes;
	u64 alloc_calls;
	u64 free_bytes;
	u64 free_calls;
	u64 implicit_free_bytes;
	u64 implicit_free_calls;
	u64 fail_bytes;
	u64 fail_calls;
};

struct heap_key {
	u64 row;
};

/* `heap`: an account that changed, with its stack. */
struct heap_row {
	struct gadget_process proc;
	struct gadget_user_stack ustack_raw;
	u64 boot;
	u64 epoch;
	u64 process;
	u64 stack; /* hash of its addresses, 0 = none */
	gadget_timestamp time_raw;
	gadget_bytes in_use_raw;
	u64 mem_alloc_bytes;
	u64 mem_alloc_calls;
	u64 mem_free_bytes;
	u64 mem_free_calls;
	u64 mem_implicit_free_bytes;
	u64 mem_implicit_free_calls;
	u64 mem_fail_bytes;
	u64 mem_fail_calls;
	u64 total_alloc_bytes;
	u64 total_alloc_calls;
	u64 total_free_bytes;
	u64 total_free_calls;
	u64 total_implicit_free_bytes;
	u64 total_implicit_free_calls;
	u64 total_fail_bytes;
	u64 total_fail_calls;
	u64 untracked_bytes; /* allocated while the live table was full */
	u32 context;	     /* generation, 0 = none */
	s16 device;	     /* ordinal in the process's own view, -1 = unknown */
	enum igsdk_memory_kind kind_raw;
	enum igsdk_memory_host host_raw;
	enum igsdk_stack_state stack_state_raw;
	enum igsdk_row_state state_raw;
	u8 overflow; /* what found no account of its own */
	u8 pad[5];
};

struct process_key {
	u64 row;
};

/* `processes`: process x kind x device, without stacks; exact where stacks are lost. */
struct process_row {
	struct gadget_process proc;
	u64 boot;
	u64 epoch;
	u64 process;
	gadget_timestamp time_raw;
	gadget_timestamp started_raw; /* the process */
	u64 start_ns;		      /* the same; Inspektor Gadget makes wall time of the others */
	gadget_bytes in_use_raw;
	gadget_bytes peak_raw;
	gadget_counter__u64 mem_alloc_bytes;
	gadget_counter__u64 mem_alloc_calls;
	gadget_counter__u64 mem_free_bytes;
	gadget_counter__u64 mem_free_calls;
	gadget_counter__u64 mem_implicit_free_bytes;
	gadget_counter__u64 mem_implicit_free_calls;
	gadget_counter__u64 mem_fail_bytes;
	gadget_counter__u64 mem_fail_calls;
	u64 total_alloc_bytes;
	u64 total_alloc_calls;
	u64 total_free_bytes;
	u64 total_free_calls;
	u64 total_implicit_free_bytes;
	u64 total_implicit_free_calls;
	u64 total_fail_bytes;
	u64 total_fail_calls;
	u64 unknown_frees; /* of the whole process: frees of addresses never seen */
	u64 process_peak;  /* of the whole process, host 0 */
	u64 cgroup_id;
	u32 ns_pid; /* in the process's own PID namespace */
	u32 exec_id;
	s16 device;
	enum igsdk_memory_kind kind_raw;
	enum igsdk_memory_host host_raw;
	enum igsdk_row_state state_raw;
	u8 late; /* may have allocated before the gadget was there */
	u8 pad[2];
};

struct loss_key {
	enum igsdk_loss_cause cause;
	u32 pad;
};

/* `losses`: what could not be seen, booked or told, since the gadget's start. */
struct loss_row {
	u64 boot;
	u64 epoch;
	u64 count;
};

/* `events`: an allocation, a free or a failure. What ends give back is in the totals only. */
struct cuda_event {
	gadget_timestamp time_raw;
	struct gadget_process proc;
	struct gadget_user_stack ustack_raw;
	u64 boot;
	u64 process;
	u64 row; /* of `heap` */
	u64 stack;
	u64 address;
	u64 boot_ns; /* boot clock; Inspektor Gadget makes wall time of time_raw */
	gadget_bytes bytes_raw;
	gadget_bytes in_use_raw; /* of the process, host 0, after the event */
	gadget_duration latency_raw;
	enum igsdk_cuda_result result_raw;
	u32 context;
	s16 device;
	enum igsdk_memory_kind kind_raw;
	enum igsdk_memory_host host_raw;
	enum igsdk_event_type type_raw;
	enum igsdk_api api_raw;
	u8 pad[2];
};

#endif

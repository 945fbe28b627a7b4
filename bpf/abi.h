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
	u8 pad[3];
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
	u8 pad[3];
	u32 sum; /* slot of the sum over contexts, in the image only */
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
 * Records of the `captures` ring. A stack goes up the first time that its process
 * uses it, after what names its Python frames. All begin with size and record.
 */
enum igsdk_capture_record {
	IGSDK_CAPTURE_STACK = 1,
	IGSDK_CAPTURE_CODE,
	IGSDK_CAPTURE_CLASS,
	IGSDK_CAPTURE_LONG_CODE,
};

enum igsdk_capture_flags {
	IGSDK_CAPTURE_NATIVE = 1 << 0,	     /* registers and stack bytes follow */
	IGSDK_CAPTURE_TEMPLATE = 1 << 1,     /* native frames are those of the template */
	IGSDK_CAPTURE_PYTHON = 1 << 2,	     /* an interpreter is known and was asked */
	IGSDK_CAPTURE_PYTHON_CUT = 1 << 3,   /* more than IGSDK_MAX_PYTHON Python frames */
	IGSDK_CAPTURE_PYTHON_FAULT = 1 << 4, /* a structure could not be read: frames end there */
	IGSDK_CAPTURE_NO_ROOM = 1 << 5,	     /* the ring had no room for the stack bytes */
	IGSDK_CAPTURE_STACK_END = 1 << 6,    /* the copy ends where readable memory ends */
};

#define IGSDK_REGISTERS 33 /* DWARF order: x86-64 rax..r15, rip; arm64 x0..x30, sp, pc */
#define IGSDK_MAX_RETURNS 8
#define IGSDK_MAX_PYTHON 1024
#define IGSDK_STACK_BYTES 32768
#define IGSDK_STACK_PAGES 9 /* pages that may hold as many bytes */

/* The key of all stacks that were not taken, since no scratch memory was free. */
#define IGSDK_KEY_BUSY 2

/* The bit that says: this key was made for one call, and no other will have it. */
#define IGSDK_KEY_FRESH (1ULL << 63)

/* Another return probe has put its own address at `where`; `address` stood there. */
struct igsdk_return {
	u64 where;
	u64 address;
};

enum igsdk_python_flags {
	IGSDK_PYTHON_ENTRY = 1 << 0, /* the outermost frame of its interpreter function call */
};

/* One Python frame. Code objects are known by address and `check`: addresses get reused. */
struct igsdk_python_frame {
	u64 code;
	u64 check; /* hash of what the code object points to */
	u64 type;  /* up to 3.10: id of the class of self or cls, 0 = none */
	s32 lasti; /* byte offset of the instruction */
	u32 flags;
};

/*
 * A stack. The fixed part is followed by n_python frames, leaf first, and by
 * stack_bytes bytes of the stack from its pointer upwards.
 */
struct igsdk_capture {
	u32 size; /* of the whole record */
	u32 record;
	u64 process;	 /* instance */
	u64 key;	 /* in the account; means something with its process only */
	u64 template_id; /* with IGSDK_CAPTURE_TEMPLATE */
	u64 place;	 /* where in `templates` one for this stack belongs */
	u32 pid;
	u32 tid;
	u32 flags;
	u32 space; /* generation of the address space */
	u16 n_python;
	u16 n_returns;
	u32 stack_bytes;
	u64 registers[IGSDK_REGISTERS];
	struct igsdk_return returns[IGSDK_MAX_RETURNS];
};

#define IGSDK_NAME_BYTES 256
#define IGSDK_FILE_BYTES 512
#define IGSDK_TABLE_BYTES 2048
/* In the large record, for what does not fit into the other one. */
#define IGSDK_LONG_NAME_BYTES 8192
#define IGSDK_LONG_FILE_BYTES 8192
#define IGSDK_LONG_TABLE_BYTES 32768

/* A string object as CPython keeps it: `length` code points of `kind` bytes each. */
struct igsdk_python_string {
	u64 object; /* address */
	u64 length;
	u32 kind;  /* 1 (Latin-1), 2 or 4; 0 = could not be read */
	u32 taken; /* bytes that follow in the record; fewer than length * kind = the rest is
		      missing */
};

/* A code object, the first time that a frame of it is sent. */
struct igsdk_code_head {
	u32 size;
	u32 record;
	u64 process;
	u64 code;
	u64 check;
	u64 table; /* address of the line table (a bytes object) */
	u64 table_length;
	struct igsdk_python_string name; /* co_qualname where there is one */
	struct igsdk_python_string file;
	u32 pid;
	s32 first_line;
	u32 table_taken;
	u32 version; /* of Python: 0x030d = 3.13 */
};

struct igsdk_code {
	struct igsdk_code_head head;
	u8 name[IGSDK_NAME_BYTES];
	u8 file[IGSDK_FILE_BYTES];
	u8 table[IGSDK_TABLE_BYTES];
};

struct igsdk_long_code {
	struct igsdk_code_head head;
	u8 name[IGSDK_LONG_NAME_BYTES];
	u8 file[IGSDK_LONG_FILE_BYTES];
	u8 table[IGSDK_LONG_TABLE_BYTES];
};

/* The class of a method's first argument, up to Python 3.10. */
struct igsdk_class {
	u32 size;
	u32 record;
	u64 process;
	u64 type;
	u64 name_address;
	u32 pid;
	u32 taken; /* bytes of the name, with its terminator; 0 = could not be read */
	char name[IGSDK_NAME_BYTES];
};

enum igsdk_python_flavour {
	IGSDK_PYTHON_NONE,
	IGSDK_PYTHON_OBJECTS, /* frames are objects: 3.8 to 3.10 */
	IGSDK_PYTHON_CFRAMES, /* interpreter frames behind a cframe: 3.11, 3.12 */
	IGSDK_PYTHON_FRAMES,  /* interpreter frames: from 3.13 on */
};

#define IGSDK_NO_OFFSET 0xffffu /* a member that this version lacks */

/*
 * Where the interpreter of a process keeps what; offsets in bytes, as
 * facts/cpython-frames.md section 2.6 names them.
 */
struct igsdk_python {
	u64 runtime;	 /* address of _PyRuntime in the process */
	u32 flavour;	 /* enum igsdk_python_flavour */
	u16 version;	 /* 0x030d = 3.13 */
	u16 lasti_scale; /* what a unit of f_lasti is in bytes (objects only) */
	u16 interpreters_head;
	u16 tss_key;   /* offset in the runtime of the key itself (autoTSSkey + 4), or none */
	u16 tss_slots; /* from the thread pointer to the first slot; none: not glibc */
	u16 interp_next;
	u16 interp_threads;
	u16 thread_next;
	u16 thread_id;
	u16 thread_native_id; /* compared instead of thread_id where that is none */
	u16 thread_frame;     /* frame, cframe or current_frame */
	u16 cframe_frame;     /* cframes only */
	u16 frame_size;	      /* bytes of a frame to read, at most 128 */
	u16 frame_previous;
	u16 frame_code;
	u16 frame_instruction; /* f_lasti, prev_instr or instr_ptr */
	u16 frame_owner;       /* none for objects */
	u16 frame_is_entry;    /* 3.11 only */
	u16 frame_locals;      /* objects only: f_localsplus */
	u16 owner_shim;	       /* owners from here up are no Python frames; none before 3.12 */
	u16 code_size;	       /* bytes of a code object to read, at most 256 */
	u16 code_argcount;
	u16 code_first_line;
	u16 code_varnames; /* objects only */
	u16 code_file;
	u16 code_name; /* co_qualname where there is one */
	u16 code_table;
	u16 code_start;		  /* co_code_adaptive; none for objects */
	u16 code_first_traceable; /* none for objects */
	u16 object_type;
	u16 tuple_items;
	u16 bytes_size;
	u16 bytes_data;
	u16 type_name;
	u16 type_flags;
	u16 string_length;
	u16 string_state;
	u16 string_ascii_data;
	u16 string_data;       /* compact, not ASCII */
	u16 string_kind_shift; /* the kind is three bits wide */
	u16 string_ascii_bit;
	u16 code_tag;	  /* bits of a code pointer that are no address: 0 or 3 */
	u16 code_version; /* no two code objects of a process have the same, from 3.12 on */
	u16 reserved[3];
};

/* What the runtime knows of a process's address space; value of `spaces` by tgid. */
struct igsdk_space {
	u32 generation; /* goes up when code was mapped over other code */
	u32 tss_key;	/* the kernel's own: of the thread state, plus 1, once it was read */
	struct igsdk_python python;
};

#define IGSDK_TEMPLATE_SLOTS 512
#define IGSDK_TEMPLATE_WAYS 4

/*
 * The place of a verified template: all that a probe can tell of a native stack
 * before it looks at it.
 */
struct igsdk_template_key {
	u64 process;
	u64 place; /* hash of stack pointer, caller and pending return probes */
	u32 space;
	u32 way; /* 0 .. IGSDK_TEMPLATE_WAYS - 1 */
};

/*
 * A native stack that was unwound once: where its return addresses stand. Where all
 * of them stand there again, it is the same stack. `hash` is igsdk_template_hash
 * over the words in the order of `slots`.
 */
struct igsdk_template {
	u64 id; /* unique in a run, below 2^62 */
	u64 hash;
	u32 n_slots;
	u32 bytes;			 /* from the stack pointer to the end of the last slot */
	u16 slots[IGSDK_TEMPLATE_SLOTS]; /* words above the stack pointer */
};

#define IGSDK_TEMPLATE_SEED 0x7e3a9b1d5c2f4861ULL

static inline u64 igsdk_mix(u64 hash, u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 29);
}

/* The key in `sent_stacks` of a stack that has gone up the ring. */
#define IGSDK_SEED_SENT 5

static inline u64 igsdk_sent_mark(u64 process, u64 key)
{
	return igsdk_mix(igsdk_mix(IGSDK_SEED_SENT, process), key);
}

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
	IGSDK_LOSS_STACK_FAILED, /* stacks not taken: no scratch memory was free */
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
	IGSDK_LOSS_PYTHON_FAULT,   /* Python frames that could not be read */
	IGSDK_LOSS_STACK_BYTES,	   /* stacks taken without native frames: captures ring full */
	IGSDK_LOSS_STACK_TABLE,	   /* stacks without a place in ig_ustack, in the image only */
	IGSDK_LOSS_ROWS,	   /* rows that found no room in a drained copy, likewise */
	IGSDK_LOSS_COUNT,
};

/* What the runtime says of a process: value of the `pids` map. */
enum igsdk_pid_flags {
	IGSDK_PID_TRACKED = 1 << 0,
	IGSDK_PID_LATE = 1 << 1,
	IGSDK_PID_BORN = 1 << 2, /* under our eyes: forked or executed; the image's own */
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

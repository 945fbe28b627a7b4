/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What Inspektor Gadget reads in a program: types by their names, maps and variables
 * by theirs, and variables that only mark what is what. Written from the description
 * of its interface; the names are that interface, the rest is ours.
 */
#ifndef IGSDK_INSPEKTOR_H
#define IGSDK_INSPEKTOR_H

#include "abi.h"
#include "kernel.h"

typedef u64 gadget_duration; /* ns */
typedef u64 gadget_counter__u64;
typedef u64 gadget_gauge__u64;
typedef u32 gadget_ppid;
typedef u32 gadget_ptid;
typedef char gadget_pcomm;

struct gadget_creds {
	gadget_uid uid;
	gadget_gid gid;
};

struct gadget_parent {
	gadget_pcomm comm[IGSDK_COMM_LEN];
	gadget_ppid pid;
	gadget_ptid tid;
};

/* A process or thread; its mount namespace leads to the container. */
struct gadget_process {
	gadget_comm comm[IGSDK_COMM_LEN];
	gadget_pid pid;
	gadget_tid tid;
	gadget_mntns_id mntns_id;
	struct gadget_creds creds;
	struct gadget_parent parent;
};

/* A stack in `ig_ustack`, and what is needed to name its addresses later. */
struct gadget_user_stack {
	u32 major; /* of the file that the process runs */
	u32 minor;
	u64 inode; /* 0 = there is no stack */
	u64 mtime_sec;
	u32 mtime_nsec;
	u32 base_addr_hash; /* tells one image of a process from another */
	u32 stack_id;	    /* an error where there is none */
	u32 tgid_level0;
	u32 pid_level0;
	u32 pidns_level0;
	u32 pid_level1;
	u32 pidns_level1;
	u64 otel_correlation_id;
	u64 boot_timestamp;
};

/* A variable whose name tells something; its value is never read. */
#define GADGET_MARK(NAME) const void *NAME __attribute__((unused))
/* Keeps a struct's description in the object. */
#define GADGET_TYPE(NAME, STRUCT) const struct STRUCT *NAME __attribute__((unused))

#define GADGET_PARAM(VARIABLE) GADGET_MARK(gadget_param_##VARIABLE)

#define GADGET_MAPITER(SOURCE, MAP) GADGET_MARK(gadget_mapiter_##SOURCE##___##MAP)

#define GADGET_TRACER(SOURCE, MAP, STRUCT)                          \
	GADGET_MARK(gadget_tracer_##SOURCE##___##MAP##___##STRUCT); \
	GADGET_TYPE(gadget_row_of_##SOURCE, STRUCT)

/* A ring, which becomes a perf buffer where the kernel has no rings; with its losses. */
#define GADGET_TRACER_MAP(MAP, BYTES)                    \
	GADGET_MARK(gadget_map_tracer_##MAP);            \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_RINGBUF);      \
		__uint(max_entries, BYTES);              \
	} MAP SEC(".maps");                              \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); \
		__uint(max_entries, 1);                  \
		__type(key, u32);                        \
		__type(value, u64);                      \
	} MAP##_lost_samples SEC(".maps")

#endif

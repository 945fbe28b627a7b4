/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * All tables, with sizes that the runtime may change before load.
 *
 * Rows live in arrays that user space reads through a mapping, without a system
 * call and without taking anything away; hashes only find the slot of a row.
 * Slot 0 of each array is the row for what found no room.
 */
#ifndef IGSDK_MAPS_H
#define IGSDK_MAPS_H

#include "abi.h"
#include "atomic.h"
#include "kernel.h"
#include "sizes.h"

#define ROWS(NAME, ROW, SIZE)                      \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, SIZE);         \
		__type(key, u32);                  \
		__type(value, ROW);                \
	} NAME SEC(".maps")

#define TABLE(NAME, KEY, VALUE, SIZE)            \
	struct {                                 \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(max_entries, SIZE);       \
		__type(key, KEY);                \
		__type(value, VALUE);            \
	} NAME SEC(".maps")

/* A memory that may forget: what drops out is only told again. */
#define RECENT(NAME, KEY, VALUE, SIZE)               \
	struct {                                     \
		__uint(type, BPF_MAP_TYPE_LRU_HASH); \
		__uint(max_entries, SIZE);           \
		__type(key, KEY);                    \
		__type(value, VALUE);                \
	} NAME SEC(".maps")

#define FREE_SLOTS(NAME, SIZE)                    \
	struct {                                  \
		__uint(type, BPF_MAP_TYPE_STACK); \
		__uint(max_entries, SIZE);        \
		__type(value, u32);               \
	} NAME SEC(".maps")

#define RING(NAME, SIZE)                            \
	struct {                                    \
		__uint(type, BPF_MAP_TYPE_RINGBUF); \
		__uint(max_entries, SIZE);          \
	} NAME SEC(".maps")

/* Which address of which process; `space` keeps handles apart from pointers. */
struct live_key {
	u64 address;
	u32 process; /* number */
	u32 space;
};

enum space {
	SPACE_POINTER = 1,
	SPACE_HOST,
	SPACE_REGISTERED,
	SPACE_VMM_HANDLE,
	SPACE_VMM_MAP,
	SPACE_ARRAY,
	SPACE_MIPMAP,
	/* handles */
	SPACE_CONTEXT,
	SPACE_PRIMARY, /* address is the device ordinal */
	SPACE_POOL,
	SPACE_DEVICE, /* address is the ordinal */
	/* a map that an unmap in flight took out; the thread id stands above */
	SPACE_UNMAPPING,
};

/* A live allocation. It keeps its account: a free is booked there. */
struct live {
	u64 bytes;
	/* vmm handle: references below, maps from bit 32 up; vmm map: the handle */
	u64 references;
	u32 account;
	u32 generation;
};

#define EEXIST 17

#define ONE_REFERENCE 1ULL
#define ONE_MAP (1ULL << 32)

/* What a context, a device's primary context or a pool handle stands for now. */
struct handle {
	u64 context; /* primary: handle of its context */
	u32 generation;
	u32 references;
	s16 device;
	u8 host;
	u8 primary;
	u32 pad;
};

struct uuid {
	u8 bytes[16];
};

ROWS(accounts, struct igsdk_account, ACCOUNTS);
ROWS(usages, struct igsdk_usage, USAGES);
ROWS(processes, struct igsdk_process, PROCESSES);
ROWS(losses, u64, IGSDK_LOSS_COUNT);
TABLE(account_slots, struct igsdk_account_key, u32, ACCOUNTS);
TABLE(usage_slots, struct igsdk_usage_key, u32, USAGES);
TABLE(process_slots, u32, u32, PROCESSES);
FREE_SLOTS(free_accounts, ACCOUNTS);
FREE_SLOTS(free_usages, USAGES);
FREE_SLOTS(free_processes, PROCESSES);
TABLE(live_table, struct live_key, struct live, LIVE_ENTRIES);
TABLE(handles, struct live_key, struct handle, HANDLES);
RECENT(shared_sizes, u64, u64, 4096);
RECENT(sent_stacks, u64, u8, RUNTIME_ENTRIES(65536));
RECENT(device_uuids, struct live_key, struct uuid, 4096);
TABLE(pids, u32, u32, 65536);
RING(events, RUNTIME_BYTES(16 << 20));
RING(captures, RUNTIME_BYTES(16 << 20));

/* The set of mount namespaces to keep; shape and name are Inspektor Gadget's. */
TABLE(gadget_mntns_filter_map, u64, u32, 1024);

/* Slots handed out so far, and the identity of this machine's run. */
u32 next_account = 1;
u32 next_usage = 1;
u32 next_process = 1;
u32 next_number = 1;
u64 epoch;
u64 boot;

static __always_inline void count_loss(u32 cause)
{
	u64 *count = bpf_map_lookup_elem(&losses, &cause);

	if (count)
		__sync_fetch_and_add(count, 1);
}

#endif

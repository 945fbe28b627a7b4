/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * In-flight state of a thread, in task storage: it is found in a few
 * nanoseconds and goes with the thread, whatever way that ends.
 */
#ifndef IGSDK_THREAD_H
#define IGSDK_THREAD_H

#include "journal.h"
#include "regs.h"
#ifdef IGSDK_GADGET
#include "rows.h"
#endif

#define MAX_CONTEXTS 16 /* a power of two; deeper pushes take the places of the first */

/* The context that is current in a thread. */
struct current_context {
	u64 handle;
	u32 generation;
	s16 device;
	u8 primary;
	u8 pad;
};

/* A live entry or handle that a call in flight has taken out of its table. */
struct taken {
	struct live_key key;
	union {
		struct live live;
		struct handle handle;
	};
	u8 found;
	u8 pad[7];
};

#define GADGET_STACK_DEPTH 127

struct thread {
	u64 sp; /* stack pointer at the outermost hooked call, 0 = none in flight */
	u64 entered;
	u64 args[5];
	u64 stack;
	u32 call;
	u32 process; /* slot */
	u32 process_generation;
	u8 known;   /* the process fields are right */
	u8 ignored; /* by a filter */
	u8 pad[2];
	struct taken taken;

	/* the account that was used last */
	struct igsdk_account_key last_key;
	u32 last_account;
	u32 last_generation;

	u32 contexts;	   /* depth of the stack of current contexts */
	u32 contexts_seen; /* the process's count when the top was resolved */
	struct current_context current[MAX_CONTEXTS];

#ifdef IGSDK_GADGET
	u32 noted; /* the call whose probe was hit, for the program that handles all */
	u8 stack_state;
	u8 event_waits; /* an event that only a program with its context can send */
	struct gadget_user_stack ustack;
	struct cuda_event event;
	u64 addresses[GADGET_STACK_DEPTH];
#endif
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline struct thread *thread_find(void)
{
	return bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
}

static __always_inline struct thread *thread_get(void)
{
	struct thread *thread = thread_find();

	if (thread)
		return thread;
	thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0,
				      BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		count_loss(IGSDK_LOSS_THREADS);
	return thread;
}

#endif

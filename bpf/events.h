/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One record per allocation, free and failure, as far as somebody wants them. */
#ifndef IGSDK_EVENTS_H
#define IGSDK_EVENTS_H

#include "account.h"

struct happening {
	u64 address;
	u64 bytes;
	u32 account;
	u32 generation;
	u16 result;
	u8 record;
	u8 call;
};

static __always_inline u32 latency_of(const struct thread *thread, u64 now)
{
	u64 latency = now - thread->entered;

	return latency > 0xffffffffULL ? 0xffffffffU : latency;
}

/* Few events wake the reader at once; a flood of them is drained by the clock. */
static __always_inline u64 wake_up_flags(void)
{
	return events_mode == IGSDK_EVENTS_ALL ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP;
}

static __always_inline void emit(struct thread *thread, const struct happening *what, u64 in_use)
{
	struct igsdk_event *event;
	u64 now;

	if (events_mode == IGSDK_EVENTS_NONE ||
	    (events_mode == IGSDK_EVENTS_FAILURES && what->record != IGSDK_RECORD_FAILURE))
		return;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count_loss(IGSDK_LOSS_EVENTS);
		return;
	}
	now = bpf_ktime_get_boot_ns();
	event->time = now;
	event->address = what->address;
	event->bytes = what->bytes;
	event->in_use = in_use;
	event->account = what->account;
	event->generation = what->generation;
	event->tid = bpf_get_current_pid_tgid();
	event->latency_ns = latency_of(thread, now);
	event->process = thread->process;
	event->result = what->result;
	event->record = what->record;
	event->call = what->call;
	bpf_ringbuf_submit(event, wake_up_flags());
}

/* The end of a context or a process: a reader that replays events must know. */
static __always_inline void emit_end(u8 record, u32 process, u32 generation, u32 context)
{
	struct igsdk_event *event;

	if (events_mode == IGSDK_EVENTS_NONE)
		return;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count_loss(IGSDK_LOSS_EVENTS);
		return;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->time = bpf_ktime_get_boot_ns();
	event->address = context;
	event->account = IGSDK_NO_INDEX;
	event->generation = generation;
	event->process = process;
	event->tid = bpf_get_current_pid_tgid();
	event->record = record;
	bpf_ringbuf_submit(event, wake_up_flags());
}

#endif

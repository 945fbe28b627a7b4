/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One record per allocation, free and failure, as far as somebody wants them. */
#ifndef IGSDK_EVENTS_H
#define IGSDK_EVENTS_H

#include "drain.h"

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

#ifdef IGSDK_GADGET

GADGET_TRACER_MAP(cuda_events, 4 << 20);

static __always_inline bool has_rings(void)
{
	return bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_ringbuf_output) &&
	       !use_perf_buffer;
}

static __always_inline void count_lost_event(void)
{
	u32 zero = 0;
	u64 *lost = bpf_map_lookup_elem(&cuda_events_lost_samples, &zero);

	if (lost)
		__sync_fetch_and_add(lost, 1);
	count_loss(IGSDK_LOSS_EVENTS);
}

/* Perf buffers want the probe's context: there the event waits for the end of its call. */
static __always_inline void event_post(struct thread *thread)
{
	if (has_rings()) {
		if (bpf_ringbuf_output(&cuda_events, &thread->event, sizeof(thread->event), 0))
			count_lost_event();
		return;
	}
	if (thread->event_waits)
		count_lost_event();
	thread->event_waits = true;
}

static __always_inline void event_flush(void *context, struct thread *thread)
{
	if (has_rings() || !thread->event_waits)
		return;
	thread->event_waits = false;
	if (bpf_perf_event_output(context, &cuda_events, BPF_F_CURRENT_CPU, &thread->event,
				  sizeof(thread->event)))
		count_lost_event();
}

/* The thread that calls: its own name and number, in its process's place. */
static __always_inline void describe_thread(struct gadget_process *proc, u32 process)
{
	__builtin_memset(proc, 0, sizeof(*proc));
	describe_process(proc, process);
	proc->tid = bpf_get_current_pid_tgid();
	bpf_get_current_comm(proc->comm, sizeof(proc->comm));
}

static __always_inline bool is_wanted(u8 record)
{
	if (!keep_rows || events_wanted[0] == 'n')
		return false;
	return events_wanted[0] == 'a' || record == IGSDK_RECORD_FAILURE;
}

/* An event that names all that it speaks of, for readers without our tables. */
GLOBAL int event_row(struct thread *thread, const struct happening *what, u64 in_use)
{
	NEED(thread);
	NEED(what);
	struct cuda_event *event = &thread->event;
	struct account_copy *copy = account_copy_at(what->account);
	struct igsdk_account *account = account_at(what->account);

	if (!is_wanted(what->record) || !account || !copy)
		return 0;
	describe_thread(&event->proc, thread->process);
	event->time_raw = event->boot_ns = bpf_ktime_get_boot_ns();
	event->ustack_raw = copy->row.ustack_raw;
	event->boot = boot;
	event->process = account->key.process;
	event->row = row_id(what->account, what->generation);
	event->stack = account->key.stack;
	event->address = what->address;
	event->bytes_raw = what->bytes;
	event->in_use_raw = in_use;
	event->latency_raw = event->time_raw - thread->entered;
	event->result_raw = what->result;
	event->context = account->key.context;
	event->device = account->key.device;
	event->kind_raw = account->key.kind;
	event->host_raw = account->key.host;
	event->type_raw = what->record;
	event->api_raw = what->call;
	event_post(thread);
	return 0;
}

#else

#define event_row(THREAD, WHAT, IN_USE)
#define event_flush(CONTEXT, THREAD)

#endif

static __always_inline void emit(struct thread *thread, const struct happening *what, u64 in_use)
{
	struct igsdk_event *event;
	u64 now;

	event_row(thread, what, in_use);
	if (keep_rows || events_mode == IGSDK_EVENTS_NONE ||
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

	if (keep_rows || events_mode == IGSDK_EVENTS_NONE)
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

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rows for a reader that takes away what it reads, as Inspektor Gadget does with maps:
 * copies of what stays in `accounts` and `sums`. A copy carries running totals, and the
 * change since the copy before it was taken. Only the image has this; elsewhere the
 * reader sees the tables themselves.
 */
#ifndef IGSDK_DRAIN_H
#define IGSDK_DRAIN_H

#include "account.h"

#ifdef IGSDK_GADGET

/* What `heap` says of an account, and what its reader was told already. */
struct account_copy {
	struct heap_row row;
	struct flows base; /* totals before the change that is on its way */
	struct flows sent; /* totals of the copy that is on its way or was taken */
	u64 ended_at;	   /* when a sweep first saw that it has ended */
};

ROWS(account_copies, struct account_copy, ACCOUNTS);
TABLE(heap_rows, struct heap_key, struct heap_row, ACCOUNTS);
TABLE(process_rows, struct process_key, struct process_row, SUMS);
TABLE(loss_rows, struct loss_key, struct loss_row, 64);

/* Until somebody has taken them, changes add up. */
static __always_inline void flows_change(struct flows *change, const struct flows *now,
					 const struct flows *base)
{
	change->alloc_bytes = now->alloc_bytes - base->alloc_bytes;
	change->alloc_calls = now->alloc_calls - base->alloc_calls;
	change->free_bytes = now->free_bytes - base->free_bytes;
	change->free_calls = now->free_calls - base->free_calls;
	change->implicit_free_bytes = now->implicit_free_bytes - base->implicit_free_bytes;
	change->implicit_free_calls = now->implicit_free_calls - base->implicit_free_calls;
	change->fail_bytes = now->fail_bytes - base->fail_bytes;
	change->fail_calls = now->fail_calls - base->fail_calls;
}

static __always_inline u64 flows_in_use(const struct flows *now)
{
	return now->alloc_bytes - now->free_bytes - now->implicit_free_bytes;
}

static __always_inline u64 row_id(u32 slot, u32 generation)
{
	return (u64)generation << 32 | slot;
}

/* The process in Inspektor Gadget's words; its parent is known while it runs itself. */
GLOBAL int describe_process(struct gadget_process *proc, u32 slot)
{
	NEED(proc);
	struct igsdk_process *process = process_at(slot);
	struct task_struct *parent;

	if (!process)
		return 0;
	__builtin_memcpy(proc->comm, process->comm, sizeof(proc->comm));
	proc->pid = proc->tid = process->pid;
	proc->mntns_id = process->mntns_id;
	proc->creds.uid = process->uid;
	proc->creds.gid = process->gid;
	if (bpf_get_current_pid_tgid() >> 32 != process->pid)
		return 0;
	parent = BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), real_parent);
	proc->parent.pid = BPF_CORE_READ(parent, tgid);
	proc->parent.tid = BPF_CORE_READ(parent, pid);
	bpf_core_read(proc->parent.comm, sizeof(proc->parent.comm), &parent->comm);
	return 0;
}

static __always_inline void describe_account(struct heap_row *row, struct igsdk_account *account)
{
	describe_process(&row->proc, account->process);
	row->boot = boot;
	row->epoch = epoch;
	row->process = account->key.process;
	row->stack = account->key.stack;
	row->context = account->key.context;
	row->device = account->key.device;
	row->kind_raw = account->key.kind;
	row->host_raw = account->key.host;
	row->overflow = account->overflow;
	if (account->overflow)
		row->stack_state_raw = stack_none;
}

static __always_inline u8 account_state(const struct igsdk_account *account)
{
	struct igsdk_usage *usage = usage_at(account->usage);
	struct igsdk_process *process = process_at(account->process);

	/* What a context gave back its process did not hold when it ended. */
	if (usage && usage->ended)
		return usage->ended;
	return process && process->ended ? IGSDK_ENDED_PROCESS : IGSDK_LIVE;
}

/* What no call freed of an account that has ended counts as given back. */
static __always_inline void account_flows(const struct igsdk_account *account, u8 state,
					  struct flows *now)
{
	now->alloc_bytes = account->totals.alloc_bytes;
	now->alloc_calls = account->totals.alloc_calls;
	now->free_bytes = account->totals.free_bytes;
	now->free_calls = account->totals.free_calls;
	now->fail_bytes = account->totals.fail_bytes;
	now->fail_calls = account->totals.fail_calls;
	if (state == IGSDK_LIVE)
		return;
	now->implicit_free_bytes = now->alloc_bytes - now->free_bytes;
	now->implicit_free_calls = now->alloc_calls - now->free_calls;
}

static __always_inline struct account_copy *account_copy_at(u32 slot)
{
	return bpf_map_lookup_elem(&account_copies, &slot);
}

/* The account's row as it is now, for whoever reads next. */
GLOBAL int account_send(u32 slot)
{
	struct igsdk_account *account = account_at(slot);
	struct account_copy *copy = account_copy_at(slot);
	struct flows now = {};
	struct heap_key key;

	if (!account || !copy)
		return 0;
	if (!copy->row.epoch)
		describe_account(&copy->row, account);
	copy->row.state_raw = account_state(account);
	account_flows(account, copy->row.state_raw, &now);
	key.row = row_id(slot, account->generation);
	if (!bpf_map_lookup_elem(&heap_rows, &key))
		copy->base = copy->sent;
	flows_change((struct flows *)&copy->row.mem_alloc_bytes, &now, &copy->base);
	*(struct flows *)&copy->row.total_alloc_bytes = now;
	copy->row.in_use_raw = flows_in_use(&now);
	copy->row.untracked_bytes = account->untracked_bytes;
	copy->row.time_raw = bpf_ktime_get_boot_ns();
	if (bpf_map_update_elem(&heap_rows, &key, &copy->row, BPF_ANY))
		count_loss(IGSDK_LOSS_ROWS);
	else
		copy->sent = now;
	return 0;
}

static __always_inline void describe_sum(struct process_row *row, const struct igsdk_process *of,
					 u32 process)
{
	describe_process(&row->proc, process);
	row->boot = boot;
	row->epoch = epoch;
	row->started_raw = row->start_ns = of->start_ns;
	row->cgroup_id = of->cgroup_id;
	row->ns_pid = of->ns_pid;
	row->exec_id = of->exec_id;
	row->late = of->late;
}

GLOBAL int sum_send(u32 slot)
{
	struct sum *sum = sum_at(slot);
	struct igsdk_process *process = sum ? process_at(sum->process) : NULL;
	struct process_key key;
	struct flows now;

	if (!process)
		return 0;
	if (!sum->row.epoch)
		describe_sum(&sum->row, process, sum->process);
	now = *(struct flows *)&sum->row.total_alloc_bytes;
	key.row = row_id(slot, sum->generation);
	if (!bpf_map_lookup_elem(&process_rows, &key))
		sum->base = sum->sent;
	flows_change((struct flows *)&sum->row.mem_alloc_bytes, &now, &sum->base);
	sum->row.unknown_frees = process->unknown_frees;
	sum->row.process_peak = process->peak;
	sum->row.state_raw = process->ended;
	sum->row.time_raw = bpf_ktime_get_boot_ns();
	if (bpf_map_update_elem(&process_rows, &key, &sum->row, BPF_ANY))
		count_loss(IGSDK_LOSS_ROWS);
	else
		sum->sent = now;
	return 0;
}

static __always_inline void sum_give_back(struct process_row *row, u64 bytes, u64 calls)
{
	__sync_fetch_and_add(&row->total_implicit_free_bytes, bytes);
	__sync_fetch_and_add(&row->total_implicit_free_calls, calls);
}

/* An allocation, or with negative bytes a free; late: its context had ended already. */
GLOBAL int sum_move(u32 slot, u64 bytes, u32 late)
{
	struct sum *sum = sum_at(slot);
	bool allocated = (s64)bytes >= 0;
	struct process_row *row;
	u64 in_use;

	if (!sum)
		return 0;
	row = &sum->row;
	if (allocated) {
		__sync_fetch_and_add(&row->total_alloc_bytes, bytes);
		__sync_fetch_and_add(&row->total_alloc_calls, 1);
	} else {
		__sync_fetch_and_add(&row->total_free_bytes, -bytes);
		__sync_fetch_and_add(&row->total_free_calls, 1);
	}
	if (late) {
		sum_give_back(row, bytes, allocated ? 1 : -1);
		return 0;
	}
	in_use = __sync_fetch_and_add(&row->in_use_raw, bytes) + bytes;
	if (allocated)
		peak_raise(&row->peak_raw, in_use);
	return 0;
}

static __always_inline u64 outstanding(const struct igsdk_totals *totals)
{
	return totals->alloc_calls - totals->free_calls;
}

static __always_inline void drain_usage_end(const struct igsdk_usage *usage, u64 rest)
{
	struct sum *sum = keep_rows ? sum_at(usage->sum) : NULL;

	if (!sum)
		return;
	__sync_fetch_and_add(&sum->row.in_use_raw, -rest);
	sum_give_back(&sum->row, rest, outstanding(&usage->totals));
	sum_send(usage->sum);
}

static __always_inline void drain_moved(const struct igsdk_usage *usage, u64 bytes, bool late)
{
	if (keep_rows)
		sum_move(usage->sum, bytes, late);
}

/* A booking is complete: both rows that it changed are told. */
static __always_inline void drain_booked(u32 slot, const struct igsdk_usage *usage)
{
	if (!keep_rows)
		return;
	account_send(slot);
	sum_send(usage->sum);
}

static __always_inline void drain_failed(u32 slot, const struct igsdk_usage *usage, u64 bytes)
{
	struct sum *sum = keep_rows ? sum_at(usage->sum) : NULL;

	if (!sum)
		return;
	__sync_fetch_and_add(&sum->row.total_fail_bytes, bytes);
	__sync_fetch_and_add(&sum->row.total_fail_calls, 1);
	drain_booked(slot, usage);
}

static long give_back_usage(u32 index, void *data)
{
	u32 *at = data;
	struct igsdk_usage *usage = usage_at(*at);

	if (!usage) /* IGSDK_NO_INDEX is none either */
		return 1;
	*at = usage->next;
	if (!usage->ended)
		drain_usage_end(usage, usage->in_use);
	return 0;
}

/* All that an ended process held comes back at once here; its accounts follow. */
static __always_inline void drain_process_end(const struct igsdk_process *process)
{
	u32 at = process->usages;

	if (keep_rows)
		bpf_loop(usages_max, give_back_usage, &at, 0);
}

/* The stack of an allocating call, as Inspektor Gadget will look it up. */
static __always_inline void drain_stack(u32 slot, const struct thread *thread)
{
	struct account_copy *copy = keep_rows ? account_copy_at(slot) : NULL;

	if (!copy || copy->row.stack_state_raw == stack_none)
		return;
	copy->row.ustack_raw = thread->ustack;
	copy->row.stack_state_raw = thread->stack_state;
}

#else

#define drain_usage_end(USAGE, REST)
#define drain_moved(USAGE, BYTES, LATE)
#define drain_booked(SLOT, USAGE)
#define drain_failed(SLOT, USAGE, BYTES)
#define drain_process_end(PROCESS)
#define drain_stack(SLOT, THREAD)

#endif

#endif

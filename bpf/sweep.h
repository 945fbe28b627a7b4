/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What must happen although no call does it: rows are told again, so that whoever
 * missed one has it soon; what has ended is told for a while and then let go. In small
 * steps, since this runs in a timer's interrupt.
 */
#ifndef IGSDK_SWEEP_H
#define IGSDK_SWEEP_H

#include "drain.h"
#include "journal.h"

#define TICK_NS 200000000ULL /* of every CPU's timer one is enough */
#define ACCOUNTS_A_TICK 256  /* all of 16,384 in 16 s at four ticks a second */
#define SUMS_A_TICK 128
#define PROCESSES_A_TICK 64
#define USAGES_A_TICK 128
#define JOURNAL_A_TICK 2048
#define RESEND_NS (resend_ms * 1000000ULL)
#define USAGES_OF_ONE 1024 /* rows of one process that are let go in one step */
/* Accounts go first, then what they point at. */
#define KEEP_ENDED_NS (keep_ended_ms * 1000000ULL)
#define KEEP_OWNERS_NS (KEEP_ENDED_NS + KEEP_ENDED_NS / 2 + 20000000000ULL)

u64 last_tick;
u32 account_cursor, sum_cursor, usage_cursor, process_cursor, journal_cursor;
u64 now_sweeping; /* boot clock of the tick that runs */

static __always_inline u32 step(u32 *cursor, u32 end)
{
	u32 at = *cursor + 1;

	if (at >= end)
		at = 1; /* 0 is the global row, which never ends */
	*cursor = at;
	return at;
}

static __always_inline void account_release(u32 slot, struct igsdk_account *account,
					    struct account_copy *copy)
{
	struct igsdk_account_key key = account->key;

	bpf_map_delete_elem(&account_slots, &key);
	account->generation++;
	__builtin_memset(copy, 0, sizeof(*copy));
	bpf_map_push_elem(&free_accounts, &slot, 0);
}

/* The accounts for what finds no room are set aside early, and most are never used. */
static __always_inline bool is_used(const struct igsdk_account *account)
{
	return account->totals.alloc_calls || account->totals.fail_calls;
}

/* A call tells of its change itself; ends, and rows that somebody may have missed, are told here.
 */
#define is_due(ROW, STATE) \
	((ROW)->state_raw != (STATE) || now_sweeping - (ROW)->time_raw > RESEND_NS)

static long resend_account(u32 index, void *data)
{
	u32 slot = step(&account_cursor, next_account < accounts_max ? next_account : accounts_max);
	struct igsdk_account *account = account_at(slot);
	struct account_copy *copy = account_copy_at(slot);

	if (index >= next_account)
		return 1;
	if (!account || !copy || !(account->generation & 1))
		return 0;
	if (is_used(account) && is_due(&copy->row, account_state(account)))
		account_send(slot);
	if (account_state(account) == IGSDK_LIVE)
		return 0;
	if (!copy->ended_at)
		copy->ended_at = now_sweeping;
	else if (now_sweeping - copy->ended_at > KEEP_ENDED_NS)
		account_release(slot, account, copy);
	return 0;
}

static long resend_sum(u32 index, void *data)
{
	u32 slot = step(&sum_cursor, next_sum < SUMS ? next_sum : SUMS);
	struct sum *sum = sum_at(slot);
	struct igsdk_process *process = sum ? process_at(sum->process) : NULL;

	if (index >= next_sum)
		return 1;
	if (process && sum->generation & 1 && is_due(&sum->row, process->ended))
		sum_send(slot);
	return 0;
}

/*
 * Several usages have one sum: the first of them lets it go, and from then on it may be
 * another process's.
 */
static __always_inline void sum_release(const struct igsdk_usage *usage)
{
	u32 slot = usage->sum;
	struct sum *sum = sum_at(slot);
	struct sum_key key = {};

	if (!slot || !sum || !(sum->generation & 1) || sum->row.process != usage->key.process)
		return;
	key.process = sum->row.process;
	key.kind = sum->row.kind_raw;
	key.host = sum->row.host_raw;
	key.device = sum->row.device;
	bpf_map_delete_elem(&sum_slots, &key);
	sum->generation++;
	bpf_map_push_elem(&free_sums, &slot, 0);
}

static __always_inline void usage_release(u32 slot, struct igsdk_usage *usage)
{
	struct igsdk_usage_key key = usage->key;

	bpf_map_delete_elem(&usage_slots, &key);
	usage->generation++;
	bpf_map_push_elem(&free_usages, &slot, 0);
}

/* Of a process that goes on: by now no account points at what its ended contexts left. */
static long offer_usage(u32 index, void *data)
{
	u32 slot = step(&usage_cursor, next_usage < usages_max ? next_usage : usages_max);
	struct igsdk_usage *usage = usage_at(slot);
	struct igsdk_process *process = usage ? process_at(usage->process) : NULL;
	struct igsdk_usage_key key;

	if (index >= next_usage)
		return 1;
	if (!process || !(usage->generation & 1) || !usage->ended || process->ended ||
	    now_sweeping - usage->ended_at < KEEP_OWNERS_NS)
		return 0;
	key = usage->key;
	bpf_map_delete_elem(&usage_slots, &key);
	usage_offer(usage, slot);
	return 0;
}

static long release_usage(u32 index, void *data)
{
	u32 *at = data, slot = *at;
	struct igsdk_usage *usage = usage_at(slot);

	if (slot == IGSDK_NO_INDEX || !slot || !usage)
		return 1;
	*at = usage->next;
	sum_release(usage);
	usage_release(slot, usage);
	return 0;
}

static __always_inline void process_release(u32 slot, struct igsdk_process *process)
{
	u32 at = process->usages;
	u64 instance = process->instance;

	bpf_map_delete_elem(&reusable_usages, &instance);
	bpf_loop(USAGES_OF_ONE, release_usage, &at, 0);
	process->usages = at;
	if (at != IGSDK_NO_INDEX)
		return; /* the rest another time */
	process->generation++;
	bpf_map_push_elem(&free_processes, &slot, 0);
}

static long sweep_process(u32 index, void *data)
{
	u32 slot =
		step(&process_cursor, next_process < processes_max ? next_process : processes_max);
	struct igsdk_process *process = process_at(slot);

	if (index >= next_process)
		return 1;
	if (!process || !(process->generation & 1) || !process->ended ||
	    now_sweeping - process->ended_at < KEEP_OWNERS_NS)
		return 0;
	process_release(slot, process);
	return 0;
}

/* Nothing can match it any more: its process or its context is gone. */
static __always_inline bool outlived(const struct live_key *key, const struct live *live)
{
	u32 number = key->process;
	struct igsdk_account *account;
	struct igsdk_usage *usage;

	if (!bpf_map_lookup_elem(&numbers, &number))
		return true;
	account = account_at(live->account);
	usage = account ? usage_at(account->usage) : NULL;
	return usage && (account->generation != live->generation || usage->ended);
}

static __always_inline void sweep_handle(struct live_key *key)
{
	u32 number = key->process;

	if (!bpf_map_lookup_elem(&numbers, &number))
		bpf_map_delete_elem(&handles, key);
}

static long sweep_journal(u32 index, void *data)
{
	u32 at = journal_cursor & (JOURNAL - 1);
	struct live_key *place = bpf_map_lookup_elem(&live_keys, &at), key;
	struct live *live;

	journal_cursor++;
	if (!place)
		return 0;
	if (!place->space) { /* places are filled in order: behind an empty one there is nothing */
		journal_cursor = 0;
		return 1;
	}
	key = *place;
	if (is_handle(&key)) {
		sweep_handle(&key);
		return 0;
	}
	live = bpf_map_lookup_elem(&live_table, &key);
	if (live && outlived(&key, live))
		bpf_map_delete_elem(&live_table, &key);
	return 0;
}

static long send_loss(u32 cause, void *data)
{
	u64 *count = bpf_map_lookup_elem(&losses, &cause);
	struct loss_key key = {.cause = cause};
	struct loss_row row = {.boot = boot, .epoch = epoch};

	if (!count || !*count)
		return 0;
	row.count = *count;
	bpf_map_update_elem(&loss_rows, &key, &row, BPF_ANY);
	return 0;
}

static __always_inline void sweep(void)
{
	u64 now = bpf_ktime_get_boot_ns(), last = last_tick;

	if (!epoch || now - last < TICK_NS ||
	    __sync_val_compare_and_swap(&last_tick, last, now) != last)
		return;
	now_sweeping = now;
	bpf_loop(ACCOUNTS_A_TICK, resend_account, NULL, 0);
	bpf_loop(SUMS_A_TICK, resend_sum, NULL, 0);
	bpf_loop(USAGES_A_TICK, offer_usage, NULL, 0);
	bpf_loop(PROCESSES_A_TICK, sweep_process, NULL, 0);
	bpf_loop(JOURNAL_A_TICK, sweep_journal, NULL, 0);
	bpf_loop(IGSDK_LOSS_COUNT, send_loss, NULL, 0);
}

#endif

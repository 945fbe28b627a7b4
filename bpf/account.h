/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finding and making the rows where bytes are booked. */
#ifndef IGSDK_ACCOUNT_H
#define IGSDK_ACCOUNT_H

#include "sums.h"

#define LINK_TRIES 16
#define PEAK_TRIES 8

static __always_inline void peak_raise(u64 *peak, u64 value)
{
	for (int i = 0; i < PEAK_TRIES; i++) {
		u64 seen = *peak;

		if (value <= seen || __sync_val_compare_and_swap(peak, seen, value) == seen)
			return;
	}
}

static __always_inline struct igsdk_account *account_at(u32 slot)
{
	return bpf_map_lookup_elem(&accounts, &slot);
}

static __always_inline struct igsdk_usage *usage_at(u32 slot)
{
	return bpf_map_lookup_elem(&usages, &slot);
}

/* Puts a usage row at the head of its process's list, without a lock. */
static __always_inline void usage_link(struct igsdk_process *process, struct igsdk_usage *usage,
				       u32 slot)
{
	for (int i = 0; i < LINK_TRIES; i++) {
		u32 head = process->usages;

		usage->next = head;
		if (swap_if(&process->usages, head, slot) == head)
			return;
	}
	count_loss(IGSDK_LOSS_USAGE_FULL);
}

/* All but `next`: a row that is used again stays in its process's list. */
static __always_inline void usage_fill(struct igsdk_usage *row, const struct igsdk_usage_key *key,
				       u32 process)
{
	__builtin_memset(&row->totals, 0, sizeof(row->totals));
	row->in_use = 0;
	row->ended = IGSDK_LIVE;
	barrier(); /* a sweep must not see a row that ended at the beginning of time */
	row->ended_at = 0;
	row->overflow = 0;
	row->key = *key;
	row->process = process;
	row->sum = sum_slot(key, process);
}

#ifdef IGSDK_GADGET

/* By process: one row of a context that ended long ago, which a new one may have. */
TABLE(reusable_usages, u64, u32, PROCESSES);

static __always_inline u32 usage_again(u64 process)
{
	u32 *found = bpf_map_lookup_elem(&reusable_usages, &process), slot;

	if (!found)
		return 0;
	slot = *found;
	return bpf_map_delete_elem(&reusable_usages, &process) ? 0 : slot;
}

/*
 * Whoever takes the row needs a moment until it is his: the time of its end starts
 * anew, lest a sweep offers it again meanwhile.
 */
static __always_inline void usage_offer(struct igsdk_usage *row, u32 slot)
{
	u64 process = row->key.process;

	if (!bpf_map_update_elem(&reusable_usages, &process, &slot, BPF_NOEXIST))
		row->ended_at = bpf_ktime_get_boot_ns();
}

#else

#define usage_again(PROCESS) 0
#define usage_offer(ROW, SLOT)

#endif

static __always_inline void usage_put_back(struct igsdk_usage *row, u32 slot, bool again)
{
	if (again) {
		row->ended = IGSDK_ENDED_CONTEXT;
		usage_offer(row, slot);
		return;
	}
	row->generation++;
	bpf_map_push_elem(&free_usages, &slot, 0);
}

GLOBAL u32 usage_slot(const struct igsdk_usage_key *wanted, u32 process)
{
	NEED(wanted);
	struct igsdk_usage_key key = *wanted;
	struct igsdk_process *owner = process_at(process);
	struct igsdk_usage *row;
	u32 *found, slot, again;

	found = bpf_map_lookup_elem(&usage_slots, &key);
	if (found)
		return *found;
	again = usage_again(key.process);
	slot = again ? again : slot_take(&free_usages, &next_usage, usages_max);
	row = usage_at(slot);
	if (!slot || !row || !owner) {
		count_loss(IGSDK_LOSS_USAGE_FULL);
		return 0;
	}
	usage_fill(row, &key, process);
	if (!again)
		row->generation++;
	if (!bpf_map_update_elem(&usage_slots, &key, &slot, BPF_NOEXIST)) {
		if (!again)
			usage_link(owner, row, slot);
		return slot;
	}
	usage_put_back(row, slot, again);
	found = bpf_map_lookup_elem(&usage_slots, &key);
	return found ? *found : 0;
}

static __always_inline void account_fill(struct igsdk_account *row,
					 const struct igsdk_account_key *key, u32 usage,
					 u32 process)
{
	u32 generation = row->generation;

	__builtin_memset(row, 0, sizeof(*row));
	row->key = *key;
	row->usage = usage;
	row->process = process;
	row->generation = generation + 1;
}

/*
 * The account for what finds no room of its own. Its slot is set aside with the
 * first allocation of a usage row, while there is still room.
 */
static __always_inline u32 overflow_slot(struct igsdk_usage *usage, u32 usage_index,
					 const struct igsdk_account_key *key, u32 process)
{
	struct igsdk_account_key nameless = *key;
	struct igsdk_account *row;
	u32 slot = usage->overflow;

	if (slot)
		return slot;
	slot = slot_take(&free_accounts, &next_account, accounts_max);
	row = account_at(slot);
	if (!slot || !row)
		return 0;
	nameless.stack = 0;
	account_fill(row, &nameless, usage_index, process);
	row->overflow = true;
	if (!swap_if(&usage->overflow, 0, slot))
		return slot;
	row->generation++;
	bpf_map_push_elem(&free_accounts, &slot, 0);
	return usage->overflow;
}

GLOBAL u32 account_create(const struct igsdk_account_key *wanted, u32 process)
{
	NEED(wanted);
	struct igsdk_account_key key = *wanted;
	struct igsdk_usage_key usage_key = {
		.process = key.process,
		.context = key.context,
		.kind = key.kind,
		.host = key.host,
		.device = key.device,
	};
	u32 usage_index = usage_slot(&usage_key, process);
	struct igsdk_usage *usage = usage_at(usage_index);
	struct igsdk_account *row;
	u32 overflow, slot, *other;

	if (!usage || !usage_index)
		return 0;
	overflow = overflow_slot(usage, usage_index, &key, process);
	slot = slot_take(&free_accounts, &next_account, accounts_max);
	row = account_at(slot);
	if (!slot || !row) {
		count_loss(IGSDK_LOSS_ACCOUNTS_FULL);
		return overflow;
	}
	account_fill(row, &key, usage_index, process);
	if (!bpf_map_update_elem(&account_slots, &key, &slot, BPF_NOEXIST))
		return slot;
	row->generation++;
	bpf_map_push_elem(&free_accounts, &slot, 0);
	other = bpf_map_lookup_elem(&account_slots, &key);
	return other ? *other : overflow;
}

static __always_inline bool key_is_last(const struct thread *thread,
					const struct igsdk_account_key *key)
{
	const u64 *a = (const u64 *)&thread->last_key, *b = (const u64 *)key;

	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

/* The slot of the account with this key; 0, the global row, at worst. */
static __always_inline u32 account_slot(struct thread *thread, const struct igsdk_account_key *key)
{
	struct igsdk_account *row;
	u32 *found, slot;

	if (key_is_last(thread, key)) {
		row = account_at(thread->last_account);
		if (row && row->generation == thread->last_generation)
			return thread->last_account;
	}
	found = bpf_map_lookup_elem(&account_slots, key);
	slot = found ? *found : account_create(key, thread->process);
	row = account_at(slot);
	if (row && slot && !row->overflow) {
		thread->last_key = *key;
		thread->last_account = slot;
		thread->last_generation = row->generation;
	}
	return slot;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Booking: what an allocation, a free and a failure do to the rows. */
#ifndef IGSDK_BOOK_H
#define IGSDK_BOOK_H

#include "drain.h"
#include "events.h"
#include "stack.h"

#define NO_DEVICE -1

/* What an allocating call asked for. */
struct claim {
	u64 address;
	u64 bytes;
	u32 context;
	u32 space;
	u8 kind;
	u8 host;
	s16 device;
};

/* Bytes of a process's own device memory after a change; peak included. */
static __always_inline u64 process_add(struct igsdk_process *process, u8 host, u64 bytes)
{
	u64 now;

	if (!process)
		return 0;
	if (host != IGSDK_HOST_OWN)
		return process->in_use;
	now = __sync_fetch_and_add(&process->in_use, bytes) + bytes;
	if ((s64)bytes > 0)
		peak_raise(&process->peak, now);
	return now;
}

static __always_inline void add_alloc(struct igsdk_totals *totals, u64 bytes)
{
	__sync_fetch_and_add(&totals->alloc_bytes, bytes);
	__sync_fetch_and_add(&totals->alloc_calls, 1);
}

static __always_inline void add_free(struct igsdk_totals *totals, u64 bytes)
{
	__sync_fetch_and_add(&totals->free_bytes, bytes);
	__sync_fetch_and_add(&totals->free_calls, 1);
}

static __always_inline void add_failure(struct igsdk_totals *totals, u64 bytes)
{
	__sync_fetch_and_add(&totals->fail_bytes, bytes);
	__sync_fetch_and_add(&totals->fail_calls, 1);
}

/*
 * Adds to the usage row and, unless its context is gone, to the process. The
 * bit that says so sits in the counter itself: whoever comes after the end
 * sees it in the same atomic step.
 */
static __always_inline u64 usage_move(struct igsdk_usage *usage, u64 bytes)
{
	struct igsdk_process *process = process_at(usage->process);
	u64 before = __sync_fetch_and_add(&usage->in_use, bytes);

	drain_moved(usage, bytes, before & IGSDK_USAGE_ENDED);
	if (before & IGSDK_USAGE_ENDED)
		return process ? process->in_use : 0;
	return process_add(process, usage->key.host, bytes);
}

static __always_inline u32 claim_account(struct thread *thread, const struct claim *claim)
{
	struct igsdk_process *process = process_at(thread->process);
	struct igsdk_account_key key = {
		.process = process ? process->instance : 0,
		.stack = thread->stack,
		.context = claim->context,
		.kind = claim->kind,
		.host = claim->host,
		.device = claim->device,
	};

	return account_slot(thread, &key);
}

/* A free that we did not see: the driver has handed the address out again. */
GLOBAL int book_missed_free(const struct live_key *taken)
{
	NEED(taken);
	struct live_key key = *taken;
	struct live *old = bpf_map_lookup_elem(&live_table, &key);
	struct igsdk_account *account;
	struct igsdk_usage *usage;
	struct live copy;

	if (!old)
		return 0;
	copy = *old;
	if (bpf_map_delete_elem(&live_table, &key))
		return 0;
	account = account_at(copy.account);
	usage = account ? usage_at(account->usage) : NULL;
	if (!account || !usage || account->generation != copy.generation || usage->ended)
		return 0;
	count_loss(IGSDK_LOSS_MISSED_FREE);
	add_free(&account->totals, copy.bytes);
	add_free(&usage->totals, copy.bytes);
	usage_move(usage, -copy.bytes);
	drain_booked(copy.account, usage);
	return 0;
}

static __always_inline int live_insert(struct live_key *key, struct live *entry)
{
	int error = live_store(key, entry, BPF_NOEXIST);

	if (error != -EEXIST)
		return error;
	book_missed_free(key);
	return live_store(key, entry, BPF_ANY);
}

/* Books an allocation to an account that is known already, and tells of it. */
static __always_inline void book_to(struct thread *thread, u32 slot, u64 address, u64 bytes)
{
	struct igsdk_account *account = account_at(slot);
	struct igsdk_usage *usage = account ? usage_at(account->usage) : NULL;
	struct happening what = {
		.address = address,
		.bytes = bytes,
		.account = slot,
		.record = IGSDK_RECORD_ALLOC,
		.call = thread->call,
	};
	u64 in_use;

	if (!account || !usage)
		return;
	what.generation = account->generation;
	add_alloc(&account->totals, bytes);
	add_alloc(&usage->totals, bytes);
	in_use = usage_move(usage, bytes);
	drain_stack(slot, thread);
	drain_booked(slot, usage);
	emit(thread, &what, in_use);
}

GLOBAL int book_alloc(struct thread *thread, struct claim *claim)
{
	NEED(thread);
	NEED(claim);
	u32 slot = claim_account(thread, claim);
	struct igsdk_account *account = account_at(slot);
	struct igsdk_process *process = process_at(thread->process);
	struct live_key key = {
		.address = claim->address,
		.process = process ? process->number : 0,
		.space = claim->space,
	};
	struct live entry = {.bytes = claim->bytes, .account = slot};

	if (!account)
		return 0;
	entry.generation = account->generation;
	entry.references = claim->space == SPACE_VMM_HANDLE ? ONE_REFERENCE : 0;
	if (live_insert(&key, &entry)) {
		count_loss(IGSDK_LOSS_LIVE_FULL);
		__sync_fetch_and_add(&account->untracked_bytes, claim->bytes);
	}
	book_to(thread, slot, claim->address, claim->bytes);
	return 0;
}

GLOBAL int book_failure(struct thread *thread, struct claim *claim, u32 result)
{
	NEED(thread);
	NEED(claim);
	u32 slot = claim_account(thread, claim);
	struct igsdk_account *account = account_at(slot);
	struct igsdk_usage *usage = account ? usage_at(account->usage) : NULL;
	struct igsdk_process *process = process_at(thread->process);
	struct happening what = {
		.bytes = claim->bytes,
		.account = slot,
		.result = result,
		.record = IGSDK_RECORD_FAILURE,
		.call = thread->call,
	};

	if (!account || !usage || !process)
		return 0;
	what.generation = account->generation;
	add_failure(&account->totals, claim->bytes);
	add_failure(&usage->totals, claim->bytes);
	drain_stack(slot, thread);
	drain_failed(slot, usage, claim->bytes);
	emit(thread, &what, process->in_use);
	return 0;
}

/* Books the free of an entry that was taken out of the live table. */
GLOBAL int book_free(struct thread *thread, struct live *entry, u64 address)
{
	NEED(thread);
	NEED(entry);
	struct igsdk_account *account = account_at(entry->account);
	struct igsdk_usage *usage = account ? usage_at(account->usage) : NULL;
	struct happening what = {
		.address = address,
		.bytes = entry->bytes,
		.account = entry->account,
		.generation = entry->generation,
		.record = IGSDK_RECORD_FREE,
		.call = thread->call,
	};
	u64 in_use;

	if (!account || !usage || account->generation != entry->generation)
		return 0;
	add_free(&account->totals, entry->bytes);
	add_free(&usage->totals, entry->bytes);
	in_use = usage_move(usage, -entry->bytes);
	drain_booked(entry->account, usage);
	emit(thread, &what, in_use);
	return 0;
}

#endif

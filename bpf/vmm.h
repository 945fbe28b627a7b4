/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Virtual memory management. Bytes come with cuMemCreate and go when the last
 * reference and the last map are gone, whichever call that is.
 */
#ifndef IGSDK_VMM_H
#define IGSDK_VMM_H

#include "memory.h"

#define PROP_LOCATION 8 /* offset in CUmemAllocationProp */
#define MAX_MAPS_PER_UNMAP 4096

GLOBAL int vmm_created(struct thread *thread, u32 result)
{
	NEED(thread);
	struct claim claim = {
		.bytes = thread->args[1],
		.kind = IGSDK_KIND_VMM,
		.space = SPACE_VMM_HANDLE,
	};
	struct location location = {};

	if (bpf_probe_read_user(&location, sizeof(location),
				(void *)thread->args[2] + PROP_LOCATION) &&
	    !result)
		count_loss(IGSDK_LOSS_READ_FAULT);
	claim_location(&claim, &location);
	if (!result && read_handle(thread->args[0], &claim.address))
		return 0;
	return settle(thread, &claim, result);
}

/* Another process's memory: a handle whose size shows when it is mapped. */
GLOBAL int vmm_imported(struct thread *thread, u32 result)
{
	NEED(thread);
	struct claim claim = {
		.kind = IGSDK_KIND_IMPORTED,
		.host = IGSDK_HOST_IMPORTED,
		.space = SPACE_VMM_HANDLE,
	};
	struct live entry = {.references = ONE_REFERENCE};
	struct igsdk_account *account;
	struct live_key key;

	claim_here(thread, &claim);
	claim.context = 0; /* like all vmm memory it belongs to the process */
	if (result)
		return book_failure(thread, &claim, result);
	if (read_handle(thread->args[0], &claim.address))
		return 0;
	entry.account = claim_account(thread, &claim);
	account = account_at(entry.account);
	entry.generation = account ? account->generation : 0;
	key = handle_key(thread, claim.address, SPACE_VMM_HANDLE);
	if (live_insert(&key, &entry))
		count_loss(IGSDK_LOSS_LIVE_FULL);
	return 0;
}

static __always_inline struct live *vmm_find(struct live_key *key)
{
	return bpf_map_lookup_elem(&live_table, key);
}

/* Takes one reference or map away; true when that was the last of both. */
static __always_inline bool vmm_drop(struct live *entry, u64 one)
{
	return __sync_fetch_and_add(&entry->references, -one) == one;
}

GLOBAL int vmm_releasing(struct thread *thread)
{
	NEED(thread);
	struct live_key key = handle_key(thread, thread->args[0], SPACE_VMM_HANDLE);
	struct live *entry = vmm_find(&key);

	thread->taken.found = false;
	thread->args[1] = entry != NULL; /* cuMemRelease has one argument */
	if (!entry)
		return 0;
	if (vmm_drop(entry, ONE_REFERENCE))
		take(thread, thread->args[0], SPACE_VMM_HANDLE);
	return 0;
}

GLOBAL int vmm_released(struct thread *thread, u32 result)
{
	NEED(thread);
	struct live_key key = handle_key(thread, thread->args[0], SPACE_VMM_HANDLE);
	struct live *entry;

	if (!thread->args[1]) {
		if (!result)
			count_unknown_free(thread);
		return 0;
	}
	if (!result) {
		if (thread->taken.found && thread->taken.live.bytes)
			book_free(thread, &thread->taken.live, thread->args[0]);
		return 0;
	}
	if (thread->taken.found) {
		thread->taken.live.references = ONE_REFERENCE;
		put_back(thread);
		return 0;
	}
	entry = vmm_find(&key);
	if (entry)
		__sync_fetch_and_add(&entry->references, ONE_REFERENCE);
	return 0;
}

/* A map holds its handle from the call's beginning, lest a release be the last. */
GLOBAL int vmm_mapping(struct thread *thread)
{
	NEED(thread);
	struct live_key key = handle_key(thread, thread->args[3], SPACE_VMM_HANDLE);
	struct live *entry = vmm_find(&key);

	thread->taken.found = entry != NULL;
	if (entry)
		__sync_fetch_and_add(&entry->references, ONE_MAP);
	return 0;
}

/* One map less, or one that failed: it may have been the last to hold its handle. */
GLOBAL int vmm_map_gone(struct thread *thread, struct live *map)
{
	NEED(thread);
	NEED(map);
	struct live_key key = handle_key(thread, map->references, SPACE_VMM_HANDLE);
	struct live *entry = vmm_find(&key);
	struct live copy;

	if (!entry || !vmm_drop(entry, ONE_MAP))
		return 0;
	copy = *entry;
	if (!bpf_map_delete_elem(&live_table, &key) && copy.bytes)
		book_free(thread, &copy, key.address);
	return 0;
}

GLOBAL int vmm_mapped(struct thread *thread, u32 result)
{
	NEED(thread);
	u64 size = thread->args[1], handle = thread->args[3];
	struct live_key key = handle_key(thread, handle, SPACE_VMM_HANDLE);
	struct live map = {.bytes = size, .references = handle, .account = IGSDK_NO_INDEX};
	struct live *entry = vmm_find(&key);

	if (result)
		return thread->taken.found ? vmm_map_gone(thread, &map) : 0;
	/* two threads may map an import for the first time */
	if (entry && !__sync_val_compare_and_swap(&entry->bytes, 0, size))
		book_to(thread, entry->account, thread->args[0], size);
	key = handle_key(thread, thread->args[0], SPACE_VMM_MAP);
	if (live_store(&key, &map, BPF_ANY))
		count_loss(IGSDK_LOSS_LIVE_FULL);
	return 0;
}

GLOBAL int vmm_retained(struct thread *thread)
{
	NEED(thread);
	struct live_key key = {};
	struct live *entry;
	u64 handle;

	if (read_handle(thread->args[0], &handle))
		return 0;
	key = handle_key(thread, handle, SPACE_VMM_HANDLE);
	entry = vmm_find(&key);
	if (entry)
		__sync_fetch_and_add(&entry->references, ONE_REFERENCE);
	return 0;
}

/* An unmap covers a run of whole maps; one step of the loop moves one of them. */
struct unmapping {
	u64 address;
	u64 end;
	u32 from;
	u32 to; /* 0: the maps are gone */
};

static __always_inline u32 unmapping_space(void)
{
	return SPACE_UNMAPPING | (u32)bpf_get_current_pid_tgid() << 8;
}

static long unmap_step(u32 index, void *data)
{
	struct unmapping *run = data;
	struct thread *thread = thread_find();
	struct live_key key;
	struct live *found, map;

	if (!thread || run->address >= run->end)
		return 1;
	key = handle_key(thread, run->address, run->from);
	found = bpf_map_lookup_elem(&live_table, &key);
	if (!found || !found->bytes)
		return 1;
	map = *found;
	bpf_map_delete_elem(&live_table, &key);
	run->address += map.bytes;
	if (!run->to)
		return vmm_map_gone(thread, &map);
	key.space = run->to;
	live_store(&key, &map, BPF_ANY);
	return 0;
}

/* False where not all of the range was found. */
static __always_inline bool unmap_run(struct thread *thread, u32 from, u32 to)
{
	struct unmapping run = {
		.address = thread->args[0],
		.end = thread->args[0] + thread->args[1],
		.from = from,
		.to = to,
	};

	bpf_loop(MAX_MAPS_PER_UNMAP, unmap_step, &run, 0);
	return run.address >= run.end;
}

GLOBAL int vmm_unmapping(struct thread *thread)
{
	NEED(thread);
	unmap_run(thread, SPACE_VMM_MAP, unmapping_space());
	return 0;
}

GLOBAL int vmm_unmapped(struct thread *thread, u32 result)
{
	NEED(thread);
	if (result)
		unmap_run(thread, unmapping_space(), SPACE_VMM_MAP);
	else if (!unmap_run(thread, unmapping_space(), 0))
		count_loss(IGSDK_LOSS_UNMAP_PARTIAL);
	return 0;
}

#endif

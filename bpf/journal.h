/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stores into the tables of live things. The image keeps a journal of their keys, so
 * that a sweep finds in small steps what outlived its process: a hash can't be walked
 * in parts from within the kernel, and nobody does it from user space there.
 */
#ifndef IGSDK_JOURNAL_H
#define IGSDK_JOURNAL_H

#include "maps.h"
#include "settings.h"

#ifdef IGSDK_GADGET

#define JOURNAL (2 * LIVE_ENTRIES) /* a power of two */
#define JOURNAL_TRIES 4

ROWS(live_keys, struct live_key, JOURNAL);
TABLE(numbers, u32, u32, PROCESSES); /* processes that live, by number */

u32 next_journal;

static __always_inline bool is_handle(const struct live_key *key)
{
	return key->space >= SPACE_CONTEXT && key->space <= SPACE_DEVICE;
}

static __always_inline bool is_stored(const struct live_key *key)
{
	if (is_handle(key))
		return bpf_map_lookup_elem(&handles, key);
	return bpf_map_lookup_elem(&live_table, key);
}

/* In the next place whose key is gone; after a few of them, over one that is not. */
GLOBAL int journal(const struct live_key *wanted)
{
	NEED(wanted);
	struct live_key key = *wanted, *place = NULL;

	for (u32 i = 0; i < JOURNAL_TRIES; i++) {
		u32 at = fetch_add(&next_journal, 1) & (JOURNAL - 1);
		struct live_key old;

		place = bpf_map_lookup_elem(&live_keys, &at);
		if (!place)
			return 0;
		old = *place;
		if (!old.space || !is_stored(&old))
			break;
	}
	if (place)
		*place = key;
	return 0;
}

#else

#define journal(KEY)

#endif

static __always_inline long live_store(const struct live_key *key, const struct live *entry,
				       u64 flags)
{
	long error = bpf_map_update_elem(&live_table, key, entry, flags);

	if (!error && keep_rows)
		journal(key);
	return error;
}

static __always_inline long handle_put(const struct live_key *key, const struct handle *value,
				       u64 flags)
{
	long error = bpf_map_update_elem(&handles, key, value, flags);

	if (!error && keep_rows)
		journal(key);
	return error;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* process x kind x device, over all contexts: what `processes` tells. Image only. */
#ifndef IGSDK_SUMS_H
#define IGSDK_SUMS_H

#include "process.h"

#ifdef IGSDK_GADGET

struct sum_key {
	u64 process; /* instance */
	u32 pad;
	u8 kind;
	u8 host;
	s16 device;
};

struct sum {
	struct process_row row; /* totals are kept in it */
	struct flows base;
	struct flows sent;
	u32 generation; /* odd = in use */
	u32 process;	/* slot */
};

ROWS(sums, struct sum, SUMS);
TABLE(sum_slots, struct sum_key, u32, SUMS);
FREE_SLOTS(free_sums, SUMS);

u32 next_sum = 1;

static __always_inline struct sum *sum_at(u32 slot)
{
	return bpf_map_lookup_elem(&sums, &slot);
}

static __always_inline void sum_fill(struct sum *sum, const struct sum_key *key, u32 process)
{
	u32 generation = sum->generation;

	__builtin_memset(sum, 0, sizeof(*sum));
	sum->process = process;
	sum->row.process = key->process;
	sum->row.kind_raw = key->kind;
	sum->row.host_raw = key->host;
	sum->row.device = key->device;
	sum->generation = generation + 1;
}

/* The slot of a usage row's sum; 0, the global row, where the table is full. */
GLOBAL u32 sum_slot(const struct igsdk_usage_key *of, u32 process)
{
	NEED(of);
	struct sum_key key = {
		.process = of->process,
		.kind = of->kind,
		.host = of->host,
		.device = of->device,
	};
	u32 *found, slot;
	struct sum *sum;

	if (!keep_rows)
		return 0;
	found = bpf_map_lookup_elem(&sum_slots, &key);
	if (found)
		return *found;
	slot = slot_take(&free_sums, &next_sum, SUMS);
	sum = sum_at(slot);
	if (!slot || !sum) {
		count_loss(IGSDK_LOSS_USAGE_FULL);
		return 0;
	}
	sum_fill(sum, &key, process);
	if (!bpf_map_update_elem(&sum_slots, &key, &slot, BPF_NOEXIST))
		return slot;
	sum->generation++;
	bpf_map_push_elem(&free_sums, &slot, 0);
	found = bpf_map_lookup_elem(&sum_slots, &key);
	return found ? *found : 0;
}

#else

#define sum_slot(KEY, PROCESS) 0

#endif

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stream-ordered memory. It belongs to its pool's device, not to the context
 * that asked for it: what gives it back without a call is the end of that
 * device's primary context.
 */
#ifndef IGSDK_POOL_H
#define IGSDK_POOL_H

#include "memory.h"

#define POOL_PROPS_LOCATION 8 /* offset in CUmemPoolProps */

GLOBAL u32 primary_generation(struct thread *thread, s32 device)
{
	NEED(thread);
	struct live_key key = handle_key(thread, (u32)device, SPACE_PRIMARY);
	struct handle *primary = bpf_map_lookup_elem(&handles, &key);

	return primary ? primary->generation : 0;
}

static __always_inline void claim_primary(struct thread *thread, struct claim *claim)
{
	struct current_context *here = context_now(thread);

	if (here && here->primary && here->device == claim->device)
		claim->context = here->generation;
	else
		claim->context = primary_generation(thread, claim->device);
}

GLOBAL int pool_store(struct thread *thread, u64 out, struct location *location)
{
	NEED(thread);
	NEED(location);
	struct claim place = {};
	struct handle value = {};
	struct live_key key;
	u64 pool;

	if (read_handle(out, &pool))
		return 0;
	claim_location(&place, location);
	value.device = place.device;
	value.host = place.host;
	key = handle_key(thread, pool, SPACE_POOL);
	handle_store(&key, &value);
	return 0;
}

GLOBAL int pool_created(struct thread *thread, u64 location_address)
{
	NEED(thread);
	struct location location;

	if (bpf_probe_read_user(&location, sizeof(location), (void *)location_address)) {
		count_loss(IGSDK_LOSS_READ_FAULT);
		return 0;
	}
	return pool_store(thread, thread->args[0], &location);
}

static __always_inline int pool_of_device(struct thread *thread)
{
	struct location location = {.type = LOCATION_DEVICE, .id = thread->args[1]};

	return pool_store(thread, thread->args[0], &location);
}

static __always_inline void claim_pool(struct thread *thread, struct claim *claim, u64 pool)
{
	struct live_key key = handle_key(thread, pool, SPACE_POOL);
	struct handle *known = bpf_map_lookup_elem(&handles, &key);

	claim_here(thread, claim);
	if (known) {
		claim->device = known->device;
		claim->host = known->host;
	}
	claim_primary(thread, claim);
}

GLOBAL int pool_allocated(struct thread *thread, u32 result, u32 explicit_pool)
{
	NEED(thread);
	struct claim claim = {
		.bytes = thread->args[1],
		.kind = IGSDK_KIND_POOL,
		.space = SPACE_POINTER,
	};

	if (explicit_pool) {
		claim_pool(thread, &claim, thread->args[2]);
	} else {
		claim_here(thread, &claim);
		claim_primary(thread, &claim);
	}
	if (!result && read_pointer(thread->args[0], 8, &claim.address))
		return 0;
	return settle(thread, &claim, result);
}

#endif

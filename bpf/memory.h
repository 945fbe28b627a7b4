/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Plain, pitched, managed, pinned, registered and stream-ordered memory. */
#ifndef IGSDK_MEMORY_H
#define IGSDK_MEMORY_H

#include "context.h"

#define LOCATION_DEVICE 1 /* CU_MEM_LOCATION_TYPE_DEVICE */

struct location {
	u32 type;
	s32 id;
};

/* A claim of the current context. */
static __always_inline void claim_here(struct thread *thread, struct claim *claim)
{
	struct current_context *context = context_now(thread);

	claim->context = context ? context->generation : 0;
	claim->device = context ? context->device : NO_DEVICE;
}

static __always_inline void claim_location(struct claim *claim, const struct location *location)
{
	bool on_device = location->type == LOCATION_DEVICE;

	claim->device = on_device ? location->id : NO_DEVICE;
	claim->host = on_device ? IGSDK_HOST_OWN : IGSDK_HOST_PINNED;
}

static __always_inline int settle(struct thread *thread, struct claim *claim, u32 result)
{
	if (result)
		return book_failure(thread, claim, result);
	return book_alloc(thread, claim);
}

/* Pointers of the 32-bit calls are 32 bits wide. */
static __always_inline int read_pointer(u64 out, u32 size, u64 *pointer)
{
	*pointer = 0;
	if (!bpf_probe_read_user(pointer, size == 4 ? 4 : 8, (void *)out))
		return 0;
	count_loss(IGSDK_LOSS_READ_FAULT);
	return -1;
}

struct plain {
	u64 bytes;
	u8 kind;
	u8 host;
	u8 space;
	u8 pointer_size;
};

/* Calls of the shape f(pointer *out, size, ...). */
static __always_inline int allocated(struct thread *thread, u32 result, struct plain plain)
{
	struct claim claim = {
		.bytes = plain.bytes,
		.kind = plain.kind,
		.host = plain.host,
		.space = plain.space,
	};

	claim_here(thread, &claim);
	if (!result && read_pointer(thread->args[0], plain.pointer_size, &claim.address))
		return 0;
	return settle(thread, &claim, result);
}

/* f(pointer *out, pitch *, width, height, ...): the real size is known at return. */
static __always_inline int allocated_pitch(struct thread *thread, u32 result, u32 pointer_size)
{
	u32 mask = pointer_size == 4 ? 0xffffffff : 0;
	u64 width = mask ? thread->args[2] & mask : thread->args[2];
	u64 height = mask ? thread->args[3] & mask : thread->args[3];
	struct plain plain = {
		.bytes = width * height,
		.kind = IGSDK_KIND_DEVICE,
		.space = SPACE_POINTER,
		.pointer_size = pointer_size,
	};
	u64 pitch;

	if (!result) {
		if (read_pointer(thread->args[1], pointer_size, &pitch))
			return 0;
		plain.bytes = pitch * height;
	}
	return allocated(thread, result, plain);
}

static __always_inline int host_registered(struct thread *thread, u32 result)
{
	struct claim claim = {
		.address = thread->args[0],
		.bytes = thread->args[1],
		.kind = IGSDK_KIND_REGISTERED,
		.host = IGSDK_HOST_REGISTERED,
		.space = SPACE_REGISTERED,
	};

	claim_here(thread, &claim);
	return settle(thread, &claim, result);
}

/* A free has begun: its entry leaves the table now, before the address can be reused. */
GLOBAL int take(struct thread *thread, u64 address, u32 space)
{
	NEED(thread);
	struct live_key key = handle_key(thread, address, space);
	struct live *found;

	thread->taken.found = false;
	if (!address)
		return 0;
	thread->taken.key = key;
	found = bpf_map_lookup_elem(&live_table, &key);
	if (!found)
		return 0;
	thread->taken.live = *found;
	thread->taken.found = !bpf_map_delete_elem(&live_table, &key);
	return 0;
}

static __always_inline void put_back(struct thread *thread)
{
	struct live_key key = thread->taken.key;
	struct live entry = thread->taken.live;
	int error;

	if (!thread->taken.found)
		return;
	error = live_store(&key, &entry, BPF_NOEXIST);
	if (error && error != -EEXIST)
		count_loss(IGSDK_LOSS_LIVE_FULL);
}

static __always_inline void count_unknown_free(struct thread *thread)
{
	struct igsdk_process *process = process_at(thread->process);

	count_loss(IGSDK_LOSS_UNKNOWN_FREE);
	if (process)
		__sync_fetch_and_add(&process->unknown_frees, 1);
}

static __always_inline int freed(struct thread *thread, u32 result, u64 address)
{
	if (result) {
		put_back(thread);
		return 0;
	}
	if (thread->taken.found)
		return book_free(thread, &thread->taken.live, address);
	if (address)
		count_unknown_free(thread);
	return 0;
}

#endif

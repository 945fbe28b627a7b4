/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Contexts: which one is current in a thread, and what their end gives back.
 *
 * The driver reuses handles, so a context is known by a generation that every
 * create gets anew. What ends a context is taken out at entry: at return the
 * handle may already stand for another one.
 */
#ifndef IGSDK_CONTEXT_H
#define IGSDK_CONTEXT_H

#include "book.h"

static __always_inline u32 process_number(struct thread *thread)
{
	struct igsdk_process *process = process_at(thread->process);

	return process ? process->number : 0;
}

static __always_inline struct live_key handle_key(struct thread *thread, u64 handle, u32 space)
{
	struct live_key key = {
		.address = handle,
		.process = process_number(thread),
		.space = space,
	};

	return key;
}

static __always_inline u32 next_generation(struct thread *thread)
{
	struct igsdk_process *process = process_at(thread->process);

	return process ? fetch_add(&process->context, 1) + 1 : 0;
}

static __always_inline void handle_store(const struct live_key *key, const struct handle *value)
{
	if (handle_put(key, value, BPF_ANY))
		count_loss(IGSDK_LOSS_CONTEXTS_FULL);
}

/* Notes a new context under its handle; returns its generation. */
GLOBAL u32 context_store(struct thread *thread, u64 handle, s32 device, u32 primary)
{
	NEED(thread);
	struct live_key key = handle_key(thread, handle, SPACE_CONTEXT);
	struct handle value = {
		.generation = next_generation(thread),
		.device = device,
		.primary = primary,
	};

	handle_store(&key, &value);
	return value.generation;
}

/* One more retain of a primary context; false where this is the first. */
static __always_inline bool primary_again(const struct live_key *key)
{
	struct handle *known = bpf_map_lookup_elem(&handles, key);

	if (known)
		__sync_fetch_and_add(&known->references, 1);
	return known;
}

static __always_inline struct current_context *context_top(struct thread *thread)
{
	u32 depth = thread->contexts;

	return depth ? &thread->current[(depth - 1) & (MAX_CONTEXTS - 1)] : NULL;
}

/* What a handle stands for; one that was never seen becomes a context of unknown device. */
GLOBAL int context_resolve(struct thread *thread, struct current_context *context)
{
	NEED(thread);
	NEED(context);
	struct live_key key = handle_key(thread, context->handle, SPACE_CONTEXT);
	struct handle *known = bpf_map_lookup_elem(&handles, &key);

	if (known) {
		context->generation = known->generation;
		context->device = known->device;
		context->primary = known->primary;
		return 0;
	}
	context->device = NO_DEVICE;
	context->primary = false;
	context->generation = context_store(thread, context->handle, NO_DEVICE, false);
	return 0;
}

/* The thread's current context, brought up to date when contexts came or went. */
static __always_inline struct current_context *context_now(struct thread *thread)
{
	struct igsdk_process *process = process_at(thread->process);
	struct current_context *top = context_top(thread);
	u32 count = process ? process->context : 0; /* before the look, lest one be missed */

	if (top && count != thread->contexts_seen) {
		context_resolve(thread, top);
		thread->contexts_seen = count;
	}
	return top;
}

GLOBAL int context_push(struct thread *thread, u64 handle)
{
	NEED(thread);
	struct current_context *top;

	thread->contexts++;
	top = context_top(thread);
	if (!top)
		return 0;
	top->handle = handle;
	return context_resolve(thread, top);
}

static __always_inline void context_pop(struct thread *thread)
{
	if (thread->contexts)
		thread->contexts--;
	thread->contexts_seen = 0; /* what is on top now may have ended meanwhile */
}

static __always_inline void context_set(struct thread *thread, u64 handle)
{
	context_pop(thread);
	if (handle)
		context_push(thread, handle);
}

struct ending {
	u32 slot;
	u32 context;
	u64 now;
};

static long usage_end(u32 index, void *data)
{
	struct ending *ending = data;
	struct igsdk_usage *usage = usage_at(ending->slot);
	u64 rest;

	if (!usage || ending->slot == IGSDK_NO_INDEX)
		return 1;
	ending->slot = usage->next;
	if (usage->key.context != ending->context || usage->ended)
		return 0;
	usage->ended = IGSDK_ENDED_CONTEXT;
	usage->ended_at = ending->now;
	rest = __sync_lock_test_and_set(&usage->in_use, IGSDK_USAGE_GONE);
	process_add(process_at(usage->process), usage->key.host, -rest);
	drain_usage_end(usage, rest);
	return 0;
}

/* Gives back all that a context holds: a few rows, however many allocations. */
GLOBAL int context_end(struct thread *thread, u32 generation)
{
	NEED(thread);
	struct igsdk_process *process = process_at(thread->process);
	struct ending ending = {.context = generation, .now = bpf_ktime_get_boot_ns()};

	if (!process || !generation)
		return 0;
	next_generation(thread); /* whoever has it current must look again */
	ending.slot = process->usages;
	bpf_loop(usages_max, usage_end, &ending, 0);
	emit_end(IGSDK_RECORD_CONTEXT_END, thread->process, thread->process_generation, generation);
	return 0;
}

static __always_inline void take_handle(struct thread *thread, u64 handle, u32 space)
{
	struct live_key key = handle_key(thread, handle, space);
	struct handle *found = bpf_map_lookup_elem(&handles, &key);

	thread->taken.key = key;
	thread->taken.found = false;
	if (!found)
		return;
	thread->taken.handle = *found;
	thread->taken.found = !bpf_map_delete_elem(&handles, &key);
}

static __always_inline void put_handle_back(struct thread *thread)
{
	struct live_key key = thread->taken.key;
	struct handle handle = thread->taken.handle;

	if (thread->taken.found)
		handle_put(&key, &handle, BPF_NOEXIST);
}

static __always_inline int read_handle(u64 address, u64 *handle)
{
	if (!bpf_probe_read_user(handle, sizeof(*handle), (void *)address))
		return 0;
	count_loss(IGSDK_LOSS_READ_FAULT);
	return -1;
}

/* Ordinals are each process's own view; the driver has told this one which device it means. */
GLOBAL int device_told(struct thread *thread)
{
	NEED(thread);
	struct live_key key = handle_key(thread, (u32)thread->args[1], SPACE_DEVICE);
	struct uuid uuid;

	if (bpf_probe_read_user(&uuid, sizeof(uuid), (void *)thread->args[0])) {
		count_loss(IGSDK_LOSS_READ_FAULT);
		return 0;
	}
	return bpf_map_update_elem(&device_uuids, &key, &uuid, BPF_ANY);
}

GLOBAL int context_created(struct thread *thread, u64 out, s32 device)
{
	NEED(thread);
	u64 handle;

	if (read_handle(out, &handle))
		return 0;
	context_store(thread, handle, device, false);
	return context_push(thread, handle);
}

GLOBAL int context_destroyed(struct thread *thread, u32 result)
{
	NEED(thread);
	struct current_context *top = context_top(thread);

	if (result) {
		put_handle_back(thread);
		return 0;
	}
	if (top && top->handle == thread->args[0])
		context_pop(thread);
	if (thread->taken.found)
		context_end(thread, thread->taken.handle.generation);
	return 0;
}

GLOBAL int primary_retained(struct thread *thread)
{
	NEED(thread);
	s32 device = thread->args[1];
	struct live_key key = handle_key(thread, (u32)device, SPACE_PRIMARY);
	struct live_key context = handle_key(thread, 0, SPACE_CONTEXT);
	struct handle fresh = {.references = 1, .device = device, .primary = true};
	int error;

	if (primary_again(&key) || read_handle(thread->args[0], &fresh.context))
		return 0;
	fresh.generation = next_generation(thread);
	error = handle_put(&key, &fresh, BPF_NOEXIST);
	if (error == -EEXIST) /* another thread's was the first */
		return primary_again(&key);
	if (error)
		count_loss(IGSDK_LOSS_CONTEXTS_FULL);
	context.address = fresh.context;
	handle_store(&context, &fresh);
	next_generation(thread); /* whoever was quicker to make it current must look again */
	return 0;
}

/*
 * A release or a reset has begun. The last one takes the context's record out.
 * Of a process that was there before us nobody knows how many retains it did:
 * only a reset ends its primary contexts.
 */
GLOBAL int primary_leaving(struct thread *thread, u32 reset)
{
	NEED(thread);
	struct live_key key = handle_key(thread, (u32)thread->args[0], SPACE_PRIMARY);
	struct igsdk_process *process = process_at(thread->process);
	struct handle *known = bpf_map_lookup_elem(&handles, &key);

	thread->taken.found = false;
	if (!known || !process || (process->late && !reset))
		return 0;
	if (!reset && fetch_add(&known->references, -1) > 1)
		return 0;
	take_handle(thread, (u32)thread->args[0], SPACE_PRIMARY);
	return 0;
}

GLOBAL int primary_left(struct thread *thread, u32 result, u32 reset)
{
	NEED(thread);
	struct taken *taken = &thread->taken;
	struct handle *known;
	struct live_key key;

	if (result) {
		if (!reset && taken->found)
			taken->handle.references = 1;
		put_handle_back(thread);
		key = taken->key;
		known = bpf_map_lookup_elem(&handles, &key);
		if (!reset && !taken->found && known)
			__sync_fetch_and_add(&known->references, 1);
		return 0;
	}
	if (!taken->found)
		return 0;
	context_end(thread, taken->handle.generation);
	if (!reset) {
		key = handle_key(thread, taken->handle.context, SPACE_CONTEXT);
		bpf_map_delete_elem(&handles, &key);
		return 0;
	}
	/* after a reset the same handle is a context without memory */
	taken->handle.generation =
		context_store(thread, taken->handle.context, taken->handle.device, true);
	put_handle_back(thread);
	return 0;
}

#endif

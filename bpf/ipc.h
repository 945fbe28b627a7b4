/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory that another process owns and this one opens. The call tells no size;
 * it is known where the exporting process is traced too: both ends see the same
 * 64 opaque bytes.
 */
#ifndef IGSDK_IPC_H
#define IGSDK_IPC_H

#include "pool.h"

#define SHARED_WORDS 8

GLOBAL u64 shared_hash(u64 address)
{
	u64 words[SHARED_WORDS], hash = 4;

	if (bpf_probe_read_user(words, sizeof(words), (void *)address)) {
		count_loss(IGSDK_LOSS_READ_FAULT);
		return 0;
	}
	for (int i = 0; i < SHARED_WORDS; i++)
		hash = igsdk_mix(hash, words[i]);
	return hash;
}

/* An exporting call has returned: `out` holds the 64 bytes, `pointer` what they mean. */
GLOBAL int shared_out(struct thread *thread, u64 out, u64 pointer)
{
	NEED(thread);
	struct live_key key = handle_key(thread, pointer, SPACE_POINTER);
	struct live *entry = bpf_map_lookup_elem(&live_table, &key);
	u64 hash = shared_hash(out);

	if (entry && hash)
		bpf_map_update_elem(&shared_sizes, &hash, &entry->bytes, BPF_ANY);
	return 0;
}

/*
 * Opening the same memory again in the same process gives the same address and
 * one more thing to close; it moves no bytes.
 */
static __always_inline bool shared_again(struct thread *thread, u64 address)
{
	struct live_key key = handle_key(thread, address, SPACE_POINTER);
	struct live *entry = bpf_map_lookup_elem(&live_table, &key);
	struct igsdk_account *account = entry ? account_at(entry->account) : NULL;
	struct igsdk_usage *usage = account ? usage_at(account->usage) : NULL;

	if (!usage || account->generation != entry->generation || usage->ended ||
	    account->key.kind != IGSDK_KIND_IMPORTED)
		return false;
	__sync_fetch_and_add(&entry->references, ONE_REFERENCE);
	return true;
}

/* A close has begun: only the last one takes the entry out. */
GLOBAL int shared_closing(struct thread *thread)
{
	NEED(thread);
	struct live_key key = handle_key(thread, thread->args[0], SPACE_POINTER);
	struct live *entry = bpf_map_lookup_elem(&live_table, &key);

	/* in one step: another thread may close it too; the call has one argument */
	thread->args[1] =
		entry && (s64)__sync_fetch_and_add(&entry->references, -ONE_REFERENCE) > 0;
	if (thread->args[1])
		return 0;
	take(thread, thread->args[0], SPACE_POINTER);
	thread->taken.live.references = 0; /* as it was, should it go back */
	return 0;
}

GLOBAL int shared_closed(struct thread *thread, u32 result)
{
	NEED(thread);
	struct live_key key = handle_key(thread, thread->args[0], SPACE_POINTER);
	struct live *entry;

	if (!thread->args[1])
		return freed(thread, result, thread->args[0]);
	entry = bpf_map_lookup_elem(&live_table, &key);
	if (result && entry)
		__sync_fetch_and_add(&entry->references, ONE_REFERENCE);
	return 0;
}

/* An importing call has returned; `hash` is that of the 64 bytes it was given. */
GLOBAL int shared_in(struct thread *thread, u32 result, u64 hash)
{
	NEED(thread);
	u64 *bytes = bpf_map_lookup_elem(&shared_sizes, &hash);
	struct claim claim = {
		.bytes = bytes ? *bytes : 0,
		.kind = IGSDK_KIND_IMPORTED,
		.host = IGSDK_HOST_IMPORTED,
		.space = SPACE_POINTER,
	};

	claim_here(thread, &claim);
	if (result)
		return book_failure(thread, &claim, result);
	if (read_pointer(thread->args[0], 8, &claim.address) || shared_again(thread, claim.address))
		return 0;
	if (!bytes)
		count_loss(IGSDK_LOSS_SIZE_UNKNOWN);
	return book_alloc(thread, &claim);
}

/* The handle is passed by value: on x86-64 on the stack, on arm64 behind a pointer. */
static __always_inline u64 ipc_handle_address(struct thread *thread, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return REGS_SP(regs) + 8;
#else
	return thread->args[1];
#endif
}

#endif

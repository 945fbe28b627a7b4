/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stacks by frame pointers, taken at the entry of an allocating call and sent
 * once per process. The key is a hash of the addresses, never the kernel's 32-bit
 * stack id; it means something within its process only.
 */
#ifndef IGSDK_STACK_H
#define IGSDK_STACK_H

#include "account.h"

/*
 * The kernel's walk begins with the instruction pointer and goes on with the
 * caller's caller, since the probed function has no frame yet. The caller is
 * put between, unless this kernel has done so.
 */
static __always_inline void add_caller(struct thread *thread, struct pt_regs *regs)
{
	u64 caller = return_address(regs);

	thread->first_frame = 1;
	if (thread->n_frames > 1 && thread->frames[2] == caller)
		return;
	thread->frames[0] = thread->frames[1];
	thread->frames[1] = caller;
	thread->first_frame = 0;
	if (thread->n_frames < IGSDK_MAX_FRAMES)
		thread->n_frames++;
}

static __always_inline u64 hash_frames(struct thread *thread, u64 hash)
{
	u32 first = thread->first_frame & 1, n = thread->n_frames;

	for (u32 i = 0; i < IGSDK_MAX_FRAMES; i++) {
		if (i >= n)
			break;
		hash = mix(hash, thread->frames[first + i]);
	}
	return hash;
}

static __noinline int stack_take(struct thread *thread, struct pt_regs *regs)
{
	u32 size = max_frames * sizeof(u64);
	long bytes;

	if (size > sizeof(thread->frames) - sizeof(u64))
		size = sizeof(thread->frames) - sizeof(u64);
	bytes = bpf_get_stack(regs, &thread->frames[1], size, BPF_F_USER_STACK);
	thread->ip = REGS_IP(regs);
	thread->caller_sp = REGS_SP(regs);
	thread->fp = REGS_FP(regs);
	thread->walk_error = bytes < 0 ? bytes : 0;
	thread->n_frames = bytes > 0 ? bytes / sizeof(u64) : 0;
	if (!thread->n_frames) {
		count_loss(IGSDK_LOSS_STACK_FAILED);
		thread->stack = mix(2, (u32)thread->walk_error) | 1;
		return 0;
	}
	add_caller(thread, regs);
	thread->stack = hash_frames(thread, 3) | 1;
	return 0;
}

/* Sends the thread's stack, unless this process's was sent before. */
GLOBAL int stack_send(struct thread *thread, struct igsdk_account *account)
{
	NEED(thread);
	NEED(account);
	u64 key = mix(account->key.process, account->key.stack);
	u32 bytes = (thread->n_frames & 127) * sizeof(u64);
	struct igsdk_capture head = {};
	struct bpf_dynptr record;
	u8 sent = 1;

	if (bpf_map_lookup_elem(&sent_stacks, &key)) {
		account->captured = true;
		return 0;
	}
	head.process = account->key.process;
	head.key = account->key.stack;
	head.time = bpf_ktime_get_boot_ns();
	head.ip = thread->ip;
	head.sp = thread->caller_sp;
	head.fp = thread->fp;
	head.size = sizeof(head) + bytes;
	head.pid = bpf_get_current_pid_tgid() >> 32;
	head.tid = bpf_get_current_pid_tgid();
	head.n_frames = bytes / sizeof(u64);
	head.error = thread->walk_error;
	head.flags = head.n_frames ? IGSDK_CAPTURE_FRAME_POINTERS : IGSDK_CAPTURE_FAILED;
	if (head.n_frames >= max_frames)
		head.flags |= IGSDK_CAPTURE_TRUNCATED;
	if (bpf_ringbuf_reserve_dynptr(&captures, head.size, 0, &record)) {
		bpf_ringbuf_discard_dynptr(&record, 0);
		count_loss(IGSDK_LOSS_CAPTURES);
		return 0;
	}
	bpf_dynptr_write(&record, 0, &head, sizeof(head), 0);
	if (bytes)
		bpf_dynptr_write(&record, sizeof(head), &thread->frames[thread->first_frame & 1],
				 bytes, 0);
	bpf_ringbuf_submit_dynptr(&record, BPF_RB_FORCE_WAKEUP);
	bpf_map_update_elem(&sent_stacks, &key, &sent, BPF_ANY);
	account->captured = true;
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The stack of an allocating call, taken at its entry: Python frames in full, the
 * native ones as a template or as registers and bytes for the runtime to unwind. It
 * goes up the ring the first time that its process uses it; its key stands for it
 * from then on and means something within its process only.
 */
#ifndef IGSDK_STACK_H
#define IGSDK_STACK_H

#include "account.h"
#include "capture.h"

enum key_seed {
	SEED_TEMPLATE = 3,
	SEED_PYTHON,
	SEED_SENT = IGSDK_SEED_SENT,
	SEED_NAMED,
	SEED_PLACE,
	SEED_ADDRESSES,
};

#define MAX_PENDING 16

u64 next_stack = 1; /* for keys that one call has and no other */

static __always_inline void note_returns(struct walk *walk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct uprobe_task *probes = BPF_CORE_READ(task, utask);
	struct return_instance *pending = probes ? BPF_CORE_READ(probes, return_instances) : NULL;
	u32 n = 0;

	for (int i = 0; i < MAX_PENDING && pending && n < IGSDK_MAX_RETURNS; i++) {
		/* several probes on one call: the last of them has the address */
		if (!BPF_CORE_READ(pending, chained)) {
			struct igsdk_return *found =
				&walk->head.returns[n & (IGSDK_MAX_RETURNS - 1)];

			found->where = BPF_CORE_READ(pending, stack);
			found->address = BPF_CORE_READ(pending, orig_ret_vaddr);
			n++;
		}
		pending = BPF_CORE_READ(pending, next);
	}
	walk->head.n_returns = n;
}

/* All that tells native stacks apart before they are looked at. */
static __always_inline u64 place_of(const struct walk *walk, struct pt_regs *regs)
{
	u64 place = igsdk_mix(SEED_PLACE, REGS_SP(regs));

	place = igsdk_mix(place, caller_address(regs));
	place = igsdk_mix(place, REGS_IP(regs));
	for (u32 i = 0; i < IGSDK_MAX_RETURNS; i++) {
		if (i >= walk->head.n_returns)
			break;
		place = igsdk_mix(place, walk->head.returns[i].where);
		place = igsdk_mix(place, walk->head.returns[i].address);
	}
	return place;
}

static __always_inline void walk_begin(struct walk *walk, struct pt_regs *regs, u64 process)
{
	walk->pages = walk->at_end = 0;
	walk->python = 0;
	walk->offset = REGS_SP(regs) & (PAGE_BYTES - 8);
	walk->head.record = IGSDK_CAPTURE_STACK;
	walk->head.process = process;
	walk->head.flags = 0;
	walk->head.template_id = 0;
	walk->head.space = 0;
	walk->head.n_python = 0;
	walk->head.stack_bytes = 0;
	walk->head.pid = bpf_get_current_pid_tgid() >> 32;
	walk->head.tid = bpf_get_current_pid_tgid();
	save_registers(walk->head.registers, regs);
	note_returns(walk);
	walk->head.place = place_of(walk, regs);
}

static __always_inline void take_bytes(struct walk *walk)
{
	u32 bytes;

	copy_pages(walk, IGSDK_STACK_PAGES);
	bytes = copied_bytes(walk);
	if (walk->at_end)
		walk->head.flags |= IGSDK_CAPTURE_STACK_END;
	if (bytes > IGSDK_STACK_BYTES) {
		bytes = IGSDK_STACK_BYTES;
		walk->head.flags &= ~IGSDK_CAPTURE_STACK_END;
	}
	walk->head.stack_bytes = bytes;
	walk->head.flags |= IGSDK_CAPTURE_NATIVE;
}

static __always_inline u64 mark_of(const struct walk *walk, u64 seed, u64 key)
{
	return igsdk_mix(igsdk_mix(seed, walk->head.process), key);
}

/* The names of a stack's Python frames, unless all went up with this stack before. */
static __always_inline void name_once(struct walk *walk, u32 slot)
{
	u64 mark = mark_of(walk, SEED_NAMED, walk->python);
	u8 sent = 1;

	if (!walk->head.n_python || bpf_map_lookup_elem(&sent_stacks, &mark))
		return;
	if (send_names(slot))
		bpf_map_update_elem(&sent_stacks, &mark, &sent, BPF_ANY);
}

/* Sends what has a key of its own once; what the ring has no room for is sent again. */
static __always_inline void send_once(struct walk *walk, u32 slot)
{
	u64 mark = igsdk_sent_mark(walk->head.process, walk->head.key);
	u8 sent = 1;

	if (bpf_map_lookup_elem(&sent_stacks, &mark))
		return;
	name_once(walk, slot);
	if (send_stack(slot))
		bpf_map_update_elem(&sent_stacks, &mark, &sent, BPF_ANY);
	else
		count_loss(IGSDK_LOSS_CAPTURES);
}

/* A native stack that was not seen before. Without room for it its Python frames go alone. */
static __always_inline void send_fresh(struct walk *walk, u32 slot)
{
	walk->head.key = IGSDK_KEY_FRESH | __sync_fetch_and_add(&next_stack, 1);
	take_bytes(walk);
	name_once(walk, slot);
	if (send_stack(slot))
		return;
	count_loss(IGSDK_LOSS_STACK_BYTES);
	walk->head.flags &= ~(IGSDK_CAPTURE_NATIVE | IGSDK_CAPTURE_STACK_END);
	walk->head.flags |= IGSDK_CAPTURE_NO_ROOM;
	walk->head.stack_bytes = 0;
	walk->head.key = igsdk_mix(SEED_PYTHON, walk->python) & ~IGSDK_KEY_FRESH;
	send_once(walk, slot);
}

static __always_inline u64 stack_key(struct walk *walk, u32 slot)
{
	python_walk(slot);
	if (!use_templates || !template_search(slot)) {
		send_fresh(walk, slot);
		return walk->head.key;
	}
	walk->head.key = igsdk_mix(igsdk_mix(SEED_TEMPLATE, walk->head.template_id), walk->python) &
			 ~IGSDK_KEY_FRESH;
	send_once(walk, slot);
	return walk->head.key;
}

/* The key of the stack at which the thread stands. */
static __noinline u64 stack_take(struct pt_regs *regs, u64 process)
{
	u32 slot = walk_claim();
	struct walk *walk = walk_at(slot);
	u64 key;

	if (slot == NO_WALK || !walk) {
		count_loss(IGSDK_LOSS_STACK_FAILED);
		return IGSDK_KEY_BUSY;
	}
	walk_begin(walk, regs, process);
	key = stack_key(walk, slot);
	walk_release(walk);
	return key;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A stack by Inspektor Gadget's own means: addresses by frame pointers in a table of
 * its name, from which it looks them up when a row is read; build ids and a stack
 * from its OpenTelemetry profiler where they are wanted.
 */
#ifndef IGSDK_USTACK_H
#define IGSDK_USTACK_H

#include "stack.h"

#ifdef IGSDK_GADGET

#define BUILD_ID_BYTES (GADGET_STACK_DEPTH * sizeof(struct bpf_stack_build_id))

struct build_ids {
	u8 bytes[BUILD_ID_BYTES];
};

struct addresses {
	u8 bytes[GADGET_STACK_DEPTH * 8];
};

struct otel_params {
	u64 correlation_id;
};

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, 4);
	__uint(value_size, GADGET_STACK_DEPTH * 8);
} ig_ustack SEC(".maps");

/* Its size is set by the variable of its name. */
TABLE(ig_build_id, u32, struct build_ids, 0);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct build_ids);
} no_build_ids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct otel_params);
} otel_generic_params SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} otel_tc_kprobe SEC(".maps");

/* Flavours of one member, by kernel: 6.11 and later, 6.7 to 6.10, before. */
struct inode___seconds {
	s64 i_mtime_sec;
	u32 i_mtime_nsec;
} CO_RE;

struct timespec64 {
	s64 tv_sec;
	long tv_nsec;
} CO_RE;

struct inode___hidden {
	struct timespec64 __i_mtime;
} CO_RE;

struct inode___open {
	struct timespec64 i_mtime;
} CO_RE;

static __always_inline void read_mtime(struct gadget_user_stack *stack, void *inode)
{
	struct inode___seconds *seconds = inode;
	struct inode___hidden *hidden = inode;
	struct inode___open *open = inode;

	if (bpf_core_field_exists(seconds->i_mtime_sec)) {
		stack->mtime_sec = BPF_CORE_READ(seconds, i_mtime_sec);
		stack->mtime_nsec = BPF_CORE_READ(seconds, i_mtime_nsec);
	} else if (bpf_core_field_exists(hidden->__i_mtime)) {
		stack->mtime_sec = BPF_CORE_READ(hidden, __i_mtime.tv_sec);
		stack->mtime_nsec = BPF_CORE_READ(hidden, __i_mtime.tv_nsec);
	} else if (bpf_core_field_exists(open->i_mtime)) {
		stack->mtime_sec = BPF_CORE_READ(open, i_mtime.tv_sec);
		stack->mtime_nsec = BPF_CORE_READ(open, i_mtime.tv_nsec);
	}
}

static __always_inline void read_image(struct gadget_user_stack *stack, struct task_struct *task)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct inode *inode = BPF_CORE_READ(mm, exe_file, f_inode);
	u32 device = BPF_CORE_READ(inode, i_sb, s_dev);
	u64 hash;

	stack->major = device >> 20;
	stack->minor = device & 0xfffff;
	stack->inode = BPF_CORE_READ(inode, i_ino);
	read_mtime(stack, inode);
	hash = igsdk_mix(igsdk_mix((u64)mm, BPF_CORE_READ(mm, start_code)),
			 BPF_CORE_READ(mm, start_stack));
	stack->base_addr_hash = hash ^ hash >> 32;
}

static __always_inline void read_upid(struct pid *pid, u32 level, u32 *number, u32 *space)
{
	struct upid *upid = (void *)&pid->numbers[0] + level * bpf_core_type_size(struct upid);

	*number = BPF_CORE_READ(upid, nr);
	*space = BPF_CORE_READ(upid, ns, ns.inum);
}

static __always_inline void read_pids(struct gadget_user_stack *stack, struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);

	stack->tgid_level0 = bpf_get_current_pid_tgid() >> 32;
	read_upid(pid, 0, &stack->pid_level0, &stack->pidns_level0);
	if (BPF_CORE_READ(pid, level))
		read_upid(pid, 1, &stack->pid_level1, &stack->pidns_level1);
}

static __always_inline void collect_build_ids(struct pt_regs *regs, u32 stack_id)
{
	u32 zero = 0;
	struct build_ids *ids = bpf_map_lookup_elem(&no_build_ids, &zero);

	if (!ids || bpf_map_update_elem(&ig_build_id, &stack_id, ids, BPF_NOEXIST))
		return;
	ids = bpf_map_lookup_elem(&ig_build_id, &stack_id);
	if (ids)
		bpf_get_stack(regs, ids, sizeof(*ids), BPF_F_USER_STACK | BPF_F_USER_BUILD_ID);
}

/*
 * In a function of its own: those that call one with a tail call have little stack. The
 * entry that it jumps to returns to the caller; nothing behind the jump runs then.
 */
static __noinline int otel_jump(struct pt_regs *regs)
{
	bpf_tail_call(regs, &otel_tc_kprobe, 0);
	return 0;
}

static __always_inline u64 otel_stack(struct pt_regs *regs)
{
	struct otel_params *params;
	u32 zero = 0;

	otel_jump(regs);
	params = bpf_map_lookup_elem(&otel_generic_params, &zero);
	return params ? params->correlation_id : 0;
}

/* Addresses by value: the table's own numbers are 32 bits of a hash, and collide. */
static __always_inline u64 hash_addresses(const u64 *addresses, long bytes)
{
	u64 hash = SEED_ADDRESSES;

	for (u32 i = 0; i < GADGET_STACK_DEPTH; i++) {
		if (8 * (long)i >= bytes)
			break;
		hash = igsdk_mix(hash, addresses[i]);
	}
	return (hash | 1) & ~IGSDK_KEY_FRESH;
}

static __noinline int ustack_read(struct pt_regs *regs, struct thread *thread)
{
	long bytes =
		bpf_get_stack(regs, thread->addresses, sizeof(thread->addresses), BPF_F_USER_STACK);
	s32 id;

	if (bytes <= 0) {
		thread->stack_state = stack_unreadable;
		thread->ustack.stack_id = -1;
		return 0;
	}
	thread->stack = hash_addresses(thread->addresses, bytes);
	id = bpf_get_stackid(regs, &ig_ustack, BPF_F_FAST_STACK_CMP | BPF_F_USER_STACK);
	thread->ustack.stack_id = id;
	thread->stack_state = id < 0 ? stack_table_full : stack_taken;
	if (id < 0)
		count_loss(IGSDK_LOSS_STACK_TABLE);
	else if (collect_build_id)
		collect_build_ids(regs, id);
	return 0;
}

/* Leaves in the thread what the rows of this call will carry. */
static __always_inline void ustack_take(struct pt_regs *regs, struct thread *thread)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	__builtin_memset(&thread->ustack, 0, sizeof(thread->ustack));
	read_image(&thread->ustack, task);
	read_pids(&thread->ustack, task);
	thread->ustack.boot_timestamp = bpf_ktime_get_boot_ns();
	ustack_read(regs, thread);
	if (collect_otel_stack)
		thread->ustack.otel_correlation_id = otel_stack(regs);
}

static __always_inline void ustack_none(struct thread *thread)
{
	__builtin_memset(&thread->ustack, 0, sizeof(thread->ustack));
	thread->stack_state = stack_off;
}

#else

#define ustack_none(THREAD)
#define ustack_take(REGS, THREAD)

#endif

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Births and deaths of processes, by raw tracepoints: they need no tracefs.
 * An end costs a few stores; user space works out what it gave back.
 */
#ifndef IGSDK_LIFECYCLE_H
#define IGSDK_LIFECYCLE_H

#include "drain.h"
#include "events.h"
#include "python.h"

GLOBAL int process_end(u32 pid)
{
	u32 *found = bpf_map_lookup_elem(&process_slots, &pid);
	struct igsdk_process *row;
	u32 slot;

	if (!found)
		return 0;
	slot = *found;
	row = process_at(slot);
	/* two threads may see themselves as the last: the delete lets one through */
	if (!row || bpf_map_delete_elem(&process_slots, &pid))
		return 0;
	row->ended_at = bpf_ktime_get_boot_ns();
	row->ended = IGSDK_ENDED_PROCESS;
	forget_number(row->number);
	drain_process_end(row);
	emit_end(IGSDK_RECORD_PROCESS_END, slot, row->generation, 0);
	return 0;
}

/* A thread has exited; the process has when its last one has. */
static __always_inline void task_exited(struct task_struct *task)
{
	u32 pid = BPF_CORE_READ(task, tgid);

	if (BPF_CORE_READ(task, signal, live.counter))
		return;
	process_end(pid);
	bpf_map_delete_elem(&pids, &pid);
	bpf_map_delete_elem(&spaces, &pid);
}

/* What began under our eyes can't have allocated before; only the image must remember. */
static __always_inline bool note_birth(u32 pid)
{
	u32 flags = IGSDK_PID_BORN;

	return keep_rows && !bpf_map_update_elem(&pids, &pid, &flags, BPF_ANY);
}

/* A new image: the old one's memory is gone, what a thread knew is void. */
static __always_inline void task_executed(void)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	u32 *flags;

	process_end(pid);
	bpf_task_storage_delete(&threads, bpf_get_current_task_btf());
	flags = bpf_map_lookup_elem(&pids, &pid);
	if (flags)
		*flags = (*flags & ~IGSDK_PID_LATE) | IGSDK_PID_BORN;
	else
		note_birth(pid);
}

/*
 * In an exec a task gets its new name when the old image is gone and the new one not yet
 * there: what is said of the new one comes later and must stay.
 */
static __always_inline void task_renamed(struct task_struct *task)
{
	u32 pid = BPF_CORE_READ(task, tgid);

	if (BPF_CORE_READ_BITFIELD_PROBED(task, in_execve))
		bpf_map_delete_elem(&spaces, &pid);
}

/*
 * Children of a wanted process are wanted, and their code is where the parent's is. What
 * was said of an earlier process of the same number, too late for it, is not theirs.
 */
static __always_inline void task_forked(struct task_struct *parent, struct task_struct *child)
{
	u32 pid = BPF_CORE_READ(parent, tgid), child_pid = BPF_CORE_READ(child, tgid);
	struct igsdk_space *space;
	u32 *flags, wanted = IGSDK_PID_TRACKED;

	if (pid == child_pid)
		return;
	flags = bpf_map_lookup_elem(&pids, &pid);
	if (flags && *flags & IGSDK_PID_TRACKED)
		bpf_map_update_elem(&pids, &child_pid, &wanted, BPF_ANY);
	else if (!note_birth(child_pid))
		bpf_map_delete_elem(&pids, &child_pid);
	space = bpf_map_lookup_elem(&spaces, &pid);
	if (space)
		bpf_map_update_elem(&spaces, &child_pid, space, BPF_ANY);
	else
		bpf_map_delete_elem(&spaces, &child_pid);
}

#endif

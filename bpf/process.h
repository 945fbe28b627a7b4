/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which process a thread belongs to, whether it is wanted, and its row. */
#ifndef IGSDK_PROCESS_H
#define IGSDK_PROCESS_H

#include "settings.h"
#include "thread.h"

#define MAX_ANCESTORS 64
#define NODE_NAME_WORDS 8 /* the first 64 of 65 bytes; the last is the terminator */

static __always_inline u32 slot_take(void *free_slots, u32 *next, u32 max)
{
	u32 slot;

	if (!bpf_map_pop_elem(free_slots, &slot))
		return slot;
	if (*next >= max)
		return 0;
	slot = fetch_add(next, 1);
	return slot < max ? slot : 0;
}

static __always_inline struct igsdk_process *process_at(u32 slot)
{
	return bpf_map_lookup_elem(&processes, &slot);
}

/* What user space sees to elsewhere: nobody prepares slot 0 for Inspektor Gadget. */
static __always_inline void prepare_slot_0(void)
{
#ifdef IGSDK_GADGET
	u32 none = 0;
	struct igsdk_account *account = bpf_map_lookup_elem(&accounts, &none);
	struct igsdk_usage *usage = bpf_map_lookup_elem(&usages, &none);
	struct igsdk_process *process = process_at(none);

	if (!keep_rows || !account || !usage || !process)
		return;
	account->generation = usage->generation = process->generation = 1;
	account->key.device = usage->key.device = -1;
	account->overflow = true;
	process->usages = IGSDK_NO_INDEX;
#endif
}

/* The start of PID 1 and the node's name: the same for every runtime on this boot. */
static __noinline int identify_boot(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct uts_namespace *uts;
	u64 name[NODE_NAME_WORDS] = {};
	u64 hash;

	for (int i = 0; i < MAX_ANCESTORS && BPF_CORE_READ(task, tgid) > 1; i++)
		task = BPF_CORE_READ(task, real_parent);
	/* A parent is the thread that forked, and each thread has a start of its own. */
	task = BPF_CORE_READ(task, group_leader);
	uts = BPF_CORE_READ(task, nsproxy, uts_ns);
	bpf_core_read(name, sizeof(name), &uts->name.nodename);
	hash = igsdk_mix(0, BPF_CORE_READ(task, start_boottime));
	for (int i = 0; i < NODE_NAME_WORDS; i++)
		hash = igsdk_mix(hash, name[i]);
	prepare_slot_0();
	epoch = bpf_ktime_get_boot_ns();
	boot = hash | 1;
	return 0;
}

static __always_inline bool comm_wanted(const char *comm)
{
	for (int i = 0; i < IGSDK_COMM_LEN; i++) {
		if (comm[i] != targ_comm[i])
			return false;
		if (!comm[i])
			break;
	}
	return true;
}

/* Whether the process may have allocated before anybody looked. */
static __always_inline bool came_before(const u32 *flags)
{
	if (keep_rows)
		return !(flags && (*flags & IGSDK_PID_BORN));
	return flags && (*flags & IGSDK_PID_LATE);
}

static __always_inline bool ids_wanted(const struct igsdk_process *row)
{
#ifdef IGSDK_GADGET
	if (targ_pid && row->pid != targ_pid)
		return false;
	if (targ_uid != ANY_ID && row->uid != targ_uid)
		return false;
	if (targ_gid != ANY_ID && row->gid != targ_gid)
		return false;
#endif
	return true;
}

GLOBAL int process_wanted(struct igsdk_process *row)
{
	NEED(row);
	u64 mntns = row->mntns_id;
	u32 pid = row->pid;
	u32 *flags = bpf_map_lookup_elem(&pids, &pid);

	row->late = came_before(flags);
	if (filter_tracked && !(flags && (*flags & IGSDK_PID_TRACKED)))
		return false;
	if (gadget_filter_by_mntns && !bpf_map_lookup_elem(&gadget_mntns_filter_map, &mntns))
		return false;
	return ids_wanted(row) && (!targ_comm[0] || comm_wanted(row->comm));
}

static __always_inline u32 pid_in_own_namespace(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	u32 level = BPF_CORE_READ(pid, level);
	struct upid *upid = (void *)&pid->numbers[0] + level * bpf_core_type_size(struct upid);

	return BPF_CORE_READ(upid, nr);
}

GLOBAL int process_describe(struct igsdk_process *row)
{
	NEED(row);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	u64 ids = bpf_get_current_uid_gid();

	row->pid = bpf_get_current_pid_tgid() >> 32;
	row->ns_pid = pid_in_own_namespace(leader);
	row->start_ns = BPF_CORE_READ(leader, start_boottime);
	row->exec_id = BPF_CORE_READ(task, self_exec_id);
	row->mntns_id = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	row->cgroup_id = bpf_get_current_cgroup_id();
	row->uid = ids;
	row->gid = ids >> 32;
	/* the leader's: threads may have names of their own */
	bpf_core_read(row->comm, sizeof(row->comm), &leader->comm);
	row->instance =
		igsdk_mix(igsdk_mix(igsdk_mix(1, row->pid), row->start_ns), row->exec_id) | 1;
	return 0;
}

/* By its number a sweep sees whether what it finds belongs to a process that lives. */
static __always_inline void note_number(u32 number, u32 slot)
{
#ifdef IGSDK_GADGET
	bpf_map_update_elem(&numbers, &number, &slot, BPF_ANY);
#endif
}

static __always_inline void forget_number(u32 number)
{
#ifdef IGSDK_GADGET
	bpf_map_delete_elem(&numbers, &number);
#endif
}

/* Fills a row that is free or new. An odd generation says that it is in use. */
static __always_inline void process_publish(u32 slot, const struct igsdk_process *described)
{
	struct igsdk_process *row = process_at(slot);
	u32 generation;

	if (!row)
		return;
	generation = row->generation;
	__builtin_memcpy(row, described, sizeof(*row));
	row->usages = IGSDK_NO_INDEX;
	row->first_ns = bpf_ktime_get_boot_ns();
	row->number = fetch_add(&next_number, 1);
	row->generation = generation + 1;
	note_number(row->number, slot);
}

/* The slot of the current process, 0 (the global row) where the table is full. */
GLOBAL u32 process_create(const struct igsdk_process *described)
{
	NEED(described);
	u32 slot, *other, pid = described->pid;

	slot = slot_take(&free_processes, &next_process, processes_max);
	if (!slot) {
		count_loss(IGSDK_LOSS_PROCESSES_FULL);
		return 0;
	}
	process_publish(slot, described);
	if (!bpf_map_update_elem(&process_slots, &pid, &slot, BPF_NOEXIST))
		return slot;
	/* another thread was quicker: give the slot back */
	struct igsdk_process *row = process_at(slot);

	if (row) {
		forget_number(row->number);
		row->generation++;
	}
	bpf_map_push_elem(&free_processes, &slot, 0);
	other = bpf_map_lookup_elem(&process_slots, &pid);
	return other ? *other : 0;
}

GLOBAL int process_find(struct thread *thread)
{
	NEED(thread);
	struct igsdk_process described = {};
	struct igsdk_process *row;
	u32 *found, slot;

	if (!boot)
		identify_boot();
	process_describe(&described);
	thread->known = true;
	thread->ignored = !process_wanted(&described);
	if (thread->ignored)
		return 0;
	found = bpf_map_lookup_elem(&process_slots, &described.pid);
	slot = found ? *found : process_create(&described);
	row = process_at(slot);
	if (!row)
		return 0;
	thread->process = slot;
	thread->process_generation = row->generation;
	return 0;
}

/* The row of the thread's process; NULL where a filter leaves it out. */
static __always_inline struct igsdk_process *process_of(struct thread *thread)
{
	if (!thread->known)
		process_find(thread);
	return thread->ignored ? NULL : process_at(thread->process);
}

#endif

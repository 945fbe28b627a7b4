/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel types that the program reads, and of each only the members that it
 * reads. CO-RE finds the real offsets at load, so this is no copy of any kernel.
 */
#ifndef IGSDK_KERNEL_H
#define IGSDK_KERNEL_H

#include <linux/bpf.h>
#include <stdbool.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __s16 s16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define __always_unused __attribute__((unused))
#define CO_RE __attribute__((preserve_access_index))

/*
 * A function that the verifier looks at once and by itself, not again at each
 * call: that keeps loading quick. It takes no pointer on trust, and before Linux
 * 6.2 what such a pointer leads to can't be a map's key or value: copy it first.
 */
#define GLOBAL __attribute__((noinline))
#define NEED(POINTER)             \
	do {                      \
		if (!(POINTER))   \
			return 0; \
	} while (0)

struct super_block {
	u32 s_dev;
} CO_RE;

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
} CO_RE;

struct file {
	struct inode *f_inode;
} CO_RE;

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_pgoff;
	unsigned long vm_flags;
	struct file *vm_file;
} CO_RE;

struct ns_common {
	unsigned int inum;
} CO_RE;

struct mnt_namespace {
	struct ns_common ns;
} CO_RE;

struct new_utsname {
	char nodename[65];
} CO_RE;

struct uts_namespace {
	struct new_utsname name;
} CO_RE;

struct nsproxy {
	struct uts_namespace *uts_ns;
	struct mnt_namespace *mnt_ns;
} CO_RE;

struct pid_namespace {
	struct ns_common ns;
} CO_RE;

struct upid {
	int nr;
	struct pid_namespace *ns;
} CO_RE;

struct pid {
	unsigned int level;
	struct upid numbers[1];
} CO_RE;

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} CO_RE;

struct seccomp {
	int mode; /* 0 = none; no member without CONFIG_SECCOMP */
} CO_RE;

/* A call whose return probe is pending: its return address stands here, not on the stack. */
struct return_instance {
	unsigned long stack; /* where the address stood */
	unsigned long orig_ret_vaddr;
	bool chained; /* several probes on one call: the next one has the address */
	struct return_instance *next;
} CO_RE;

struct uprobe_task {
	struct return_instance *return_instances;
} CO_RE;

/* The thread pointer, by which C libraries and interpreters know a thread. */
#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
} CO_RE;
#else
struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
} CO_RE;
#endif

struct mm_struct {
	struct file *exe_file;
	unsigned long start_code;
	unsigned long start_stack;
} CO_RE;

struct task_struct {
	int pid;
	int tgid;
	u64 start_boottime;
	u64 self_exec_id;
	unsigned in_execve : 1;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	char comm[16];
	struct signal_struct *signal;
	struct nsproxy *nsproxy;
	struct pid *thread_pid;
	struct mm_struct *mm;
	struct uprobe_task *utask;
	struct seccomp seccomp;
	struct thread_struct thread;
} CO_RE;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} CO_RE;

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
} CO_RE;

#endif

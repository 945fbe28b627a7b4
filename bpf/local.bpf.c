// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The program as the local runtime loads it: one program per kind of link, which
 * finds its call by the attach cookie. One link for all functions is quick to
 * close where one per function is not.
 */
#include "calls.h"
#include "contract.h"
#include "lifecycle.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

extern bool bpf_session_is_return(void) __ksym __weak;

/* Entry and return of a call in one; 1 asks for no return (kernel 6.13 and later). */
SEC("uprobe")
int call_session(struct pt_regs *regs)
{
	if (bpf_session_is_return()) {
		call_leave(regs);
		return 0;
	}
	return !call_enter(regs, bpf_get_attach_cookie(regs));
}

SEC("uprobe")
int call_entry(struct pt_regs *regs)
{
	call_enter(regs, bpf_get_attach_cookie(regs));
	return 0;
}

SEC("uprobe")
int call_return(struct pt_regs *regs)
{
	call_leave(regs);
	return 0;
}

/* Empty programs on the same probes: the floor that benchmarks compare with. */
SEC("uprobe")
int floor_session(struct pt_regs *regs)
{
	return 0;
}

SEC("uprobe")
int floor_entry(struct pt_regs *regs)
{
	return 0;
}

SEC("uprobe")
int floor_return(struct pt_regs *regs)
{
	return 0;
}

SEC("raw_tp/sched_process_exit")
int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	task_exited((struct task_struct *)ctx->args[0]);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int on_exec(struct bpf_raw_tracepoint_args *ctx)
{
	task_executed();
	return 0;
}

SEC("raw_tp/task_rename")
int on_rename(struct bpf_raw_tracepoint_args *ctx)
{
	task_renamed((struct task_struct *)ctx->args[0]);
	return 0;
}

SEC("raw_tp/sched_process_fork")
int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	task_forked((struct task_struct *)ctx->args[0], (struct task_struct *)ctx->args[1]);
	return 0;
}

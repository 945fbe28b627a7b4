// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The program as the gadget's image carries it: what Inspektor Gadget loads, and the
 * local runtime too where it is told to. A pair of programs for each function, by
 * whose section it is found in a library; all of them jump into the same two, which
 * so are verified once and not a hundred times.
 */
#define IGSDK_GADGET
#include "calls.h"
#include "contract.h"
#include "lifecycle.h"
#include "sweep.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

GADGET_TRACER(events, cuda_events, cuda_event);
GADGET_MAPITER(heap, heap_rows);
GADGET_MAPITER(processes, process_rows);
GADGET_MAPITER(losses, loss_rows);
GADGET_PARAM(events_wanted);
GADGET_PARAM(collect_ustack);
GADGET_PARAM(collect_build_id);
GADGET_PARAM(collect_otel_stack);
GADGET_PARAM(ig_build_id_max_entries);
GADGET_PARAM(live_table_max_entries);
GADGET_PARAM(keep_ended_ms);
GADGET_PARAM(resend_ms);
GADGET_PARAM(targ_pid);
GADGET_PARAM(targ_uid);
GADGET_PARAM(targ_gid);
GADGET_PARAM(targ_comm);

enum handler {
	ENTER,
	LEAVE,
};

/* The local runtime attaches these two by cookie; a tail call brings the others here. */
SEC("uprobe/libcuda:igsdk_entry")
int call_entry(struct pt_regs *regs)
{
	u32 call = bpf_get_attach_cookie(regs);
	struct thread *thread;

	if (!call) {
		thread = thread_find();
		call = thread ? thread->noted : IGSDK_CALL_NONE;
	}
	if (call)
		call_enter(regs, call);
	return 0;
}

SEC("uretprobe/libcuda:igsdk_return")
int call_return(struct pt_regs *regs)
{
	call_leave(regs);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__array(values, int(struct pt_regs *));
} handlers SEC(".maps") = {
	.values =
		{
			[ENTER] = (void *)&call_entry,
			[LEAVE] = (void *)&call_return,
		},
};

static __always_inline void enter(struct pt_regs *regs, u32 call)
{
	struct thread *thread = stopped ? NULL : thread_get();

	if (!thread)
		return;
	thread->noted = call;
	bpf_tail_call(regs, &handlers, ENTER);
}

#define PROBES(SYMBOL, CALL)                           \
	SEC("uprobe/libcuda:" #SYMBOL)                 \
	int enter_##SYMBOL(struct pt_regs *regs)       \
	{                                              \
		enter(regs, CALL);                     \
		return 0;                              \
	}                                              \
                                                       \
	SEC("uretprobe/libcuda:" #SYMBOL)              \
	int leave_##SYMBOL(struct pt_regs *regs)       \
	{                                              \
		bpf_tail_call(regs, &handlers, LEAVE); \
		return 0;                              \
	}

FOR_EACH_CALL(PROBES)
FOR_EACH_TWIN(PROBES)

SEC("raw_tracepoint/sched_process_exit")
int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	task_exited((struct task_struct *)ctx->args[0]);
	return 0;
}

SEC("raw_tracepoint/sched_process_exec")
int on_exec(struct bpf_raw_tracepoint_args *ctx)
{
	task_executed();
	return 0;
}

SEC("raw_tracepoint/task_rename")
int on_rename(struct bpf_raw_tracepoint_args *ctx)
{
	task_renamed((struct task_struct *)ctx->args[0]);
	return 0;
}

SEC("raw_tracepoint/sched_process_fork")
int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	task_forked((struct task_struct *)ctx->args[0], (struct task_struct *)ctx->args[1]);
	return 0;
}

SEC("perf_event/tick")
int tick(void *ctx)
{
	sweep();
	return 0;
}

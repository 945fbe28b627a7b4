/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a probe to the handler of its call. Only the outermost hooked call of a
 * thread books. Which one that is follows from the stack pointer: a nested call
 * stands deeper, and a call whose return we never saw stands no higher than the
 * next one, so nothing is ever stuck.
 */
#ifndef IGSDK_CALLS_H
#define IGSDK_CALLS_H

#include "array.h"
#include "ipc.h"
#include "ustack.h"
#include "vmm.h"

#define NEVER_RETURNED ~0U
#define GRAPH_NODE_MEM_ALLOC 10 /* CU_GRAPH_NODE_TYPE_MEM_ALLOC */

/* Calls that may allocate: the ones whose stack is wanted. */
static __always_inline bool allocates(u32 call)
{
	switch (call) {
	case IGSDK_CALL_MEM_ALLOC:
	case IGSDK_CALL_MEM_ALLOC_V1:
	case IGSDK_CALL_MEM_ALLOC_PITCH:
	case IGSDK_CALL_MEM_ALLOC_PITCH_V1:
	case IGSDK_CALL_MEM_ALLOC_MANAGED:
	case IGSDK_CALL_MEM_ALLOC_HOST:
	case IGSDK_CALL_MEM_ALLOC_HOST_V1:
	case IGSDK_CALL_MEM_HOST_ALLOC:
	case IGSDK_CALL_MEM_HOST_REGISTER:
	case IGSDK_CALL_MEM_ALLOC_ASYNC:
	case IGSDK_CALL_MEM_ALLOC_FROM_POOL_ASYNC:
	case IGSDK_CALL_MEM_POOL_IMPORT_POINTER:
	case IGSDK_CALL_MEM_CREATE:
	case IGSDK_CALL_MEM_IMPORT_HANDLE:
	case IGSDK_CALL_ARRAY_CREATE:
	case IGSDK_CALL_ARRAY_CREATE_V1:
	case IGSDK_CALL_ARRAY_3D_CREATE:
	case IGSDK_CALL_ARRAY_3D_CREATE_V1:
	case IGSDK_CALL_MIPMAPPED_ARRAY_CREATE:
	case IGSDK_CALL_IPC_OPEN_MEM_HANDLE:
		return true;
	default:
		return false;
	}
}

static __always_inline void count_graph_node(u64 params)
{
	u32 type = 0;

	bpf_probe_read_user(&type, sizeof(type), (void *)params);
	if (type == GRAPH_NODE_MEM_ALLOC)
		count_loss(IGSDK_LOSS_NOT_BOOKED_GRAPH);
}

/* What must be seen or taken before the driver acts. */
static __noinline int prepare_rare(struct thread *thread, struct pt_regs *regs)
{
	switch (thread->call) {
	case IGSDK_CALL_MEM_HOST_UNREGISTER:
		return take(thread, thread->args[0], SPACE_REGISTERED);
	case IGSDK_CALL_IPC_CLOSE_MEM_HANDLE:
		return shared_closing(thread);
	case IGSDK_CALL_MEM_FREE_HOST:
		return take(thread, thread->args[0], SPACE_HOST);
	case IGSDK_CALL_ARRAY_DESTROY:
		return take(thread, thread->args[0], SPACE_ARRAY);
	case IGSDK_CALL_MIPMAPPED_ARRAY_DESTROY:
		return take(thread, thread->args[0], SPACE_MIPMAP);
	case IGSDK_CALL_MEM_RELEASE:
		return vmm_releasing(thread);
	case IGSDK_CALL_MEM_MAP:
		return vmm_mapping(thread);
	case IGSDK_CALL_MEM_UNMAP:
		return vmm_unmapping(thread);
	case IGSDK_CALL_ARRAY_CREATE:
	case IGSDK_CALL_ARRAY_CREATE_V1:
	case IGSDK_CALL_ARRAY_3D_CREATE:
	case IGSDK_CALL_ARRAY_3D_CREATE_V1:
	case IGSDK_CALL_MIPMAPPED_ARRAY_CREATE:
		return array_creating(thread, thread->call);
	case IGSDK_CALL_IPC_OPEN_MEM_HANDLE:
		thread->args[1] = shared_hash(ipc_handle_address(thread, regs));
		return 0;
	case IGSDK_CALL_CTX_DESTROY:
		take_handle(thread, thread->args[0], SPACE_CONTEXT);
		return 0;
	case IGSDK_CALL_MEM_POOL_DESTROY:
		take_handle(thread, thread->args[0], SPACE_POOL);
		return 0;
	case IGSDK_CALL_PRIMARY_CTX_RELEASE:
		return primary_leaving(thread, false);
	case IGSDK_CALL_PRIMARY_CTX_RESET:
		return primary_leaving(thread, true);
	case IGSDK_CALL_GRAPH_ADD_NODE:
		count_graph_node(thread->args[4]);
		return 0;
	case IGSDK_CALL_GRAPH_ADD_NODE_V2:
		count_graph_node(REGS_ARG6(regs));
		return 0;
	}
	return 0;
}

GLOBAL int finish_context(struct thread *thread, u32 result)
{
	NEED(thread);
	switch (thread->call) {
	case IGSDK_CALL_CTX_DESTROY:
		return context_destroyed(thread, result);
	case IGSDK_CALL_PRIMARY_CTX_RELEASE:
		return primary_left(thread, result, false);
	case IGSDK_CALL_PRIMARY_CTX_RESET:
		return primary_left(thread, result, true);
	case IGSDK_CALL_MEM_POOL_DESTROY:
		if (result)
			put_handle_back(thread);
		return 0;
	}
	if (result)
		return 0;
	switch (thread->call) {
	case IGSDK_CALL_CTX_CREATE:
		return context_created(thread, thread->args[0], thread->args[2]);
	case IGSDK_CALL_CTX_CREATE_V3:
		return context_created(thread, thread->args[0], thread->args[4]);
	case IGSDK_CALL_CTX_CREATE_V4:
		return context_created(thread, thread->args[0], thread->args[3]);
	case IGSDK_CALL_CTX_SET_CURRENT:
		context_set(thread, thread->args[0]);
		return 0;
	case IGSDK_CALL_CTX_PUSH_CURRENT:
		return context_push(thread, thread->args[0]);
	case IGSDK_CALL_CTX_POP_CURRENT:
		context_pop(thread);
		return 0;
	case IGSDK_CALL_PRIMARY_CTX_RETAIN:
		return primary_retained(thread);
	case IGSDK_CALL_DEVICE_GET_UUID:
		return device_told(thread);
	case IGSDK_CALL_MEM_POOL_CREATE:
		return pool_created(thread, thread->args[1] + POOL_PROPS_LOCATION);
	case IGSDK_CALL_MEM_GET_MEM_POOL:
		return pool_created(thread, thread->args[1]);
	case IGSDK_CALL_DEVICE_GET_MEM_POOL:
		return pool_of_device(thread);
	case IGSDK_CALL_MEM_POOL_EXPORT_POINTER:
	case IGSDK_CALL_IPC_GET_MEM_HANDLE:
		return shared_out(thread, thread->args[0], thread->args[1]);
	case IGSDK_CALL_GRAPH_ADD_MEM_ALLOC_NODE:
		count_loss(IGSDK_LOSS_NOT_BOOKED_GRAPH);
		return 0;
	case IGSDK_CALL_IMPORT_EXTERNAL_MEMORY:
		count_loss(IGSDK_LOSS_NOT_BOOKED_EXTERNAL);
		return 0;
	case IGSDK_CALL_MEM_MAP_ARRAY_ASYNC:
		count_loss(IGSDK_LOSS_NOT_BOOKED_SPARSE);
		return 0;
	}
	return 0;
}

GLOBAL int finish_special(struct thread *thread, u32 result)
{
	NEED(thread);
	switch (thread->call) {
	case IGSDK_CALL_MEM_CREATE:
		return vmm_created(thread, result);
	case IGSDK_CALL_MEM_IMPORT_HANDLE:
		return vmm_imported(thread, result);
	case IGSDK_CALL_MEM_RELEASE:
		return vmm_released(thread, result);
	case IGSDK_CALL_MEM_MAP:
		return vmm_mapped(thread, result);
	case IGSDK_CALL_MEM_UNMAP:
		return vmm_unmapped(thread, result);
	case IGSDK_CALL_MEM_RETAIN_HANDLE:
		return result ? 0 : vmm_retained(thread);
	case IGSDK_CALL_ARRAY_CREATE:
	case IGSDK_CALL_ARRAY_CREATE_V1:
	case IGSDK_CALL_ARRAY_3D_CREATE:
	case IGSDK_CALL_ARRAY_3D_CREATE_V1:
		return array_created(thread, result, SPACE_ARRAY);
	case IGSDK_CALL_MIPMAPPED_ARRAY_CREATE:
		return array_created(thread, result, SPACE_MIPMAP);
	case IGSDK_CALL_IPC_OPEN_MEM_HANDLE:
		return shared_in(thread, result, thread->args[1]);
	case IGSDK_CALL_IPC_CLOSE_MEM_HANDLE:
		return shared_closed(thread, result);
	case IGSDK_CALL_MEM_POOL_IMPORT_POINTER:
		return shared_in(thread, result, shared_hash(thread->args[2]));
	}
	return finish_context(thread, result);
}

GLOBAL int finish_plain(struct thread *thread, u32 result)
{
	NEED(thread);
	struct plain plain = {
		.bytes = thread->args[1],
		.kind = IGSDK_KIND_DEVICE,
		.host = IGSDK_HOST_OWN,
		.space = SPACE_POINTER,
		.pointer_size = 8,
	};

	switch (thread->call) {
	case IGSDK_CALL_MEM_ALLOC_V1:
		plain.bytes = (u32)plain.bytes;
		plain.pointer_size = 4;
		break;
	case IGSDK_CALL_MEM_ALLOC_MANAGED:
		plain.kind = IGSDK_KIND_MANAGED;
		plain.host = IGSDK_HOST_MANAGED;
		break;
	case IGSDK_CALL_MEM_ALLOC_HOST_V1:
		plain.bytes = (u32)plain.bytes;
		/* fallthrough */
	case IGSDK_CALL_MEM_ALLOC_HOST:
	case IGSDK_CALL_MEM_HOST_ALLOC:
		plain.kind = IGSDK_KIND_PINNED;
		plain.host = IGSDK_HOST_PINNED;
		plain.space = SPACE_HOST;
		break;
	}
	return allocated(thread, result, plain);
}

static __always_inline int finish(struct thread *thread, u32 result)
{
	switch (thread->call) {
	case IGSDK_CALL_MEM_ALLOC:
	case IGSDK_CALL_MEM_ALLOC_V1:
	case IGSDK_CALL_MEM_ALLOC_MANAGED:
	case IGSDK_CALL_MEM_ALLOC_HOST:
	case IGSDK_CALL_MEM_ALLOC_HOST_V1:
	case IGSDK_CALL_MEM_HOST_ALLOC:
		return finish_plain(thread, result);
	case IGSDK_CALL_MEM_FREE:
	case IGSDK_CALL_MEM_FREE_ASYNC:
	case IGSDK_CALL_MEM_FREE_HOST:
	case IGSDK_CALL_MEM_HOST_UNREGISTER:
	case IGSDK_CALL_ARRAY_DESTROY:
	case IGSDK_CALL_MIPMAPPED_ARRAY_DESTROY:
		return freed(thread, result, thread->args[0]);
	case IGSDK_CALL_MEM_FREE_V1:
		return freed(thread, result, (u32)thread->args[0]);
	case IGSDK_CALL_MEM_ALLOC_ASYNC:
		return pool_allocated(thread, result, false);
	case IGSDK_CALL_MEM_ALLOC_FROM_POOL_ASYNC:
		return pool_allocated(thread, result, true);
	case IGSDK_CALL_MEM_ALLOC_PITCH:
		return allocated_pitch(thread, result, 8);
	case IGSDK_CALL_MEM_ALLOC_PITCH_V1:
		return allocated_pitch(thread, result, 4);
	case IGSDK_CALL_MEM_HOST_REGISTER:
		return host_registered(thread, result);
	}
	return finish_special(thread, result);
}

static __always_inline void prepare(struct thread *thread, struct pt_regs *regs)
{
	switch (thread->call) {
	case IGSDK_CALL_MEM_FREE:
	case IGSDK_CALL_MEM_FREE_ASYNC:
		take(thread, thread->args[0], SPACE_POINTER);
		break;
	case IGSDK_CALL_MEM_FREE_V1:
		take(thread, (u32)thread->args[0], SPACE_POINTER);
		break;
	case IGSDK_CALL_MEM_ALLOC:
	case IGSDK_CALL_MEM_ALLOC_ASYNC:
		break;
	default:
		prepare_rare(thread, regs);
	}
}

/*
 * The call in flight never came to its return probe. Whether it did its work is
 * not known; what it took out of a table goes back.
 */
GLOBAL int abandon(struct thread *thread)
{
	NEED(thread);
	count_loss(IGSDK_LOSS_ABANDONED);
	thread->sp = 0;
	switch (thread->call) {
	case IGSDK_CALL_MEM_FREE:
	case IGSDK_CALL_MEM_FREE_V1:
	case IGSDK_CALL_MEM_FREE_ASYNC:
	case IGSDK_CALL_MEM_FREE_HOST:
	case IGSDK_CALL_MEM_HOST_UNREGISTER:
	case IGSDK_CALL_ARRAY_DESTROY:
	case IGSDK_CALL_MIPMAPPED_ARRAY_DESTROY:
		put_back(thread);
		return 0;
	case IGSDK_CALL_IPC_CLOSE_MEM_HANDLE:
		return shared_closed(thread, NEVER_RETURNED);
	case IGSDK_CALL_MEM_RELEASE:
		return vmm_released(thread, NEVER_RETURNED);
	case IGSDK_CALL_MEM_MAP:
		return vmm_mapped(thread, NEVER_RETURNED);
	case IGSDK_CALL_MEM_UNMAP:
		return vmm_unmapped(thread, NEVER_RETURNED);
	case IGSDK_CALL_CTX_DESTROY:
	case IGSDK_CALL_MEM_POOL_DESTROY:
		put_handle_back(thread);
		return 0;
	case IGSDK_CALL_PRIMARY_CTX_RELEASE:
		return primary_left(thread, NEVER_RETURNED, false);
	case IGSDK_CALL_PRIMARY_CTX_RESET:
		return primary_left(thread, NEVER_RETURNED, true);
	}
	return 0;
}

static __always_inline void save(struct thread *thread, struct pt_regs *regs, u32 call)
{
	thread->call = call;
	thread->sp = REGS_SP(regs);
	thread->args[0] = REGS_ARG1(regs);
	thread->args[1] = REGS_ARG2(regs);
	thread->args[2] = REGS_ARG3(regs);
	thread->args[3] = REGS_ARG4(regs);
	thread->args[4] = REGS_ARG5(regs);
	thread->entered = events_mode || keep_rows ? bpf_ktime_get_boot_ns() : 0;
}

/*
 * Where a return probe makes a system call that filters see, it may be the end of
 * a task that has one.
 */
static __always_inline bool must_spare(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return spare_filtered && bpf_core_field_exists(task->seccomp.mode) && task->seccomp.mode;
}

static __always_inline void take_stack(struct pt_regs *regs, struct thread *thread, u64 process)
{
	if (own_stacks)
		thread->stack = stack_take(regs, process);
	else
		ustack_take(regs, thread);
}

/* At entry. False where the return is of no interest. */
static __always_inline bool call_enter(struct pt_regs *regs, u32 call)
{
	struct thread *thread = stopped ? NULL : thread_get();
	struct igsdk_process *process = thread ? process_of(thread) : NULL;

	if (!process)
		return false;
	if (must_spare()) {
		count_loss(IGSDK_LOSS_SECCOMP);
		return false;
	}
	if (thread->sp) {
		if (REGS_SP(regs) < thread->sp) {
			count_loss(IGSDK_LOSS_NESTED);
			return false;
		}
		abandon(thread);
	}
	save(thread, regs, call);
	thread->stack = 0;
	ustack_none(thread);
	if (collect_ustack && allocates(call))
		take_stack(regs, thread, process->instance);
	prepare(thread, regs);
	return true;
}

static __always_inline void call_leave(struct pt_regs *regs)
{
	struct thread *thread = thread_find();

	if (!thread || !thread->sp || thread->sp != REGS_ENTRY_SP(regs))
		return;
	thread->sp = 0;
	finish(thread, REGS_RESULT(regs));
	event_flush(regs, thread);
}

#endif

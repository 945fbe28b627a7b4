/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Registers at a probe, by the C calling convention of each architecture. The
 * layout of struct pt_regs as a BPF program sees it is part of the user ABI.
 */
#ifndef IGSDK_REGS_H
#define IGSDK_REGS_H

#include "kernel.h"

#if defined(__TARGET_ARCH_x86)

struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
	u64 ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

#define REGS_ARG1(regs) ((regs)->di)
#define REGS_ARG2(regs) ((regs)->si)
#define REGS_ARG3(regs) ((regs)->dx)
#define REGS_ARG4(regs) ((regs)->cx)
#define REGS_ARG5(regs) ((regs)->r8)
#define REGS_ARG6(regs) ((regs)->r9)
#define REGS_RESULT(regs) ((regs)->ax)
#define REGS_IP(regs) ((regs)->ip)
#define REGS_SP(regs) ((regs)->sp)
#define REGS_FP(regs) ((regs)->bp)
/* The return has popped its address. */
#define REGS_ENTRY_SP(regs) ((regs)->sp - 8)

#elif defined(__TARGET_ARCH_arm64)

struct pt_regs {
	u64 regs[31], sp, pc, pstate;
};

#define REGS_ARG1(ctx) ((ctx)->regs[0])
#define REGS_ARG2(ctx) ((ctx)->regs[1])
#define REGS_ARG3(ctx) ((ctx)->regs[2])
#define REGS_ARG4(ctx) ((ctx)->regs[3])
#define REGS_ARG5(ctx) ((ctx)->regs[4])
#define REGS_ARG6(ctx) ((ctx)->regs[5])
#define REGS_RESULT(ctx) ((ctx)->regs[0])
#define REGS_IP(ctx) ((ctx)->pc)
#define REGS_SP(ctx) ((ctx)->sp)
#define REGS_FP(ctx) ((ctx)->regs[29])
#define REGS_LR(ctx) ((ctx)->regs[30])
#define REGS_ENTRY_SP(ctx) ((ctx)->sp)

#else
#error "build with -D__TARGET_ARCH_x86 or -D__TARGET_ARCH_arm64"
#endif

#define MAX_CHAINED 8

/*
 * Somebody else's return probe on the same call has put its own address where the
 * caller's stood. 0 where there is none.
 */
static __always_inline u64 replaced_return(u64 sp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct uprobe_task *probes = BPF_CORE_READ(task, utask);
	struct return_instance *pending = probes ? BPF_CORE_READ(probes, return_instances) : NULL;

	if (!pending || BPF_CORE_READ(pending, stack) != sp)
		return 0;
	for (int i = 0; i < MAX_CHAINED && pending && BPF_CORE_READ(pending, chained); i++)
		pending = BPF_CORE_READ(pending, next);
	return pending ? BPF_CORE_READ(pending, orig_ret_vaddr) : 0;
}

/* Where the caller will go on: the frame that a frame-pointer walk misses at entry. */
static __always_inline u64 return_address(struct pt_regs *regs)
{
	u64 address = replaced_return(REGS_SP(regs));

	if (address)
		return address;
#if defined(__TARGET_ARCH_x86)
	bpf_probe_read_user(&address, sizeof(address), (void *)REGS_SP(regs));
	return address;
#else
	return REGS_LR(regs);
#endif
}

#endif

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

/* The stack pointer's and the program counter's numbers in DWARF. */
#if defined(__TARGET_ARCH_x86)
#define REGISTER_SP 7
#define REGISTER_PC 16
#else
#define REGISTER_SP 31
#define REGISTER_PC 32
#endif

/* All registers that an unwinder may ask for, by their numbers in DWARF. */
static __always_inline void save_registers(u64 *into, const struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	into[0] = regs->ax;
	into[1] = regs->dx;
	into[2] = regs->cx;
	into[3] = regs->bx;
	into[4] = regs->si;
	into[5] = regs->di;
	into[6] = regs->bp;
	into[7] = regs->sp;
	into[8] = regs->r8;
	into[9] = regs->r9;
	into[10] = regs->r10;
	into[11] = regs->r11;
	into[12] = regs->r12;
	into[13] = regs->r13;
	into[14] = regs->r14;
	into[15] = regs->r15;
#else
	for (int i = 0; i < 31; i++)
		into[i] = regs->regs[i];
#endif
	into[REGISTER_SP] = REGS_SP(regs);
	into[REGISTER_PC] = REGS_IP(regs);
}

/* Where the call will return to, as it stands there: a return probe may have replaced it. */
static __always_inline u64 caller_address(const struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	u64 address = 0;

	bpf_probe_read_user(&address, sizeof(address), (void *)REGS_SP(regs));
	return address;
#else
	return REGS_LR(regs);
#endif
}

#endif

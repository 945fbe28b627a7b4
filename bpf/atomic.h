/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Atomic steps on 32 bits that tell what was there. Compilers have them only for
 * processors of version 3, which `ig image build` does not ask for; kernels have them
 * since 5.12. So here they are as instructions.
 */
#ifndef IGSDK_ATOMIC_H
#define IGSDK_ATOMIC_H

#include "kernel.h"

/* Returns what stood at `place`; `fresh` stands there now if that was `old`. */
static __always_inline u32 swap_if(u32 *place, u32 old, u32 fresh)
{
	register u64 r0 asm("r0") = old;
	register u32 *r1 asm("r1") = place;
	register u64 r2 asm("r2") = fresh;

	/* w0 = cmpxchg32(r1 + 0, w0, w2) */
	asm volatile(".8byte 0x000000f1000021c3" : "+r"(r0) : "r"(r1), "r"(r2) : "memory");
	return r0;
}

/* Returns what stood at `place` before. */
static __always_inline u32 fetch_add(u32 *place, u32 more)
{
	register u32 *r1 asm("r1") = place;
	register u64 r2 asm("r2") = more;

	/* w2 = atomic_fetch_add32(r1 + 0, w2) */
	asm volatile(".8byte 0x00000001000021c3" : "+r"(r2) : "r"(r1) : "memory");
	return r2;
}

#endif

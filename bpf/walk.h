/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Scratch memory in which a stack is taken: too much for a BPF stack. A piece of it
 * is claimed for the time of one probe. Two for each CPU: where the kernel preempts
 * a probe, another task may need one on the same CPU.
 */
#ifndef IGSDK_WALK_H
#define IGSDK_WALK_H

#include "process.h"

#define WALKS_PER_CPU 2
#define MAX_CPUS 512 /* the runtime sets the real number before load */
#define NO_WALK ~0U
#define PAGE_BYTES 4096
#define STACK_AREA (IGSDK_STACK_PAGES * PAGE_BYTES)
#define FRAME_AREA 128
#define CODE_AREA 256
#define TABLE_WORDS 8
#define FILE_WORDS 10

struct walk {
	u32 busy;
	u32 pages;	  /* of the stack, copied so far */
	u32 at_end;	  /* the page behind them can't be read */
	u32 offset;	  /* of the stack pointer in the copy */
	u64 python;	  /* hash of the Python frames, 0 = none */
	u64 self;	  /* what the interpreter knows this thread by */
	u64 window_page;  /* of which `window` is a copy, 0 = none */
	u64 code_address; /* of which `code` is a copy, 0 = none */
	u64 frame;	  /* where in `window` the Python frame lies */
	struct igsdk_capture head;
	u64 code[CODE_AREA / 8];
	u64 file_address; /* of the string that `file` begins as, 0 = none */
	u64 file_hash;
	u64 file[FILE_WORDS];
	u64 table[TABLE_WORDS]; /* what identifies a line table, and so its code */
	u64 window[PAGE_BYTES / 8];
	struct igsdk_python_frame frames[IGSDK_MAX_PYTHON];
	u64 types[IGSDK_MAX_PYTHON]; /* addresses of their classes, 0 = none */
	u64 stack[STACK_AREA / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RUNTIME_ENTRIES(MAX_CPUS *WALKS_PER_CPU));
	__type(key, u32);
	__type(value, struct walk);
} walks SEC(".maps");

static __always_inline struct walk *walk_at(u32 slot)
{
	return bpf_map_lookup_elem(&walks, &slot);
}

static __always_inline u32 walk_claim(void)
{
	u32 first = bpf_get_smp_processor_id() * WALKS_PER_CPU;

	for (u32 i = 0; i < WALKS_PER_CPU; i++) {
		struct walk *walk = walk_at(first + i);

		if (walk && !swap_if(&walk->busy, 0, 1))
			return first + i;
	}
	return NO_WALK;
}

static __always_inline void walk_release(struct walk *walk)
{
	swap_if(&walk->busy, 1, 0);
}

/* 0 where there is nothing to read. */
static __always_inline u64 user_word(u64 address)
{
	u64 word = 0;

	bpf_probe_read_user(&word, sizeof(word), (void *)address);
	return word;
}

#endif

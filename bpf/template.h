/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Native stacks that were unwound before are recognised by where their return
 * addresses stand: then neither a copy nor an unwind is needed.
 */
#ifndef IGSDK_TEMPLATE_H
#define IGSDK_TEMPLATE_H

#include "walk.h"

/* Two for each stack that a busy service has, and again for each of its threads. */
RECENT(templates, struct igsdk_template_key, struct igsdk_template, RUNTIME_ENTRIES(8192));

/* Copies the stack page by page: one big read fails whole where less is there. */
static __always_inline void copy_pages(struct walk *walk, u32 wanted)
{
	u64 page = walk->head.registers[REGISTER_SP] & ~(u64)(PAGE_BYTES - 1);

	for (u32 i = 0; i < IGSDK_STACK_PAGES; i++) {
		if (i >= wanted || walk->at_end)
			break;
		if (i < walk->pages)
			continue;
		if (bpf_probe_read_user((u8 *)walk->stack + i * PAGE_BYTES, PAGE_BYTES,
					(void *)(page + i * PAGE_BYTES))) {
			walk->at_end = true;
			break;
		}
		walk->pages = i + 1;
	}
}

/* Bytes of the copy from the stack pointer on. */
static __always_inline u32 copied_bytes(const struct walk *walk)
{
	return walk->pages ? walk->pages * PAGE_BYTES - walk->offset : 0;
}

static __always_inline bool template_fits(struct walk *walk, const struct igsdk_template *template)
{
	u32 first = (walk->offset / 8) & (PAGE_BYTES / 8 - 1);
	u64 hash = IGSDK_TEMPLATE_SEED;
	u32 n = template->n_slots;

	for (u32 i = 0; i < IGSDK_TEMPLATE_SLOTS; i++) {
		if (i >= n)
			break;
		hash = igsdk_mix(
			hash,
			walk->stack[first + (template->slots[i] & (IGSDK_STACK_BYTES / 8 - 1))]);
	}
	return hash == template->hash;
}

/* The template that the stack of a claimed walk fits goes into its head. */
GLOBAL int template_find(u32 slot, u32 way)
{
	struct walk *walk = walk_at(slot);
	struct igsdk_template_key key = {.way = way};
	struct igsdk_template *template;
	u64 id;

	if (!walk)
		return 0;
	key.process = walk->head.process;
	key.place = walk->head.place;
	key.space = walk->head.space;
	template = bpf_map_lookup_elem(&templates, &key);
	if (!template || !template->n_slots)
		return 0;
	id = template->id;
	copy_pages(walk, (walk->offset + template->bytes + PAGE_BYTES - 1) / PAGE_BYTES);
	if (copied_bytes(walk) < template->bytes || !template_fits(walk, template))
		return 0;
	if (*(volatile u64 *)&template->id != id) /* another took its place meanwhile */
		return 0;
	walk->head.template_id = id;
	walk->head.flags |= IGSDK_CAPTURE_TEMPLATE;
	return 1;
}

static __always_inline bool template_search(u32 slot)
{
	for (u32 way = 0; way < IGSDK_TEMPLATE_WAYS; way++)
		if (template_find(slot, way))
			return true;
	return false;
}

#endif

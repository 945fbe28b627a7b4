/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Arrays. The driver pads them; what is booked is what their descriptor asks
 * for. Sparse and deferred ones own no memory when they are made.
 */
#ifndef IGSDK_ARRAY_H
#define IGSDK_ARRAY_H

#include "memory.h"

#define ARRAY_LAYERED 0x01
#define ARRAY_CUBEMAP 0x04
#define ARRAY_SPARSE 0x40
#define ARRAY_DEFERRED 0x80
#define MAX_LEVELS 17 /* log2 of the largest extent, 65,536, plus one */

struct shape {
	u64 width;
	u64 height;
	u64 depth;
	u32 format;
	u32 channels;
	u32 flags;
	u32 levels;
};

/* Bytes of one element's channel by CUarray_format; 0 = not known, and so booked. */
static __always_inline u32 format_bytes(u32 format)
{
	switch (format) {
	case 0x01:
	case 0x08:
		return 1;
	case 0x02:
	case 0x09:
	case 0x10:
		return 2;
	case 0x03:
	case 0x0a:
	case 0x20:
		return 4;
	default:
		return 0;
	}
}

static __always_inline u64 at_least_one(u64 value)
{
	return value ? value : 1;
}

struct levels {
	u64 width;
	u64 height;
	u64 depth;
	u64 elements;
	u32 flat; /* layers stay as many at every level */
	u32 pad;
};

/* One level of a mipmap. A loop callback, since the verifier walks real loops out. */
static long add_level(u32 index, void *data)
{
	struct levels *at = data;
	u64 last = at->width | at->height | (at->flat ? 1 : at->depth);

	at->elements += at->width * at->height * at->depth;
	at->width = at_least_one(at->width / 2);
	at->height = at_least_one(at->height / 2);
	if (!at->flat)
		at->depth = at_least_one(at->depth / 2);
	/* the driver makes no level below a single element */
	return last == 1;
}

GLOBAL u64 shape_bytes(const struct shape *shape)
{
	NEED(shape);
	struct levels at = {
		.width = shape->width,
		.height = at_least_one(shape->height),
		.depth = at_least_one(shape->depth),
		.flat = shape->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP),
	};
	u32 size = format_bytes(shape->format);
	u32 levels = at_least_one(shape->levels);

	if (!size)
		count_loss(IGSDK_LOSS_FORMAT_UNKNOWN);
	bpf_loop(levels < MAX_LEVELS ? levels : MAX_LEVELS, add_level, &at, 0);
	return at.elements * size * shape->channels;
}

struct descriptor_v1 {
	u32 width, height, format, channels;
};

struct descriptor {
	u64 width, height;
	u32 format, channels;
};

struct descriptor_3d_v1 {
	u32 width, height, depth, format, channels, flags;
};

struct descriptor_3d {
	u64 width, height, depth;
	u32 format, channels, flags, pad;
};

/* The descriptor is read at entry: the caller may reuse it once the call runs. */
#define READ_SHAPE(TYPE, ADDRESS, SHAPE, FLAGS, DEPTH)                           \
	do {                                                                     \
		struct TYPE read = {};                                           \
		if (bpf_probe_read_user(&read, sizeof(read), (void *)(ADDRESS))) \
			count_loss(IGSDK_LOSS_READ_FAULT);                       \
		(SHAPE)->width = read.width;                                     \
		(SHAPE)->height = read.height;                                   \
		(SHAPE)->format = read.format;                                   \
		(SHAPE)->channels = read.channels;                               \
		(SHAPE)->depth = DEPTH;                                          \
		(SHAPE)->flags = FLAGS;                                          \
	} while (0)

GLOBAL int array_creating(struct thread *thread, u32 call)
{
	NEED(thread);
	u64 address = thread->args[1];
	struct shape shape = {.levels = 1};

	if (call == IGSDK_CALL_MIPMAPPED_ARRAY_CREATE)
		shape.levels = thread->args[2];
	if (call == IGSDK_CALL_ARRAY_CREATE)
		READ_SHAPE(descriptor, address, &shape, 0, 0);
	else if (call == IGSDK_CALL_ARRAY_CREATE_V1)
		READ_SHAPE(descriptor_v1, address, &shape, 0, 0);
	else if (call == IGSDK_CALL_ARRAY_3D_CREATE_V1)
		READ_SHAPE(descriptor_3d_v1, address, &shape, read.flags, read.depth);
	else
		READ_SHAPE(descriptor_3d, address, &shape, read.flags, read.depth);
	thread->args[1] = shape_bytes(&shape);
	thread->args[2] = shape.flags;
	return 0;
}

/* Known, so that its destruction isn't taken for an unknown one, and nothing to book. */
static __always_inline int array_without_memory(struct thread *thread, u32 space)
{
	struct live entry = {.account = IGSDK_NO_INDEX};
	struct live_key key;
	u64 array;

	count_loss(IGSDK_LOSS_NOT_BOOKED_SPARSE);
	if (read_handle(thread->args[0], &array))
		return 0;
	key = handle_key(thread, array, space);
	return live_insert(&key, &entry);
}

GLOBAL int array_created(struct thread *thread, u32 result, u32 space)
{
	NEED(thread);
	struct plain plain = {
		.bytes = thread->args[1],
		.kind = IGSDK_KIND_ARRAY,
		.space = space,
		.pointer_size = 8,
	};

	if (!result && thread->args[2] & (ARRAY_SPARSE | ARRAY_DEFERRED))
		return array_without_memory(thread, space);
	return allocated(thread, result, plain);
}

#endif

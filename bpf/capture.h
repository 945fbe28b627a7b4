/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a walk found goes up the ring, the names of its Python frames first. */
#ifndef IGSDK_CAPTURE_H
#define IGSDK_CAPTURE_H

#include "python.h"
#include "settings.h"
#include "template.h"

#define STRING_KIND 7
#define NAMES_MISSING 1 /* in the flags of a run over frames */

/* To wake somebody costs more than all the rest of taking a stack. */
static __always_inline u64 wake_reader(void)
{
	if (!reader_sleeps)
		return BPF_RB_NO_WAKEUP;
	reader_sleeps = false;
	return BPF_RB_FORCE_WAKEUP;
}

/* Of a text, all but its characters; where those stand. */
static __always_inline u64 describe_text(struct igsdk_python_string *text,
					 const struct igsdk_python *python, u64 object)
{
	u32 state = 0;

	text->object = object;
	text->length = 0;
	text->kind = text->taken = 0;
	if (bpf_probe_read_user(&text->length, sizeof(text->length),
				(void *)(object + python->string_length)) ||
	    bpf_probe_read_user(&state, sizeof(state), (void *)(object + python->string_state)))
		return 0;
	text->kind = (state >> (python->string_kind_shift & 31)) & STRING_KIND;
	if (state >> (python->string_ascii_bit & 31) & 1)
		return object + python->string_ascii_data;
	return object + python->string_data;
}

/* How many bytes were copied of an object that has so many. */
static __always_inline u32 take_bytes_of(u8 *into, u64 bytes, u32 room, u64 address)
{
	if (bytes > room)
		bytes = room;
	return bpf_probe_read_user(into, bytes, (void *)address) ? 0 : bytes;
}

/* Where a record has room for what, and how much. */
struct room {
	u8 *name;
	u8 *file;
	u8 *table;
	u32 name_size;
	u32 file_size;
	u32 table_size;
};

static __always_inline void fill_code(struct igsdk_code_head *head, struct room room,
				      struct walk *walk, const struct igsdk_python *python,
				      const struct code_key *key)
{
	u64 name = describe_text(&head->name, python, code_word(walk, python->code_name));
	u64 file = describe_text(&head->file, python, code_word(walk, python->code_file));

	head->process = key->process;
	head->code = key->code;
	head->check = key->check;
	head->pid = walk->head.pid;
	head->version = python->version;
	head->first_line = code_int(walk, python->code_first_line);
	head->table = code_word(walk, python->code_table);
	head->table_length = user_word(head->table + python->bytes_size);
	head->name.taken =
		take_bytes_of(room.name, head->name.length * head->name.kind, room.name_size, name);
	head->file.taken =
		take_bytes_of(room.file, head->file.length * head->file.kind, room.file_size, file);
	head->table_taken = take_bytes_of(room.table, head->table_length, room.table_size,
					  head->table + python->bytes_data);
}

static __noinline bool send_short_code(struct walk *walk, const struct igsdk_python *python,
				       const struct code_key *key)
{
	struct igsdk_code *record = bpf_ringbuf_reserve(&captures, sizeof(*record), 0);

	if (!record)
		return false;
	record->head.size = sizeof(*record);
	record->head.record = IGSDK_CAPTURE_CODE;
	fill_code(&record->head,
		  (struct room){record->name, record->file, record->table, IGSDK_NAME_BYTES,
				IGSDK_FILE_BYTES, IGSDK_TABLE_BYTES},
		  walk, python, key);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return true;
}

static __noinline bool send_long_code(struct walk *walk, const struct igsdk_python *python,
				      const struct code_key *key)
{
	struct igsdk_long_code *record = bpf_ringbuf_reserve(&captures, sizeof(*record), 0);

	if (!record)
		return false;
	record->head.size = sizeof(*record);
	record->head.record = IGSDK_CAPTURE_LONG_CODE;
	fill_code(&record->head,
		  (struct room){record->name, record->file, record->table, IGSDK_LONG_NAME_BYTES,
				IGSDK_LONG_FILE_BYTES, IGSDK_LONG_TABLE_BYTES},
		  walk, python, key);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return true;
}

static __always_inline bool text_fits(const struct igsdk_python *python, u64 object, u32 room)
{
	struct igsdk_python_string text;

	describe_text(&text, python, object);
	return text.length * text.kind <= room;
}

static __always_inline bool send_code(struct walk *walk, const struct igsdk_python *python,
				      const struct code_key *key)
{
	u64 table;
	bool sent;

	if (!read_code(walk, python, key->code))
		return false;
	table = code_word(walk, python->code_table);
	if (text_fits(python, code_word(walk, python->code_name), IGSDK_NAME_BYTES) &&
	    text_fits(python, code_word(walk, python->code_file), IGSDK_FILE_BYTES) &&
	    user_word(table + python->bytes_size) <= IGSDK_TABLE_BYTES)
		sent = send_short_code(walk, python, key);
	else
		sent = send_long_code(walk, python, key);
	if (!sent)
		count_loss(IGSDK_LOSS_CAPTURES);
	return sent;
}

static __always_inline bool send_class(const struct walk *walk, const struct code_key *key,
				       u64 name)
{
	struct igsdk_class *record = bpf_ringbuf_reserve(&captures, sizeof(*record), 0);
	long taken;

	if (!record) {
		count_loss(IGSDK_LOSS_CAPTURES);
		return false;
	}
	record->size = sizeof(*record);
	record->record = IGSDK_CAPTURE_CLASS;
	record->process = key->process;
	record->type = class_id(key->code, key->check);
	record->name_address = name;
	record->pid = walk->head.pid;
	taken = bpf_probe_read_user_str(record->name, sizeof(record->name), (void *)name);
	record->taken = taken > 0 ? taken : 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return true;
}

static __always_inline bool was_sent(const struct code_key *key)
{
	const struct code_state *known = bpf_map_lookup_elem(&codes, key);

	return known && known->sent;
}

static __always_inline void note_sent(const struct code_key *key)
{
	struct code_state *known = bpf_map_lookup_elem(&codes, key);
	struct code_state fresh = {.sent = true};

	if (known)
		known->sent = true;
	else
		bpf_map_update_elem(&codes, key, &fresh, BPF_ANY);
}

static __always_inline void send_class_of(struct frames *run, u64 type)
{
	u64 name = class_name_at(run->python, type);
	struct code_key key = {run->process, type, class_check(name)};

	if (was_sent(&key))
		return;
	if (send_class(run->walk, &key, name))
		note_sent(&key);
	else
		run->flags |= NAMES_MISSING;
}

static long names_step(u32 index, struct frames *run)
{
	struct walk *walk = run->walk;
	const struct igsdk_python *python = run->python;
	const struct igsdk_python_frame *frame;
	struct code_key key;

	if (!walk || !python || index >= run->n)
		return 1;
	frame = &walk->frames[index & (IGSDK_MAX_PYTHON - 1)];
	key = (struct code_key){run->process, frame->code, frame->check};
	if (!was_sent(&key)) {
		if (send_code(walk, python, &key))
			note_sent(&key);
		else
			run->flags |= NAMES_MISSING;
	}
	if (frame->type)
		send_class_of(run, walk->types[index & (IGSDK_MAX_PYTHON - 1)]);
	return 0;
}

/*
 * Names for all Python frames of a walk that the runtime was not told of yet. False
 * where some found no room.
 */
GLOBAL int send_names(u32 slot)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct igsdk_space *space = bpf_map_lookup_elem(&spaces, &pid);
	struct walk *walk = walk_at(slot);
	struct frames run = {.walk = walk};

	if (!walk || !space)
		return 0;
	run.python = &space->python;
	run.process = walk->head.process;
	run.n = walk->head.n_python;
	bpf_loop(IGSDK_MAX_PYTHON, names_step, &run, 0);
	return !(run.flags & NAMES_MISSING);
}

/* One record: head, Python frames, stack. False where the ring has no room. */
GLOBAL int send_stack(u32 slot)
{
	struct walk *walk = walk_at(slot);
	struct bpf_dynptr record;
	u32 frames, bytes, offset;

	if (!walk)
		return 0;
	frames = walk->head.n_python * sizeof(struct igsdk_python_frame);
	bytes = walk->head.stack_bytes;
	offset = walk->offset & (PAGE_BYTES - 8);
	if (frames > sizeof(walk->frames) || bytes > IGSDK_STACK_BYTES)
		return 0;
	walk->head.size = sizeof(walk->head) + frames + bytes;
	if (bpf_ringbuf_reserve_dynptr(&captures, walk->head.size, 0, &record)) {
		bpf_ringbuf_discard_dynptr(&record, 0);
		return 0;
	}
	bpf_dynptr_write(&record, 0, &walk->head, sizeof(walk->head), 0);
	bpf_dynptr_write(&record, sizeof(walk->head), walk->frames, frames, 0);
	bpf_dynptr_write(&record, sizeof(walk->head) + frames, (u8 *)walk->stack + offset, bytes,
			 0);
	bpf_ringbuf_submit_dynptr(&record, wake_reader());
	return 1;
}

#endif

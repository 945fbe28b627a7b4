/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a walk found goes up the ring, the names of its Python frames first. */
#ifndef IGSDK_CAPTURE_H
#define IGSDK_CAPTURE_H

#include "python.h"
#include "settings.h"
#include "template.h"

#define STRING_KIND 7

static __always_inline void take_string(struct igsdk_python_string *string, u8 *into, u32 room,
					const struct igsdk_python *python, u64 object)
{
	u32 state = 0;
	u64 bytes, data;

	__builtin_memset(string, 0, sizeof(*string));
	string->object = object;
	if (bpf_probe_read_user(&string->length, sizeof(string->length),
				(void *)(object + python->string_length)) ||
	    bpf_probe_read_user(&state, sizeof(state), (void *)(object + python->string_state)))
		return;
	string->kind = (state >> (python->string_kind_shift & 31)) & STRING_KIND;
	data = object + (state >> (python->string_ascii_bit & 31) & 1 ? python->string_ascii_data
								      : python->string_data);
	bytes = string->length * string->kind;
	if (bytes > room)
		bytes = room;
	if (!bpf_probe_read_user(into, bytes, (void *)data))
		string->taken = bytes;
}

static __always_inline void take_table(struct igsdk_code *record, const struct igsdk_python *python)
{
	u64 bytes = user_word(record->table + python->bytes_size);

	record->table_length = bytes;
	record->table_taken = 0;
	if (bytes > IGSDK_TABLE_BYTES)
		bytes = IGSDK_TABLE_BYTES;
	if (!bpf_probe_read_user(record->table_bytes, bytes,
				 (void *)(record->table + python->bytes_data)))
		record->table_taken = bytes;
}

static __always_inline bool send_code(struct walk *walk, const struct igsdk_python *python,
				      const struct code_key *key)
{
	struct igsdk_code *record;

	if (!read_code(walk, python, key->code))
		return false;
	record = bpf_ringbuf_reserve(&captures, sizeof(*record), 0);
	if (!record) {
		count_loss(IGSDK_LOSS_CAPTURES);
		return false;
	}
	record->size = sizeof(*record);
	record->record = IGSDK_CAPTURE_CODE;
	record->process = key->process;
	record->code = key->code;
	record->check = key->check;
	record->pid = walk->head.pid;
	record->space = walk->head.space;
	record->first_line = code_int(walk, python->code_first_line);
	record->table = code_word(walk, python->code_table);
	take_string(&record->name, record->name_bytes, IGSDK_NAME_BYTES, python,
		    code_word(walk, python->code_name));
	take_string(&record->file, record->file_bytes, IGSDK_FILE_BYTES, python,
		    code_word(walk, python->code_file));
	take_table(record, python);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return true;
}

static __always_inline bool send_class(const struct walk *walk, const struct code_key *key)
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
	record->type = key->code;
	record->name_address = key->check;
	record->pid = walk->head.pid;
	taken = bpf_probe_read_user_str(record->name, sizeof(record->name), (void *)key->check);
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
	struct code_key key = {run->process, type, user_word(type + run->python->type_name)};

	if (!was_sent(&key) && send_class(run->walk, &key))
		note_sent(&key);
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
	if (!was_sent(&key) && send_code(walk, python, &key))
		note_sent(&key);
	if (frame->type)
		send_class_of(run, frame->type);
	return 0;
}

/* Names for all Python frames of a walk that the runtime was not told of yet. */
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
	return 0;
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
	bpf_ringbuf_submit_dynptr(&record, BPF_RB_FORCE_WAKEUP);
	return 1;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python frames of the current thread, read where it stands still. Where the
 * interpreter keeps what comes from the runtime (struct igsdk_python); nothing that
 * is read from the process is trusted further than a bounded read goes.
 */
#ifndef IGSDK_PYTHON_H
#define IGSDK_PYTHON_H

#include "walk.h"

#define MAX_THREADS_SEARCHED 4096
#define MAX_STEPS (2 * IGSDK_MAX_PYTHON) /* -X perf puts a shim behind each frame */
#define THREAD_BYTES 192		 /* of a thread state, up to all that is asked of it */
#define TSS_SLOT_BYTES 16
#define TSS_FIRST_LEVEL 32
#define OWNED_BY_GENERATOR 1
#define SMALL_TABLE 64
#define TYPE_IS_TYPE (1ULL << 31) /* Py_TPFLAGS_TYPE_SUBCLASS */

/* Which code objects have gone up, and what their first argument is called. */
struct code_key {
	u64 process;
	u64 code; /* or a class */
	u64 check;
};

enum first_argument {
	FIRST_OTHER,
	FIRST_SELF,
	FIRST_CLS,
};

struct code_state {
	u8 sent;
	u8 first; /* enum first_argument */
};

RECENT(codes, struct code_key, struct code_state, RUNTIME_ENTRIES(65536));
TABLE(spaces, u32, struct igsdk_space, RUNTIME_ENTRIES(16384));

/* A frame or a code object lies in scratch memory; members by masked offset. */
static __always_inline u64 frame_word(const struct walk *walk, u16 offset)
{
	return *(u64 *)((const u8 *)walk->window + ((walk->frame + offset) & (PAGE_BYTES - 8)));
}

static __always_inline s32 frame_int(const struct walk *walk, u16 offset)
{
	return *(s32 *)((const u8 *)walk->window + ((walk->frame + offset) & (PAGE_BYTES - 4)));
}

static __always_inline u8 frame_byte(const struct walk *walk, u16 offset)
{
	return *((const u8 *)walk->window + ((walk->frame + offset) & (PAGE_BYTES - 1)));
}

static __always_inline u64 code_word(const struct walk *walk, u16 offset)
{
	return *(u64 *)((const u8 *)walk->code + (offset & (CODE_AREA - 8)));
}

static __always_inline s32 code_int(const struct walk *walk, u16 offset)
{
	return *(s32 *)((const u8 *)walk->code + (offset & (CODE_AREA - 4)));
}

static __always_inline bool has(u16 offset)
{
	return offset != IGSDK_NO_OFFSET;
}

/*
 * Frames of functions that call one another lie side by side, from 3.11 on: a whole
 * page is read, which costs hardly more than a frame does.
 */
static __always_inline bool read_page(struct walk *walk, u64 address, u32 size)
{
	u64 page = address & ~(u64)(PAGE_BYTES - 1);

	walk->frame = address & (PAGE_BYTES - 1);
	if (walk->frame > PAGE_BYTES - size || address % 8)
		return false;
	if (page == walk->window_page)
		return true;
	walk->window_page = 0;
	if (bpf_probe_read_user(walk->window, PAGE_BYTES, (void *)page))
		return false;
	walk->window_page = page;
	return true;
}

static __always_inline bool read_frame(struct walk *walk, const struct igsdk_python *python,
				       u64 address)
{
	u32 size = python->frame_size;

	if (size > FRAME_AREA)
		size = FRAME_AREA;
	if (python->flavour != IGSDK_PYTHON_OBJECTS && read_page(walk, address, size))
		return true;
	walk->window_page = walk->frame = 0;
	return !bpf_probe_read_user(walk->window, size, (void *)address);
}

static __always_inline bool read_code(struct walk *walk, const struct igsdk_python *python,
				      u64 address)
{
	u32 size = python->code_size;

	if (address == walk->code_address) /* a recursion */
		return true;
	if (size > CODE_AREA)
		size = CODE_AREA;
	walk->code_address = 0;
	if (bpf_probe_read_user(walk->code, size, (void *)address))
		return false;
	walk->code_address = address;
	return true;
}

/* Of so many bytes those that lie in a word; what stands behind them may change. */
static __always_inline u64 first_bytes(u64 word, u64 bytes)
{
	return bytes < 8 ? word & ((1ULL << 8 * (bytes & 7)) - 1) : word;
}

/*
 * The length and the first bytes of a code object's line table: a bytes object, of which
 * length, hash and bytes lie in a row. The hash comes and goes.
 */
static __always_inline u64 table_hash(struct walk *walk, const struct igsdk_python *python)
{
	u64 hash, size;

	if (bpf_probe_read_user(walk->table, sizeof(walk->table),
				(void *)(code_word(walk, python->code_table) + python->bytes_size)))
		return 0;
	hash = size = walk->table[0];
	for (u32 i = 2; i < TABLE_WORDS; i++) {
		if (8 * (i - 2) >= size)
			break;
		hash = igsdk_mix(hash, first_bytes(walk->table[i], size - 8 * (i - 2)));
	}
	return hash;
}

/*
 * Length and first characters of the string with a file's name, if they are ASCII. What
 * stands between them comes and goes. Functions that call one another often share it.
 */
static __always_inline u64 file_hash(struct walk *walk, const struct igsdk_python *python)
{
	u64 address = code_word(walk, python->code_file), hash, length;

	if (address == walk->file_address)
		return walk->file_hash;
	walk->file_address = address;
	walk->file_hash = 0;
	if (bpf_probe_read_user(walk->file, sizeof(walk->file),
				(void *)(address + python->string_length)))
		return 0;
	hash = length = walk->file[0];
	if (walk->file[2] >> (python->string_ascii_bit & 31) & 1) {
		for (u32 i = 4; i < FILE_WORDS; i++) {
			if (8 * (i - 4) >= length)
				break;
			hash = igsdk_mix(hash, first_bytes(walk->file[i], length - 8 * (i - 4)));
		}
	}
	walk->file_hash = hash;
	return hash;
}

/*
 * A code object's address may be used again, and all that it points to may come back at
 * the same addresses too. From 3.12 on a counter tells one from another.
 */
static __always_inline u64 code_check(struct walk *walk, const struct igsdk_python *python)
{
	u64 check = code_word(walk, python->code_file) * 0xc2b2ae3d27d4eb4fULL;
	u32 version = has(python->code_version) ? code_int(walk, python->code_version) : 0;

	check += code_word(walk, python->code_name) * 0x9e3779b97f4a7c15ULL;
	check += code_word(walk, python->code_table) * 0x165667b19e3779f9ULL;
	check = igsdk_mix(check, code_int(walk, python->code_first_line));
	if (version)
		return igsdk_mix(check, version);
	check = igsdk_mix(check, table_hash(walk, python));
	/* Small code is what programs make and drop, over and over, under other names. */
	return walk->table[0] > SMALL_TABLE ? check : check + file_hash(walk, python);
}

static __always_inline u64 thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#else
	return BPF_CORE_READ(task, thread.uw.tp_value);
#endif
}

static __always_inline u16 identity_offset(const struct igsdk_python *python)
{
	return has(python->thread_id) ? python->thread_id : python->thread_native_id;
}

/* The frame that a thread state leads to. */
static __always_inline u64 frame_behind(const struct igsdk_python *python, u64 frame)
{
	if (python->flavour == IGSDK_PYTHON_CFRAMES && frame)
		return user_word(frame + python->cframe_frame);
	return frame;
}

/* The thread state that the C library keeps for this thread; 0 where it can't be told. */
static __always_inline u64 thread_by_slot(struct igsdk_space *space, u64 self)
{
	const struct igsdk_python *python = &space->python;
	u64 slots = self + python->tss_slots;
	u32 key = space->tss_key - 1;

	if (!has(python->tss_key) || !has(python->tss_slots))
		return 0;
	if (!space->tss_key) {
		if (bpf_probe_read_user(&key, sizeof(key),
					(void *)(python->runtime + python->tss_key)))
			return 0;
		space->tss_key = key + 1;
	}
	if (key >= TSS_FIRST_LEVEL)
		slots = user_word(slots + TSS_FIRST_LEVEL * TSS_SLOT_BYTES +
				  8 * (key / TSS_FIRST_LEVEL));
	return slots ? user_word(slots + TSS_SLOT_BYTES * (key % TSS_FIRST_LEVEL) + 8) : 0;
}

/* Whether a thread state is this thread's; then where it keeps its frame. */
static __always_inline bool thread_is(struct walk *walk, const struct igsdk_python *python,
				      u64 thread, u64 self, u64 *frame)
{
	if (bpf_probe_read_user(walk->code, THREAD_BYTES, (void *)thread) ||
	    code_word(walk, identity_offset(python)) != self)
		return false;
	*frame = frame_behind(python, code_word(walk, python->thread_frame));
	return true;
}

/*
 * A 0 that the verifier does not know to be one. Before 6.8 it follows a loop's
 * callback once: there a plain 0 would stay 0 for it, and what the callback does
 * when it is something else would be cut out as never reached.
 */
static __always_inline u16 unknown_zero(struct walk *walk)
{
	walk->head.n_python = 0;
	return *(volatile u16 *)&walk->head.n_python;
}

struct search {
	struct walk *walk;
	struct igsdk_python *python;
	u64 self;
	u64 interpreter; /* to look at next */
	u64 thread;
	u64 frame; /* found */
};

/*
 * Several thread states may carry one thread's identity: those of subinterpreters.
 * The one that has a frame is the one that runs.
 */
static long search_step(u32 index, struct search *search)
{
	struct igsdk_python *python = search->python;
	struct walk *walk = search->walk;
	u64 frame = 0;

	if (!python || !walk)
		return 1;
	if (!search->thread) {
		if (!search->interpreter)
			return 1;
		search->thread = user_word(search->interpreter + python->interp_threads);
		search->interpreter = user_word(search->interpreter + python->interp_next);
		return 0;
	}
	if (thread_is(walk, python, search->thread, search->self, &frame) && frame) {
		search->frame = frame;
		return 1;
	}
	search->thread = user_word(search->thread + python->thread_next);
	return 0;
}

/* The innermost frame of the current thread, 0 where it runs no Python. */
static __always_inline u64 first_frame(struct walk *walk, struct igsdk_space *space)
{
	struct igsdk_python *python = &space->python;
	struct task_struct *task = bpf_get_current_task_btf();
	struct search search = {.walk = walk, .python = python};
	u64 heads[2] = {}; /* the newest interpreter, then the main one */
	u64 thread, frame = 0;

	if (bpf_probe_read_user(heads, sizeof(heads),
				(void *)(python->runtime + python->interpreters_head)) ||
	    !heads[0])
		return 0;
	search.self = has(python->thread_id) ? thread_pointer(task) : pid_in_own_namespace(task);
	if (heads[0] == heads[1]) {
		thread = thread_by_slot(space, search.self);
		if (thread && thread_is(walk, python, thread, search.self, &frame))
			return frame;
	}
	search.interpreter = heads[0];
	search.thread = unknown_zero(walk);
	bpf_loop(MAX_THREADS_SEARCHED, search_step, &search, 0);
	return search.frame;
}

/* Whether the first argument is called self or cls: what it is tells the class. */
static __always_inline u8 first_argument(const struct walk *walk, const struct igsdk_python *python)
{
	u64 name, length, text = 0;

	if (code_int(walk, python->code_argcount) <= 0)
		return FIRST_OTHER;
	name = user_word(code_word(walk, python->code_varnames) + python->tuple_items);
	length = user_word(name + python->string_length);
	if (length != 3 && length != 4)
		return FIRST_OTHER;
	bpf_probe_read_user(&text, 4, (void *)(name + python->string_ascii_data));
	if (length == 4 && text == 0x666c6573) /* "self" */
		return FIRST_SELF;
	return length == 3 && (text & 0xffffff) == 0x736c63 ? FIRST_CLS : FIRST_OTHER; /* "cls" */
}

static __always_inline u8 known_first_argument(const struct walk *walk,
					       const struct igsdk_python *python,
					       struct code_key *key)
{
	struct code_state *known = bpf_map_lookup_elem(&codes, key);
	struct code_state fresh = {};

	if (known)
		return known->first;
	fresh.first = first_argument(walk, python);
	bpf_map_update_elem(&codes, key, &fresh, BPF_NOEXIST);
	return fresh.first;
}

/* The class that a method runs for, where its code has no qualified name. 0 = none. */
static __always_inline u64 class_of_frame(const struct walk *walk,
					  const struct igsdk_python *python, u64 frame,
					  struct code_key *key)
{
	u8 first = known_first_argument(walk, python, key);
	u64 object, type;

	if (first == FIRST_OTHER)
		return 0;
	object = user_word(frame + python->frame_locals);
	type = object ? user_word(object + python->object_type) : 0;
	if (first == FIRST_SELF || !type)
		return type;
	return user_word(type + python->type_flags) & TYPE_IS_TYPE ? object : 0;
}

struct frames {
	struct walk *walk;
	struct igsdk_python *python;
	u64 process;
	u64 frame; /* to look at next */
	u64 hash;
	u32 n;
	u32 flags;
};

static __always_inline s32 instruction_offset(const struct walk *walk,
					      const struct igsdk_python *python, u64 code)
{
	if (python->flavour == IGSDK_PYTHON_OBJECTS)
		return frame_int(walk, python->frame_instruction) * python->lasti_scale;
	return frame_word(walk, python->frame_instruction) - (code + python->code_start);
}

/* Pushed, but not begun: Python itself does not show such a frame. */
static __always_inline bool has_begun(const struct walk *walk, const struct igsdk_python *python,
				      s32 lasti)
{
	if (!has(python->code_first_traceable))
		return true;
	return frame_byte(walk, python->frame_owner) == OWNED_BY_GENERATOR ||
	       lasti >= 2 * code_int(walk, python->code_first_traceable);
}

static __always_inline bool is_entry(const struct walk *walk, const struct igsdk_python *python)
{
	if (python->flavour == IGSDK_PYTHON_OBJECTS)
		return true;
	return has(python->frame_is_entry) && frame_byte(walk, python->frame_is_entry);
}

static __always_inline void mark_entry(struct frames *run)
{
	if (run->n)
		run->walk->frames[(run->n - 1) & (IGSDK_MAX_PYTHON - 1)].flags |=
			IGSDK_PYTHON_ENTRY;
}

static __always_inline bool is_shim(const struct walk *walk, const struct igsdk_python *python)
{
	return has(python->owner_shim) &&
	       frame_byte(walk, python->frame_owner) >= python->owner_shim;
}

/*
 * Other classes come and go at one address, and so do their names: a name says which it
 * is by where it lies and by how it begins.
 */
static __always_inline u64 class_check(u64 name)
{
	u64 text[4] = {};

	bpf_probe_read_user_str(text, sizeof(text), (void *)name);
	return igsdk_mix(igsdk_mix(name, text[0] ^ text[2]), igsdk_mix(text[1], text[3]));
}

static __always_inline u64 class_name_at(const struct igsdk_python *python, u64 type)
{
	return user_word(type + python->type_name);
}

static __always_inline u64 class_id(u64 type, u64 check)
{
	return igsdk_mix(type, check) | 1;
}

static __always_inline void add_frame(struct frames *run, u64 address, u64 code)
{
	struct walk *walk = run->walk;
	const struct igsdk_python *python = run->python;
	struct igsdk_python_frame *frame = &walk->frames[run->n & (IGSDK_MAX_PYTHON - 1)];
	struct code_key key = {run->process, code, code_check(walk, python)};
	s32 lasti = instruction_offset(walk, python, code);
	u64 type = 0;

	if (!has_begun(walk, python, lasti))
		return;
	if (python->flavour == IGSDK_PYTHON_OBJECTS)
		type = class_of_frame(walk, python, address, &key);
	frame->code = code;
	frame->check = key.check;
	frame->lasti = lasti;
	frame->flags = is_entry(walk, python) ? IGSDK_PYTHON_ENTRY : 0;
	frame->type = type ? class_id(type, class_check(class_name_at(python, type))) : 0;
	walk->types[run->n & (IGSDK_MAX_PYTHON - 1)] = type;
	run->hash = igsdk_mix(igsdk_mix(run->hash, code ^ frame->type), key.check + (u32)lasti);
	run->n++;
}

static long frame_step(u32 index, struct frames *run)
{
	const struct igsdk_python *python = run->python;
	struct walk *walk = run->walk;
	u64 address = run->frame, code;

	if (!walk || !python || !address)
		return 1;
	if (run->n >= IGSDK_MAX_PYTHON) {
		run->flags |= IGSDK_CAPTURE_PYTHON_CUT;
		return 1;
	}
	if (!read_frame(walk, python, address))
		goto fault;
	run->frame = frame_word(walk, python->frame_previous);
	if (is_shim(walk, python)) {
		mark_entry(run);
		return 0;
	}
	code = frame_word(walk, python->frame_code) & ~(u64)python->code_tag;
	if (!code || !read_code(walk, python, code))
		goto fault;
	add_frame(run, address, code);
	return 0;
fault:
	run->flags |= IGSDK_CAPTURE_PYTHON_FAULT;
	return 1;
}

/* Fills the frames of a claimed walk; its head says how far that went. */
GLOBAL int python_walk(u32 slot)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct igsdk_space *space = bpf_map_lookup_elem(&spaces, &pid);
	struct walk *walk = walk_at(slot);
	struct frames run = {.walk = walk};

	if (!walk || !space)
		return 0;
	walk->head.space = space->generation;
	if (space->python.flavour == IGSDK_PYTHON_NONE)
		return 0;
	run.python = &space->python;
	run.process = walk->head.process;
	run.flags = IGSDK_CAPTURE_PYTHON;
	run.n = unknown_zero(walk);
	walk->window_page = walk->code_address = walk->file_address = 0;
	run.frame = first_frame(walk, space);
	bpf_loop(MAX_STEPS, frame_step, &run, 0);
	if (run.frame && !(run.flags & IGSDK_CAPTURE_PYTHON_FAULT))
		run.flags |= IGSDK_CAPTURE_PYTHON_CUT;
	mark_entry(&run);
	if (run.flags & IGSDK_CAPTURE_PYTHON_FAULT)
		count_loss(IGSDK_LOSS_PYTHON_FAULT);
	walk->head.flags |= run.flags;
	walk->head.n_python = run.n;
	walk->python = igsdk_mix(run.hash, run.flags);
	return 0;
}

#endif

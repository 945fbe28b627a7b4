/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the runtime decides before load. Names with a meaning to Inspektor Gadget are its own. */
#ifndef IGSDK_SETTINGS_H
#define IGSDK_SETTINGS_H

#include "abi.h"
#include "kernel.h"
#include "sizes.h"

const volatile u32 events_mode = IGSDK_EVENTS_FAILURES;
const volatile bool collect_ustack = true;
const volatile bool use_templates = true; /* off: every stack is copied and unwound */
const volatile bool filter_tracked = false;
const volatile bool spare_filtered = false; /* no return probe for tasks under seccomp */
const volatile bool gadget_filter_by_mntns = false;
const volatile u32 accounts_max = ACCOUNTS;
const volatile u32 usages_max = USAGES;
const volatile u32 processes_max = PROCESSES;

#ifdef IGSDK_GADGET
#define ANY_ID 0xffffffffu

/* Off under Inspektor Gadget; the local runtime takes its own stacks and reads tables. */
const volatile bool own_stacks = false;
const volatile bool keep_rows = true;
const volatile u32 keep_ended_ms = 15000; /* for how long rows of what has ended are sent */
const volatile u32 resend_ms = 4000;	  /* rows that did not change are sent again */

const volatile gadget_comm targ_comm[IGSDK_COMM_LEN] = {};
const volatile gadget_pid targ_pid = 0;
const volatile gadget_uid targ_uid = ANY_ID;
const volatile gadget_gid targ_gid = ANY_ID;
const volatile char events_wanted[IGSDK_COMM_LEN] = "failures";
const volatile bool use_perf_buffer = false; /* as kernels without rings must */
const volatile bool collect_build_id = false;
const volatile bool collect_otel_stack = false;
const volatile int ig_build_id_max_entries = 1024;
const volatile int live_table_max_entries = LIVE_ENTRIES;
#else
#define own_stacks true
#define keep_rows false
const volatile char targ_comm[IGSDK_COMM_LEN] = {};
#endif

/* Set once, when a run stops: from that moment no call is booked any more. */
bool stopped SEC(".data.control");

/* Set by the reader of stacks when it goes to sleep: only then a record wakes it. */
u32 reader_sleeps SEC(".data.reader");

#endif

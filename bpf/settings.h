/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the runtime decides before load. Names with a meaning to Inspektor Gadget are its own. */
#ifndef IGSDK_SETTINGS_H
#define IGSDK_SETTINGS_H

#include "abi.h"
#include "kernel.h"

const volatile u32 events_mode = IGSDK_EVENTS_FAILURES;
const volatile bool collect_ustack = true;
const volatile bool use_templates = true; /* off: every stack is copied and unwound */
const volatile bool filter_tracked = false;
const volatile bool spare_filtered = false; /* no return probe for tasks under seccomp */
const volatile bool gadget_filter_by_mntns = false;
const volatile char targ_comm[IGSDK_COMM_LEN] = {};
const volatile u32 accounts_max = 65536;
const volatile u32 usages_max = 16384;
const volatile u32 processes_max = 4096;

/* Set once, when a run stops: from that moment no call is booked any more. */
bool stopped SEC(".data.control");

/* Set by the reader of stacks when it goes to sleep: only then a record wakes it. */
u32 reader_sleeps SEC(".data.reader");

#endif

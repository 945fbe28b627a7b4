/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a program and its runtime agree on beyond the maps: records of rings, numbers
 * of calls and of losses. Only code uses them, and so an object would not describe
 * them. This variable has it do so, by which a runtime tells a program that was
 * built for another version of itself.
 */
#ifndef IGSDK_CONTRACT_H
#define IGSDK_CONTRACT_H

#include "abi.h"

struct igsdk_contract {
	struct igsdk_event event;
	struct igsdk_capture capture;
	struct igsdk_code code;
	struct igsdk_long_code long_code;
	struct igsdk_class class_name;
	enum igsdk_record record;
	enum igsdk_capture_record capture_record;
	enum igsdk_capture_flags capture_flags;
	enum igsdk_python_flags python_flags;
	enum igsdk_python_flavour flavour;
	enum igsdk_kind kind;
	enum igsdk_host host;
	enum igsdk_ended ended;
	enum igsdk_event_mode events_mode;
	enum igsdk_pid_flags pid_flags;
	enum igsdk_call call;
	enum igsdk_loss loss;
};

const struct igsdk_contract *igsdk_contract_type __attribute__((unused));

#endif

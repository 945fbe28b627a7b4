// SPDX-License-Identifier: Apache-2.0
// Gives rows of processes that have ended back, and sweeps what can never match again.
#pragma once

#include "program.h"

#include <atomic>

namespace igsdk {

// Frees the rows of one ended process: its accounts, usage rows and itself.
// The caller has read their last totals. Returns how many accounts went.
uint32_t recycle_process(const Program &program, uint32_t slot);

// Deletes live entries of processes or contexts that have ended. Works in steps
// with pauses, so that nobody waits for it. Returns how many went.
uint64_t sweep_live(const Program &program, const std::atomic<bool> &stopping);

// Which devices processes were told of, as far as the table remembers.
std::vector<igsdk_device> read_devices(const Program &program);

} // namespace igsdk

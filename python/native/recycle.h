// SPDX-License-Identifier: Apache-2.0
// Gives rows of processes that have ended back, and sweeps what can never match again.
#pragma once

#include "program.h"

#include <atomic>

namespace igsdk {

// Frees the rows of ended processes, by slot: their accounts, usage rows and their own.
// The caller has read their last totals.
void recycle_processes(const Program &program, const std::vector<uint32_t> &slots);

struct AccountSlot {
    uint32_t slot;
    uint32_t generation;
};

// Frees accounts that were made for one call (IGSDK_KEY_FRESH) and of which nothing lives
// any more: all was freed, or the context has ended. Says for each whether it went. The
// caller has seen them so for a while, and read their last totals: by then no call that
// could book to one is on its way, since no other call has its key.
std::vector<bool> recycle_accounts(const Program &program, const std::vector<AccountSlot> &slots);

// Deletes live entries of processes or contexts that have ended. Works in steps
// with pauses, so that nobody waits for it. Returns how many went.
uint64_t sweep_live(const Program &program, const std::atomic<bool> &stopping);

// Which devices processes were told of, as far as the table remembers.
std::vector<igsdk_device> read_devices(const Program &program);

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
#include "replay.h"

#include <algorithm>
#include <unordered_set>

namespace igsdk {
namespace {

// An out-of-memory storm must not fill our own memory with pictures of it.
constexpr size_t max_snapshots = 64;

} // namespace

uint32_t Replay::group_of(const igsdk_account &row) {
    auto key = std::make_tuple(row.key.process, row.key.kind, row.key.host, row.key.device);
    auto [found, fresh] = group_index_.try_emplace(key, static_cast<uint32_t>(groups_.size()));
    if (fresh)
        groups_.push_back({row.key.process, 0, 0, row.key.kind, row.key.host, row.key.device, 0});
    return found->second;
}

// A slot goes to another account; what the old one held at the peak is kept.
void Replay::retire(uint32_t slot) {
    const Account &account = accounts_[slot];
    bool at_peak = account.peak_number == peak_number_ && account.peak_calls;
    if (!at_peak)
        return;
    if (retired_at_ != peak_number_)
        retired_.clear();
    retired_at_ = peak_number_;
    retired_.push_back({slot, account.generation, account.peak_bytes, account.peak_calls});
}

Replay::Account *Replay::find(uint32_t slot, uint32_t generation) {
    if (slot >= program_.accounts.size())
        return nullptr;
    if (slot >= accounts_.size())
        accounts_.resize(std::max<size_t>(slot + 1, accounts_.size() * 2));
    Account &account = accounts_[slot];
    if (account.generation == generation)
        return &account;
    const igsdk_account &row = program_.accounts[slot];
    if (row.generation != generation)
        return nullptr; // an account that is gone already
    retire(slot);
    uint32_t before = account.process;
    account = Account{};
    account.peak_number = peak_number_;
    account.generation = generation;
    account.group = group_of(row);
    account.context = row.key.context;
    account.host = row.key.host;
    account.process = row.process;
    if (before != row.process || !by_process_.count(row.process))
        by_process_[row.process].push_back(slot);
    return &account;
}

void Replay::move(Account &account, int64_t bytes, int64_t calls, uint64_t time) {
    if (account.peak_number != peak_number_) {
        account.peak_bytes = account.bytes;
        account.peak_calls = account.calls;
        account.peak_number = peak_number_;
    }
    account.bytes += static_cast<uint64_t>(bytes);
    account.calls += static_cast<uint64_t>(calls);
    GroupPeak &group = groups_[account.group];
    group.in_use += static_cast<uint64_t>(bytes);
    group.peak = std::max(group.peak, group.in_use);
    if (account.host != IGSDK_HOST_OWN)
        return;
    in_use_ += static_cast<uint64_t>(bytes);
    if (in_use_ <= peak)
        return;
    // every account's present value is its value at the new peak, until it changes
    peak = in_use_;
    peak_time = time;
    peak_number_++;
}

void Replay::end(const igsdk_event &event, bool whole_process) {
    auto found = by_process_.find(event.process);
    if (found == by_process_.end())
        return;
    for (uint32_t slot : found->second) {
        Account &account = accounts_[slot];
        bool ends = whole_process || account.context == event.address;
        bool its = account.process == event.process; // the slot may be another's by now
        if (its && ends && account.bytes + account.calls)
            move(account, -static_cast<int64_t>(account.bytes),
                 -static_cast<int64_t>(account.calls), event.time);
    }
    if (whole_process)
        by_process_.erase(found);
}

void Replay::remember(const igsdk_event &event) {
    if (snapshots_.size() >= max_snapshots)
        return;
    Snapshot snapshot{event.time, event.tid, {}};
    for (uint32_t slot = 0; slot < accounts_.size(); slot++)
        if (const Account &account = accounts_[slot]; account.bytes || account.calls)
            snapshot.held.push_back({slot, account.generation, account.bytes, account.calls});
    snapshots_.push_back(std::move(snapshot));
}

void Replay::play(const igsdk_event &event) {
    if (event.record == IGSDK_RECORD_PROCESS_END || event.record == IGSDK_RECORD_CONTEXT_END)
        return end(event, event.record == IGSDK_RECORD_PROCESS_END);
    Account *account = find(event.account, event.generation);
    if (!account)
        return;
    auto bytes = static_cast<int64_t>(event.bytes);
    if (event.record == IGSDK_RECORD_ALLOC)
        move(*account, bytes, 1, event.time);
    else if (event.record == IGSDK_RECORD_FREE)
        move(*account, -bytes, -1, event.time);
    else if (event.record == IGSDK_RECORD_FAILURE)
        remember(event);
}

std::vector<Held> Replay::at_peak() const {
    std::vector<Held> held;
    for (uint32_t slot = 0; slot < accounts_.size(); slot++) {
        const Account &account = accounts_[slot];
        bool changed_since = account.peak_number == peak_number_ && peak_number_;
        uint64_t bytes = changed_since ? account.peak_bytes : account.bytes;
        uint64_t calls = changed_since ? account.peak_calls : account.calls;
        if (bytes || calls)
            held.push_back({slot, account.generation, bytes, calls});
    }
    if (retired_at_ == peak_number_)
        held.insert(held.end(), retired_.begin(), retired_.end());
    return held;
}

std::vector<bool> Replay::remembers(const std::vector<uint64_t> &accounts) const {
    std::unordered_set<uint64_t> held;
    auto add = [&](const std::vector<Held> &some) {
        for (const Held &each : some)
            held.insert(static_cast<uint64_t>(each.account) << 32 | each.generation);
    };
    add(at_peak());
    for (const Snapshot &snapshot : snapshots_)
        add(snapshot.held);
    std::vector<bool> remembered;
    for (uint64_t account : accounts)
        remembered.push_back(held.count(account) != 0);
    return remembered;
}

const Snapshot *Replay::snapshot(uint64_t time, uint32_t tid) const {
    for (const Snapshot &snapshot : snapshots_)
        if (snapshot.time == time && snapshot.tid == tid)
            return &snapshot;
    return nullptr;
}

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// Plays events back in order, to know the peak and what stood at it.
#pragma once

#include "program.h"

#include <tuple>
#include <unordered_map>

namespace igsdk {

// What one account held at some moment. Same layout as _abi.LAYOUTS["held"].
struct Held {
    uint32_t account;
    uint32_t generation;
    uint64_t bytes;
    uint64_t calls;
};

// The highest in-use value of one process x kind x device. LAYOUTS["group_peak"].
struct GroupPeak {
    uint64_t process;
    uint64_t in_use;
    uint64_t peak;
    uint8_t kind;
    uint8_t host;
    int16_t device;
    uint32_t pad;
};

// State at a failure, found again by the event's time and thread.
struct Snapshot {
    uint64_t time;
    uint32_t tid;
    std::vector<Held> held;
};

class Replay {
  public:
    explicit Replay(const Program &program) : program_(program) {}
    void play(const igsdk_event &event);
    std::vector<Held> at_peak() const;
    std::vector<GroupPeak> group_peaks() const { return groups_; }
    const Snapshot *snapshot(uint64_t time, uint32_t tid) const;
    // Of accounts (slot << 32 | generation): which held something at the peak or at a
    // failure. Who holds nothing any more and nothing then never will.
    std::vector<bool> remembers(const std::vector<uint64_t> &accounts) const;
    uint64_t peak = 0;
    uint64_t peak_time = 0;

  private:
    struct Account {
        uint32_t generation = 0;
        uint32_t group = 0;
        uint32_t context = 0;
        uint32_t process = IGSDK_NO_INDEX; // slot
        uint8_t host = 0;
        uint64_t bytes = 0;
        uint64_t calls = 0;
        // what it held at the peak that was the newest when it last changed
        uint64_t peak_bytes = 0;
        uint64_t peak_calls = 0;
        uint64_t peak_number = 0;
    };

    Account *find(uint32_t slot, uint32_t generation);
    void retire(uint32_t slot);
    void move(Account &account, int64_t bytes, int64_t calls, uint64_t time);
    void end(const igsdk_event &event, bool whole_process);
    void remember(const igsdk_event &event);
    uint32_t group_of(const igsdk_account &row);

    const Program &program_;
    std::vector<Account> accounts_;
    std::unordered_map<uint32_t, std::vector<uint32_t>> by_process_;
    std::vector<GroupPeak> groups_;
    std::map<std::tuple<uint64_t, uint8_t, uint8_t, int16_t>, uint32_t> group_index_;
    std::vector<Snapshot> snapshots_;
    // what accounts held at the peak of that number whose slots were reused since
    std::vector<Held> retired_;
    uint64_t retired_at_ = 0;
    uint64_t in_use_ = 0;
    uint64_t peak_number_ = 0;
};

} // namespace igsdk

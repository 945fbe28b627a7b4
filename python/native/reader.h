// SPDX-License-Identifier: Apache-2.0
// Drains the ring of events in a thread of its own and keeps what Python will ask for.
#pragma once

#include "replay.h"

#include <atomic>

namespace igsdk {

// An event with its account's key, which may be another's before somebody asks for the
// event. Same layout as _abi.LAYOUTS["kept_event"].
struct KeptEvent {
    igsdk_event event;
    igsdk_account_key key;
};

class Reader {
  public:
    struct Limits {
        uint32_t keep = IGSDK_EVENTS_FAILURES; // which events to keep for Python
        size_t events = 1 << 20;               // kept at most; more are counted as lost
        int interval_ms = 20;
    };

    Reader(const Program &program, Limits limits);
    ~Reader();
    Reader(const Reader &) = delete;

    // Readable while there is something to take.
    int fileno() const { return ready_.get(); }
    const Fd &ready() const { return ready_; }
    // KeptEvents. Those of accounts that nobody knows are left out.
    std::string take_events();
    // Drains all that the kernel has handed up by now.
    void flush();

    struct Peak {
        uint64_t bytes;
        uint64_t time;
        std::vector<Held> held;
        std::vector<GroupPeak> groups;
    };
    Peak peak();
    std::vector<Held> state_at(uint64_t time, uint32_t tid, bool &known);
    std::vector<bool> remembers(const std::vector<uint64_t> &accounts);
    uint64_t lost_events() const { return lost_events_; }

  private:
    static int on_event(void *context, void *data, size_t size);
    void run();
    void keep(const igsdk_event &event);

    const Program &program_;
    Limits limits_;
    Replay replay_;
    ring_buffer *ring_ = nullptr;
    Fd ready_;
    std::mutex mutex_; // everything below, and the ring
    std::vector<KeptEvent> events_;
    std::atomic<uint64_t> lost_events_{0};
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

} // namespace igsdk

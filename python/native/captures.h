// SPDX-License-Identifier: Apache-2.0
// Drains the captures ring into the stack table, in a thread of its own: to unwind takes
// its time, and events must not wait for it.
//
// An event must find its stack. The kernel submits a stack before the event of the same
// call, so whoever has taken events finds their stacks in the table or in the ring: after
// the events, drain() empties the ring, and only then are stacks taken. The order in which
// the two threads get to run does not matter.
#pragma once

#include "program.h"
#include "stack_table.h"

#include <condition_variable>

namespace igsdk {

class Captures {
  public:
    // `ready` is signalled when there are stacks to take.
    Captures(const Program &program, MapWatch *watch, const Fd &ready, int interval_ms);
    ~Captures();
    Captures(const Captures &) = delete;

    // All that stands in the ring by now.
    void drain();
    StackTable &table() { return table_; }

  private:
    static int on_record(void *context, void *data, size_t size);
    void run();
    void serve();
    void choose_pace(uint64_t now);
    void wait();

    const Program &program_;
    StackTable table_;
    const Fd &ready_;
    const Fd wake_;
    std::atomic<uint64_t> latest_ns_{0}; // when there was something in the ring
    const int interval_ms_;
    const uint64_t ring_bytes_;
    uint64_t taken_bytes_ = 0;    // since the thread began to serve
    ring_buffer *ring_ = nullptr; // the thread's own
    std::atomic<uint64_t> asked_{0};
    std::mutex mutex_; // served_, finished_
    std::condition_variable served_more_;
    uint64_t served_ = 0;
    bool finished_ = false;
    uint64_t paced_ns_ = 0, used_ns_ = 0;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

} // namespace igsdk

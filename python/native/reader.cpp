// SPDX-License-Identifier: Apache-2.0
#include "reader.h"

#include <poll.h>

namespace igsdk {

Reader::Reader(const Program &program, Limits limits)
    : program_(program), limits_(limits), replay_(program), ready_(make_eventfd()) {
    ring_ = ring_buffer__new(program.map_fd("events"), on_event, this, nullptr);
    if (!ring_)
        throw ProgramError("opening the ring of events", errno);
    thread_ = start_quiet_thread([this] { run(); });
}

Reader::~Reader() {
    stopping_ = true;
    thread_.join();
    ring_buffer__free(ring_);
}

// A flood of events wakes nobody: it is drained by the clock. Where only failures are
// told, each of them wakes the poll.
void Reader::run() {
    while (!stopping_) {
        pollfd waiting{ring_buffer__epoll_fd(ring_), POLLIN, 0};
        poll(&waiting, 1, limits_.interval_ms);
        std::lock_guard<std::mutex> lock(mutex_);
        ring_buffer__consume(ring_);
    }
}

void Reader::flush() {
    std::lock_guard<std::mutex> lock(mutex_);
    ring_buffer__consume(ring_);
}

int Reader::on_event(void *context, void *data, size_t size) {
    auto *reader = static_cast<Reader *>(context);
    if (size < sizeof(igsdk_event))
        return 0;
    const auto &event = *static_cast<const igsdk_event *>(data);
    reader->replay_.play(event);
    reader->keep(event);
    return 0;
}

void Reader::keep(const igsdk_event &event) {
    bool wanted = limits_.keep == IGSDK_EVENTS_ALL ||
                  (limits_.keep == IGSDK_EVENTS_FAILURES && event.record == IGSDK_RECORD_FAILURE);
    if (!wanted || event.account >= program_.accounts.size())
        return;
    const igsdk_account &row = program_.accounts[event.account];
    if (row.generation != event.generation)
        return;
    if (events_.size() >= limits_.events) {
        lost_events_++;
        return;
    }
    if (events_.empty()) // who takes them takes all
        signal_eventfd(ready_);
    events_.push_back({event, row.key});
}

std::string Reader::take_events() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::string taken(reinterpret_cast<const char *>(events_.data()),
                      events_.size() * sizeof(KeptEvent));
    events_.clear();
    clear_eventfd(ready_);
    return taken;
}

Reader::Peak Reader::peak() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {replay_.peak, replay_.peak_time, replay_.at_peak(), replay_.group_peaks()};
}

std::vector<bool> Reader::remembers(const std::vector<uint64_t> &accounts) {
    std::lock_guard<std::mutex> lock(mutex_);
    return replay_.remembers(accounts);
}

std::vector<Held> Reader::state_at(uint64_t time, uint32_t tid, bool &known) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Snapshot *snapshot = replay_.snapshot(time, tid);
    known = snapshot != nullptr;
    return snapshot ? snapshot->held : std::vector<Held>{};
}

} // namespace igsdk

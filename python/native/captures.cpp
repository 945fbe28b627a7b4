// SPDX-License-Identifier: Apache-2.0
#include "captures.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace igsdk {
namespace {

constexpr uint64_t check_every_ns = 20'000'000;
// After a stack come others: for so long the ring is looked at by the clock, and the
// workload need not pay for waking anybody.
constexpr uint64_t awake_ns = 20'000'000;
constexpr timespec awake_interval{0, 200'000};
constexpr int hurried = -20;

timespec interval(int milliseconds) {
    return {milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
}

// A stack is copied at each call until it was unwound once: the sooner, the fewer copies.
void hurry() { setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), hurried); }

} // namespace

Captures::Captures(const Program &program, MapWatch *watch, const Fd &ready, int interval_ms)
    : program_(program), table_({program.map_fd("templates"), program.map_fd("spaces")}, watch),
      ready_(ready), interval_ms_(interval_ms),
      ring_(ring_buffer__new(program.map_fd("captures"), on_record, this, nullptr)) {
    if (!ring_)
        throw ProgramError("opening the ring of stacks", errno);
    thread_ = start_quiet_thread([this] { run(); });
}

Captures::~Captures() {
    stopping_ = true;
    thread_.join();
    ring_buffer__free(ring_);
}

// Wakes at the first stack after a pause: files are opened and names are read while the
// process lives.
void Captures::wait() {
    bool sleeps = clock_ns(CLOCK_MONOTONIC) >= latest_ns_ + awake_ns;
    program_.reader_sleeps[0] = sleeps;
    pollfd waiting{sleeps ? ring_buffer__epoll_fd(ring_) : -1, POLLIN, 0};
    timespec longest = sleeps ? interval(interval_ms_) : awake_interval;
    ppoll(&waiting, 1, &longest, nullptr);
}

void Captures::run() {
    hurry();
    uint64_t checked = 0;
    while (!stopping_) {
        wait();
        drain();
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        if (now < checked + check_every_ns)
            continue;
        checked = now;
        table_.check_spaces();
    }
}

void Captures::drain() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ring_buffer__consume(ring_) > 0)
        latest_ns_ = clock_ns(CLOCK_MONOTONIC);
}

int Captures::on_record(void *context, void *data, size_t size) {
    auto *captures = static_cast<Captures *>(context);
    if (captures->table_.take(data, size))
        signal_eventfd(captures->ready_);
    return 0;
}

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
#include "captures.h"

#include <bpf/bpf.h>
#include <chrono>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace igsdk {
namespace {

constexpr uint64_t check_every_ns = 20'000'000;
constexpr uint64_t pace_every_ns = 1'000'000'000;
// After a stack come others: for so long the ring is looked at by the clock, and the
// workload need not pay for waking anybody.
constexpr uint64_t awake_ns = 20'000'000;
constexpr timespec awake_interval{0, 200'000};
constexpr int hurried = -20;
constexpr std::chrono::seconds longest_wait{2};
// Nor may it keep a core from the workload for long: at this share of its time it is one
// thread among others, until it has less to do.
constexpr uint64_t busy_of_1000 = 300;

timespec interval(int milliseconds) {
    return {milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
}

void set_nice(int value) {
    setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), value);
}

uint32_t entries_of(int map) {
    bpf_map_info info{};
    uint32_t size = sizeof(info);
    if (bpf_obj_get_info_by_fd(map, &info, &size))
        throw ProgramError("asking for the size of the ring of stacks", errno);
    return info.max_entries;
}

} // namespace

Captures::Captures(const Program &program, MapWatch *watch, const Fd &ready, int interval_ms)
    : program_(program),
      table_({program.map_fd("templates"), program.map_fd("spaces"), program.map_fd("sent_stacks")},
             watch),
      ready_(ready), wake_(make_eventfd()), interval_ms_(interval_ms),
      ring_bytes_(entries_of(program.map_fd("captures"))),
      ring_(ring_buffer__new(program.map_fd("captures"), on_record, this, nullptr)) {
    if (!ring_)
        throw ProgramError("opening the ring of stacks", errno);
    thread_ = start_quiet_thread([this] { run(); });
}

Captures::~Captures() {
    stopping_ = true;
    signal_eventfd(wake_);
    thread_.join();
    ring_buffer__free(ring_);
}

// Wakes at the first stack after a pause: files are opened and names are read while the
// process lives.
void Captures::wait() {
    bool sleeps = clock_ns(CLOCK_MONOTONIC) >= latest_ns_ + awake_ns;
    program_.reader_sleeps[0] = sleeps;
    pollfd waiting[] = {{wake_.get(), POLLIN, 0},
                        {sleeps ? ring_buffer__epoll_fd(ring_) : -1, POLLIN, 0}};
    timespec longest = sleeps ? interval(interval_ms_) : awake_interval;
    ppoll(waiting, 2, &longest, nullptr);
}

void Captures::run() {
    uint64_t checked = 0;
    while (!stopping_) {
        wait();
        serve();
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        if (now < checked + check_every_ns)
            continue;
        checked = now;
        choose_pace(now);
        table_.check_spaces();
    }
    serve();
    std::lock_guard<std::mutex> lock(mutex_);
    finished_ = true;
    served_more_.notify_all();
}

// A stack is copied at each call until it was unwound once: the sooner, the fewer copies.
void Captures::choose_pace(uint64_t now) {
    if (now < paced_ns_ + pace_every_ns)
        return;
    uint64_t used = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    bool busy = (used - used_ns_) * 1000 > (now - paced_ns_) * busy_of_1000;
    paced_ns_ = now;
    used_ns_ = used;
    set_nice(busy ? 0 : hurried);
}

// To empty a ring that others fill as quickly has no end: as much as it holds is enough, for
// in that is all that stood there when somebody asked.
void Captures::serve() {
    clear_eventfd(wake_);
    uint64_t asked = asked_;
    taken_bytes_ = 0;
    if (ring_buffer__consume(ring_) != 0)
        latest_ns_ = clock_ns(CLOCK_MONOTONIC);
    std::lock_guard<std::mutex> lock(mutex_);
    served_ = asked;
    served_more_.notify_all();
}

// The caller, who may have to wait long for a processor, must not stand between the ring
// and the thread that goes before others.
void Captures::drain() {
    uint64_t ticket = ++asked_;
    signal_eventfd(wake_);
    std::unique_lock<std::mutex> lock(mutex_);
    // what holds that thread must not hold the caller for ever: it goes on with what is there
    served_more_.wait_for(lock, longest_wait, [&] { return served_ >= ticket || finished_; });
}

int Captures::on_record(void *context, void *data, size_t size) {
    auto *captures = static_cast<Captures *>(context);
    if (captures->table_.take(data, size))
        signal_eventfd(captures->ready_);
    captures->taken_bytes_ += size;
    return captures->taken_bytes_ < captures->ring_bytes_ ? 0 : -EAGAIN;
}

} // namespace igsdk

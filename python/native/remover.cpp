// SPDX-License-Identifier: Apache-2.0
#include "remover.h"

#include <algorithm>
#include <climits>
#include <csignal>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace igsdk {
namespace {

constexpr unsigned int without_close_range = 4096; // where a sandbox denies that call

// All signals are blocked; a process that is made meanwhile keeps it so.
class BlockedSignals {
  public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

// By system call: no handler of any library runs, and no SIGCHLD comes of it, nor does
// a wait() of the program that we are part of see it.
pid_t fork_quietly() { return static_cast<pid_t>(syscall(SYS_clone, 0, 0, 0, 0, 0)); }

// From `first` to before `end`.
void close_from_to(unsigned int first, unsigned int end) {
    if (first >= end || syscall(SYS_close_range, first, end - 1, 0) == 0)
        return;
    for (unsigned int fd = first; fd < std::min(end, without_close_range); fd++)
        ::close(static_cast<int>(fd));
}

void close_all_but(const std::vector<int> &kept) {
    unsigned int next = 0;
    for (int fd : kept) {
        close_from_to(next, static_cast<unsigned int>(fd));
        next = static_cast<unsigned int>(fd) + 1;
    }
    close_from_to(next, UINT_MAX);
}

// The end of the process closes what it keeps, after it has given back its memory.
[[noreturn]] void keep_until_closed(const std::vector<int> &kept, int ours) {
    setsid();
    prctl(PR_SET_NAME, "igsdk-detach");
    [[maybe_unused]] int root = chdir("/");
    close_all_but(kept);
    char byte;
    while (::read(ours, &byte, 1) < 0 && errno == EINTR) {
    }
    ::close(ours);
    _exit(0);
}

// What the process in between does: it starts the one that stays, and tells its id.
[[noreturn]] void start_keeper(const std::vector<int> &kept, int ours, int told) {
    pid_t keeper = fork_quietly();
    if (keeper == 0)
        keep_until_closed(kept, ours);
    [[maybe_unused]] ssize_t n = ::write(told, &keeper, sizeof(keeper));
    _exit(0);
}

struct Pipe {
    Fd reader, writer;
    Pipe() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC))
            return;
        reader.reset(ends[0]);
        writer.reset(ends[1]);
    }
    explicit operator bool() const { return static_cast<bool>(reader); }
};

// -1 where it could not be started.
pid_t read_keeper(const Fd &told) {
    pid_t keeper = -1;
    ssize_t n;
    while ((n = ::read(told.get(), &keeper, sizeof(keeper))) < 0 && errno == EINTR) {
    }
    return n == sizeof(keeper) ? keeper : -1;
}

std::vector<int> numbers(const std::vector<Fd> &descriptors, const Fd &and_this) {
    std::vector<int> result{and_this.get()};
    for (const Fd &fd : descriptors)
        result.push_back(fd.get());
    std::sort(result.begin(), result.end());
    return result;
}

} // namespace

Fd close_elsewhere(std::vector<Fd> &descriptors) {
    Pipe open, told;
    if (!open || !told)
        return {};
    std::vector<int> kept = numbers(descriptors, open.reader);
    BlockedSignals blocked;
    pid_t between = fork_quietly();
    if (between == 0)
        start_keeper(kept, open.reader.get(), told.writer.get());
    told.writer.reset();
    pid_t keeper = between > 0 ? read_keeper(told.reader) : -1;
    while (between > 0 && waitpid(between, nullptr, __WALL) < 0 && errno == EINTR) {
    }
    // it lives until `open` is closed, so that the id is its own
    Fd process(keeper > 0 ? static_cast<int>(syscall(SYS_pidfd_open, keeper, 0)) : -1);
    if (process)
        descriptors.clear();
    return process;
}

} // namespace igsdk

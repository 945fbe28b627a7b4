// SPDX-License-Identifier: Apache-2.0
// Small things that all parts need: owned descriptors, OSError, quiet threads.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace igsdk {

// A file descriptor that is closed with its owner.
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd &&other) noexcept : fd_(other.release()) {}
    Fd &operator=(Fd &&other) noexcept {
        reset(other.release());
        return *this;
    }
    Fd(const Fd &) = delete;
    Fd &operator=(const Fd &) = delete;
    ~Fd() { reset(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    int release() { return std::exchange(fd_, -1); }
    void reset(int fd = -1) {
        if (fd_ >= 0)
            ::close(fd_);
        fd_ = fd;
    }

  private:
    int fd_ = -1;
};

// Raises OSError with errno; the caller holds the GIL. Defined beside what knows
// Python: most parts compile without it, which is much quicker.
[[noreturn]] void throw_errno(const char *what, int error = errno);

inline Fd make_eventfd() {
    Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd)
        throw_errno("eventfd");
    return fd;
}

inline void signal_eventfd(const Fd &fd) {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t n = ::write(fd.get(), &one, sizeof(one));
}

inline void clear_eventfd(const Fd &fd) {
    uint64_t value;
    [[maybe_unused]] ssize_t n = ::read(fd.get(), &value, sizeof(value));
}

// A thread that never takes a signal: they belong to Python's main thread.
template <typename Body> std::thread start_quiet_thread(Body body) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct Restore {
        sigset_t *mask;
        ~Restore() { pthread_sigmask(SIG_SETMASK, mask, nullptr); }
    } restore{&before};
    return std::thread(std::move(body));
}

inline uint64_t clock_ns(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// The part of a path behind its last slash, without the mark that the kernel
// appends to the name of a deleted file.
inline std::string plain_basename(const std::string &path) {
    static const std::string deleted = " (deleted)";
    std::string name = path.substr(path.find_last_of('/') + 1);
    if (name.size() > deleted.size() &&
        name.compare(name.size() - deleted.size(), deleted.size(), deleted) == 0)
        name.resize(name.size() - deleted.size());
    return name;
}

template <typename Prefixes> bool has_prefix(const std::string &name, const Prefixes &prefixes) {
    for (const auto &prefix : prefixes)
        if (name.compare(0, prefix.size(), prefix) == 0)
            return true;
    return false;
}

} // namespace igsdk

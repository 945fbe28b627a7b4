// SPDX-License-Identifier: Apache-2.0
// Starts a command that waits, in a mount namespace of its own, until it is told to go.
//
// In C++ because between fork and exec only async-signal-safe calls are allowed in a
// process with threads, and Python code is none.
#include "parts.h"
#include "support.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <optional>
#include <pybind11/stl.h>
#include <sched.h>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tuple>
#include <vector>

namespace py = pybind11;

namespace igsdk {
namespace {

using Identity = std::tuple<uid_t, gid_t, std::vector<gid_t>>;

// What the child tells through its status pipe; a pipe that closes means that it runs.
enum Stage : int32_t { kReady, kNamespace, kIdentity, kExec };
struct Report {
    int32_t stage;
    int32_t error;
};

// Descriptors that other threads may open between our look and the fork.
constexpr int kSlack = 1024;

std::vector<char *> pointers(std::vector<std::string> &strings) {
    std::vector<char *> result;
    for (std::string &string : strings)
        result.push_back(string.data());
    result.push_back(nullptr);
    return result;
}

int highest_descriptor() {
    int highest = 1023;
    DIR *folder = ::opendir("/proc/self/fd");
    if (!folder)
        return highest + kSlack;
    while (const dirent *entry = ::readdir(folder))
        highest = std::max(highest, std::atoi(entry->d_name));
    ::closedir(folder);
    return highest + kSlack;
}

// Everything that the child needs, made before the fork: it must not allocate.
struct Plan {
    std::vector<std::string> candidates, arguments, environment;
    std::optional<Identity> identity;
    bool new_mounts = false;
    std::vector<int> restored_signals;
    int go = -1, status = -1, highest = 0;
    sigset_t mask{};
    std::vector<char *> argv, envp, shell_argv;

    void prepare() {
        argv = pointers(arguments);
        envp = pointers(environment);
        // sh, the script, then the arguments behind the command's own name
        shell_argv = {const_cast<char *>("/bin/sh"), nullptr};
        shell_argv.insert(shell_argv.end(), argv.begin() + 1, argv.end());
        highest = highest_descriptor();
    }
};

void tell(const Plan &plan, int32_t stage, int error) {
    Report report{stage, error};
    [[maybe_unused]] ssize_t n = ::write(plan.status, &report, sizeof(report));
}

[[noreturn]] void fail(const Plan &plan, int32_t stage, int error) {
    tell(plan, stage, error);
    ::_exit(127);
}

// What exec would close is closed at once: were we to die while the child waits, a copy
// of the fanotify group in the child would make its own exec wait for an answer for ever.
void close_ours(const Plan &plan) {
    for (int fd = 0; fd <= plan.highest; fd++) {
        int flags = ::fcntl(fd, F_GETFD);
        if (flags >= 0 && (flags & FD_CLOEXEC) && fd != plan.go && fd != plan.status)
            ::close(fd);
    }
}

void wait_for_go(const Plan &plan) {
    char byte;
    while (::read(plan.go, &byte, 1) < 0 && errno == EINTR) {
    }
}

// By system call: the C library's wrappers would try to change other threads too.
bool become(const Identity &identity) {
    const auto &[uid, gid, groups] = identity;
    return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0 &&
           ::syscall(SYS_setresgid, gid, gid, gid) == 0 &&
           ::syscall(SYS_setresuid, uid, uid, uid) == 0;
}

// Signals that were ignored before us stay so; those that Python ignores for itself,
// and those with handlers, become default. Setting SIG_IGN first drops what is pending.
void reset_signals(const Plan &plan) {
    struct sigaction fresh{};
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction now;
        if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN &&
            now.sa_handler != SIG_DFL)
            ::sigaction(signal, &fresh, nullptr);
    }
    for (int signal : plan.restored_signals) {
        fresh.sa_handler = SIG_IGN;
        ::sigaction(signal, &fresh, nullptr);
        fresh.sa_handler = SIG_DFL;
        ::sigaction(signal, &fresh, nullptr);
    }
    ::sigprocmask(SIG_SETMASK, &plan.mask, nullptr);
}

// A file without a known format is a shell script, unless its first line holds a zero.
bool looks_like_script(const char *path) {
    char start[256];
    int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : ::read(fd, start, sizeof(start));
    if (fd >= 0)
        ::close(fd);
    if (n < 0)
        return false;
    const void *line = std::memchr(start, '\n', static_cast<size_t>(n));
    size_t length = line ? static_cast<size_t>(static_cast<const char *>(line) - start)
                         : static_cast<size_t>(n);
    return std::memchr(start, 0, length) == nullptr;
}

[[noreturn]] void execute(Plan &plan) {
    int error = ENOENT;
    for (std::string &candidate : plan.candidates) {
        ::execve(candidate.c_str(), plan.argv.data(), plan.envp.data());
        if (errno == ENOEXEC && looks_like_script(candidate.c_str())) {
            plan.shell_argv[1] = candidate.data();
            ::execve(plan.shell_argv[0], plan.shell_argv.data(), plan.envp.data());
            errno = ENOEXEC;
        }
        if (errno == EACCES)
            error = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR && errno != ENODEV)
            fail(plan, kExec, errno);
    }
    fail(plan, kExec, error);
}

[[noreturn]] void child(Plan &plan) {
    close_ours(plan);
    if (plan.new_mounts && ::unshare(CLONE_NEWNS) != 0)
        fail(plan, kNamespace, errno);
    tell(plan, kReady, 0);
    wait_for_go(plan);
    if (plan.identity && !become(*plan.identity))
        fail(plan, kIdentity, errno);
    reset_signals(plan);
    execute(plan);
}

std::pair<Fd, Fd> make_pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0)
        throw_errno("pipe");
    return {Fd(fds[0]), Fd(fds[1])};
}

std::tuple<pid_t, int, int> spawn_held(std::vector<std::string> candidates,
                                       std::vector<std::string> arguments,
                                       std::vector<std::string> environment,
                                       std::optional<Identity> identity, bool new_mounts,
                                       std::vector<int> restored_signals) {
    if (arguments.empty())
        throw std::invalid_argument("a command has at least its name");
    Plan plan;
    plan.candidates = std::move(candidates);
    plan.arguments = std::move(arguments);
    plan.environment = std::move(environment);
    plan.identity = std::move(identity);
    plan.new_mounts = new_mounts;
    plan.restored_signals = std::move(restored_signals);
    plan.prepare();
    auto [go_read, go_write] = make_pipe();
    auto [status_read, status_write] = make_pipe();
    plan.go = go_read.get();
    plan.status = status_write.get();
    // No handler of ours may run in the child; what arrives there waits for its exec.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &plan.mask);
    // Not fork(): what other libraries want done at a fork is no use to a command. gRPC's
    // would start threads in the child, which abort as we close their files.
    pid_t pid = ::_Fork();
    if (pid == 0)
        child(plan);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &plan.mask, nullptr);
    if (pid < 0)
        throw_errno("fork", error);
    return {pid, go_write.release(), status_read.release()};
}

} // namespace
} // namespace igsdk

void register_launch(py::module_ &m) {
    m.def("spawn_held", &igsdk::spawn_held, py::arg("candidates"), py::arg("arguments"),
          py::arg("environment"), py::arg("identity"), py::arg("new_mounts"),
          py::arg("restored_signals"));
}

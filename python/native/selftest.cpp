// SPDX-License-Identifier: Apache-2.0
// Tries what no version number tells for sure: whether a return probe of ours kills a
// process whose seccomp filter refuses the system call that such probes may make.
#include "kernel_calls.h"
#include "parts.h"
#include "support.h"

#include <bpf/bpf.h>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace py = pybind11;

namespace igsdk {
namespace {

constexpr int hit = 0, missed = 2, no_filter = 3; // how the child ends

// Where it returns to: somewhere else as soon as a return probe is on it.
__attribute__((noinline, noclone)) const void *probed() {
    asm volatile("");
    return __builtin_return_address(0);
}

// Not inlined either, so that all calls return to one place.
__attribute__((noinline, noclone)) const void *call_probed() {
    const void *place = probed();
    asm volatile("" : "+r"(place));
    return place;
}

struct Place {
    std::string path;
    uint64_t offset = 0;
};

// In which file, and where in it, an address of our code lies.
std::optional<Place> place_of(uint64_t address) {
    auto close = [](FILE *file) { fclose(file); };
    std::unique_ptr<FILE, decltype(close)> maps(fopen("/proc/self/maps", "re"), close);
    char line[4352], path[4097];
    while (maps && fgets(line, sizeof(line), maps.get())) {
        unsigned long start, end, offset;
        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %4096[^\n]", &start, &end, &offset, path) == 4 &&
            start <= address && address < end)
            return Place{path, address - start + offset};
    }
    return {};
}

// A link for many functions where the kernel has them: those go quickly. `event` holds
// the probe where it has not.
Fd probe_return(const Place &place, Fd &event) {
    uint64_t cookie = 0;
    if (Fd program{load_nothing(attach_uprobe_multi)}) {
        Fd link(link_uprobes(program.get(), attach_uprobe_multi, place.path.c_str(), &place.offset,
                             &cookie, 1, true));
        if (link)
            return link;
    }
    Fd program(load_nothing(0));
    event.reset(open_uprobe_event(place.path.c_str(), place.offset, true));
    return Fd(program && event ? link_event(program.get(), event.get(), 0) : -1);
}

bool refuse(uint32_t number) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog filter{sizeof(code) / sizeof(code[0]), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0;
}

// The child: only system calls, for it has other threads' locks and not the threads.
[[noreturn]] void try_it(uint32_t refused, const void *usual) {
    rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (!refuse(refused))
        _exit(no_filter);
    _exit(call_probed() == usual ? missed : hit);
}

int run_child(uint32_t refused, const void *usual) {
    // no exit signal: the program that we are part of neither hears of it nor waits for it
    auto child = static_cast<pid_t>(syscall(SYS_clone, 0, 0, 0, 0, 0));
    if (child == 0)
        try_it(refused, usual);
    int status = 0;
    while (child > 0 && waitpid(child, &status, __WALL) < 0)
        if (errno != EINTR)
            return -1;
    return child > 0 ? status : -1;
}

// Whether a process lives on whose filter kills it at system call `refused` when a
// function with a return probe returns; nothing where that could not be tried.
std::optional<bool> return_probe_passes(uint32_t refused) {
    const void *usual = call_probed();
    std::optional<Place> place = place_of(reinterpret_cast<uint64_t>(&probed));
    Fd event;
    Fd link = place ? probe_return(*place, event) : Fd();
    if (!link)
        return {};
    int status = run_child(refused, usual);
    if (status < 0 || (WIFEXITED(status) && WEXITSTATUS(status) != hit))
        return {};
    return !WIFSIGNALED(status);
}

} // namespace
} // namespace igsdk

void register_selftest(py::module_ &m) {
    m.def(
        "return_probe_passes",
        [](uint32_t refused) -> py::object {
            std::optional<bool> passes;
            {
                py::gil_scoped_release unlocked;
                passes = igsdk::return_probe_passes(refused);
            }
            return passes ? py::object(py::bool_(*passes)) : py::object(py::none());
        },
        py::arg("refused"));
}

// SPDX-License-Identifier: Apache-2.0
#include "kernel_calls.h"

#include "support.h"

#include <bpf/bpf.h>
#include <cstdio>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>

namespace igsdk {
namespace {

constexpr uint32_t multi_return = 1; // BPF_F_UPROBE_MULTI_RETURN

// The kernel's union bpf_attr for BPF_LINK_CREATE of a uprobe-multi link.
struct LinkCreate {
    uint32_t program;
    uint32_t target;
    uint32_t attach_type;
    uint32_t flags;
    uint64_t path;
    uint64_t offsets;
    uint64_t reference_counters;
    uint64_t cookies;
    uint32_t count;
    uint32_t multi_flags;
    uint32_t pid;
    uint32_t pad;
};

uint64_t address_of(const void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

// A number that the kernel tells about its uprobe events; -1 where there is none.
int uprobe_number(const char *file, const char *format) {
    std::string path = std::string("/sys/bus/event_source/devices/uprobe/") + file;
    FILE *stream = fopen(path.c_str(), "re");
    int value = -1;
    if (stream && fscanf(stream, format, &value) != 1)
        value = -1;
    if (stream)
        fclose(stream);
    return value;
}

} // namespace

int open_uprobe_event(const char *path, uint64_t offset, bool at_return) {
    static const int type = uprobe_number("type", "%d");
    static const int return_bit = uprobe_number("format/retprobe", "config:%d");
    if (type < 0 || return_bit < 0) {
        errno = ENOENT;
        return -1;
    }
    perf_event_attr attr{};
    attr.size = sizeof(attr);
    attr.type = static_cast<uint32_t>(type);
    attr.config = at_return ? 1ull << return_bit : 0;
    attr.uprobe_path = address_of(path);
    attr.probe_offset = offset;
    // any process, on every CPU: a uprobe does not keep to the one that must be named
    return static_cast<int>(syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC));
}

int link_event(int program, int event, uint64_t cookie) {
    LIBBPF_OPTS(bpf_link_create_opts, options);
    options.perf_event.bpf_cookie = cookie;
    return bpf_link_create(program, event, BPF_PERF_EVENT, &options);
}

int link_uprobes(int program, uint32_t attach_type, const char *path, const uint64_t *offsets,
                 const uint64_t *cookies, size_t count, bool at_return) {
    LinkCreate attr{};
    attr.program = static_cast<uint32_t>(program);
    attr.attach_type = attach_type;
    attr.path = address_of(path);
    attr.offsets = address_of(offsets);
    attr.cookies = address_of(cookies);
    attr.count = static_cast<uint32_t>(count);
    attr.multi_flags = at_return ? multi_return : 0;
    // up to pid: a kernel refuses bytes that it does not know unless they are zero
    return static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr)));
}

int load_nothing(uint32_t attach_type) {
    const bpf_insn nothing[] = {
        {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0},
        {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
    };
    LIBBPF_OPTS(bpf_prog_load_opts, options);
    options.expected_attach_type = static_cast<bpf_attach_type>(attach_type);
    return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "igsdk_probe", "GPL", nothing, 2, &options);
}

// A kernel that knows the attach type looks at the path and finds no file there.
bool kernel_has_uprobe_links(uint32_t attach_type) {
    Fd program(load_nothing(attach_type));
    if (!program)
        return false;
    uint64_t offset = 0;
    Fd link(link_uprobes(program.get(), attach_type, "/", &offset, &offset, 1, false));
    return !link && errno == EBADF;
}

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// The bpf system call where the distribution's libbpf has no helper yet.
#pragma once

#include <cstddef>
#include <cstdint>

namespace igsdk {

// Values of enum bpf_attach_type, as the kernel's user ABI fixes them.
constexpr uint32_t attach_uprobe_multi = 48;   // Linux 6.6
constexpr uint32_t attach_uprobe_session = 57; // Linux 6.13

// Creates one link for many functions of a file; a descriptor, or -1 with errno.
int link_uprobes(int program, uint32_t attach_type, const char *path, const uint64_t *offsets,
                 const uint64_t *cookies, size_t count, bool at_return);

// A probe on one function, as a perf event; a descriptor, or -1 with errno.
int open_uprobe_event(const char *path, uint64_t offset, bool at_return);

// Ties a program to a perf event; a descriptor, or negative with errno.
int link_event(int program, int event, uint64_t cookie);

// A program that does nothing, for links of that type; a descriptor, or negative with errno.
int load_nothing(uint32_t attach_type);

bool kernel_has_uprobe_links(uint32_t attach_type);

} // namespace igsdk

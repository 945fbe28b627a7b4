// SPDX-License-Identifier: Apache-2.0
// Where distributions put the debug information that they strip from a file.
#pragma once

#include "elf_sections.h"

namespace igsdk {

// Who asks: the file's path as its process names it ("" = unknown), and the folder
// that the process sees as "/" ("" = ours), such as a container's root.
struct DebugSearch {
    std::string path;
    std::string root;
};

// The separate debug file of a file, by its build id (/usr/lib/debug/.build-id, the
// cache of debuginfod's client; the network is never asked) or by its .gnu_debuglink
// with the right checksum; nullptr where there is none.
std::shared_ptr<const Bytes> find_debug_file(const ElfSections &file, const DebugSearch &search);

// The file that a debug file says it has parts in common with (.gnu_debugaltlink).
std::shared_ptr<const Bytes> find_shared_debug_file(const ElfSections &debug,
                                                    const DebugSearch &search);

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// The stubs of a procedure linkage table, which have no symbols.
#pragma once

#include "elf_sections.h"

namespace igsdk {

struct Stub {
    uint64_t address;
    uint32_t size;
    uint32_t name; // of the function that it calls, as an offset in .dynsym's strings
};

// x86-64: those that jump through a word which a relocation fills with a function.
std::vector<Stub> find_stubs(const ElfSections &file, size_t limit);

} // namespace igsdk

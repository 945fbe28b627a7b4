// SPDX-License-Identifier: Apache-2.0
// The debug sections of a file, in an ELF image of our own.
//
// libdw is given this image instead of the file: it can't be truncated under its
// feet, has only sections that we chose and unpacked ourselves, and leads libdw to no
// other file and no debuginfo server.
#pragma once

#include "elf_sections.h"

namespace igsdk {

enum class DebugKind { none, usable, too_large };

// Whether it has debug sections, and whether they fit into `limit` bytes.
DebugKind debug_kind(const ElfSections &file, uint64_t limit);

// Empty where there are none, or too many bytes, or they cannot be read.
std::vector<char> debug_image(const ElfSections &file, uint64_t limit);

// The text .symtab that a file carries packed with xz (.gnu_debugdata), as a file of
// its own; nullptr where there is none or it can't be unpacked.
std::shared_ptr<const Bytes> mini_debug_data(const ElfSections &file);

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// A reader of 64-bit ELF files that may be hostile.
//
// The files come from other users' processes and containers and may change while
// we read. So nothing is mapped (a truncated mapping is SIGBUS), every size is
// bounded before memory is taken for it, and nothing in the file is trusted
// before it was compared with the file's size. libelf gives none of the three.
#pragma once

#include "support.h"

#include <elf.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace igsdk {

struct Segment {
    uint64_t address;
    uint64_t offset;
    uint64_t size; // bytes in the file
};

struct Function {
    uint64_t address;
    uint64_t name; // offset of its name in the file
    uint32_t size; // 0 = unknown
    uint8_t binding;
};

class ElfFile {
  public:
    // Duplicates `fd`. Throws std::invalid_argument with a clause such as
    // "it is not an ELF file".
    explicit ElfFile(int fd);

    std::string machine() const;
    std::string type() const;
    std::string build_id() const;
    bool is(uint16_t machine) const { return header_.e_machine == machine; }
    const std::vector<Segment> &code() const { return code_; }

    // Calls `visit` for each function that the file defines, those of .dynsym
    // first; stops after `limit` symbols of any type and then returns false.
    bool each_function(const std::function<void(const Function &)> &visit, size_t limit) const;

    std::optional<uint64_t> offset_of(uint64_t address) const;
    std::optional<uint64_t> address_of(uint64_t offset) const;
    const Segment *code_at(uint64_t offset) const;

    // The zero-terminated string at an offset of the file, cut at 8 KiB.
    std::string name_at(uint64_t offset) const;
    // Reads up to `size` bytes; returns how many there were.
    size_t read(uint64_t offset, void *into, size_t size) const;

  private:
    struct SymbolSection {
        uint64_t offset, count, names, names_size;
    };

    void read_header();
    void read_segments();
    void read_sections();
    void add_symbols(const std::vector<Elf64_Shdr> &sections, uint32_t type);
    bool visit_symbols(const SymbolSection &section,
                       const std::function<void(const Function &)> &visit, size_t &left) const;
    std::string build_id_in(const Segment &notes) const;

    Fd fd_;
    uint64_t size_ = 0;
    Elf64_Ehdr header_{};
    std::vector<Segment> code_;
    std::vector<Segment> notes_;
    std::vector<SymbolSection> symbols_;
    // Names lie close together: one window of the file serves many of them.
    mutable std::string window_;
    mutable uint64_t window_offset_ = 0;
};

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// A reader of 64-bit ELF files that may be hostile.
//
// The files come from other users' processes and containers and may change while
// we read. So nothing is mapped (a truncated mapping is SIGBUS), every size is
// bounded before memory is taken for it, and nothing in the file is trusted
// before it was compared with the file's size. libelf gives none of the three.
#pragma once

#include "bytes.h"

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

// A symbol that says what lies at an address: a function, or an object too.
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
    // The same of a file that is open already.
    explicit ElfFile(std::shared_ptr<const FileBytes> file);

    std::string machine() const;
    std::string type() const;
    std::string build_id() const;
    bool is(uint16_t machine) const { return header_.e_machine == machine; }
    const std::vector<Segment> &code() const { return code_; }
    // What can be written to; its bytes are those that it begins with.
    const std::vector<Segment> &data() const { return data_; }
    // The path of the dynamic loader that a program asks for, "" = none.
    std::string interpreter() const;
    // Where the section of this name lies; it has bytes in the file.
    std::optional<Segment> section(const std::string &name) const;

    // Calls `visit` for each function that the file defines, those of .dynsym
    // first; stops after `limit` symbols of any type and then returns false.
    bool each_function(const std::function<void(const Function &)> &visit, size_t limit) const;
    // The same for functions, objects and what has no type.
    bool each_symbol(const std::function<void(const Function &)> &visit, size_t limit) const;

    // The table that finds one exported symbol by its name; nullptr: there is none.
    const Elf64_Shdr *export_table() const;
    std::optional<Function> exported(const std::string &name) const;

    std::optional<uint64_t> offset_of(uint64_t address) const;
    std::optional<uint64_t> address_of(uint64_t offset) const;
    const Segment *code_at(uint64_t offset) const;

    // The zero-terminated string at an offset of the file, cut at 8 KiB.
    std::string name_at(uint64_t offset) const;
    // Reads up to `size` bytes; returns how many there were.
    size_t read(uint64_t offset, void *into, size_t size) const;
    // The same by address, up to the end of the segment's bytes.
    size_t read_at(uint64_t address, void *into, size_t size) const;

  private:
    struct SymbolSection {
        uint64_t offset, count, names, names_size;
    };

    void read_header();
    void read_segments();
    void read_sections();
    void add_symbols(uint32_t type);
    bool visit_all(unsigned types, const std::function<void(const Function &)> &visit,
                   size_t limit) const;
    bool visit_symbols(const SymbolSection &section, unsigned types,
                       const std::function<void(const Function &)> &visit, size_t &left) const;
    std::optional<Function> dynamic_symbol(uint64_t number, const std::string &name) const;
    uint64_t size() const { return file_->size(); }

    std::shared_ptr<const FileBytes> file_;
    Elf64_Ehdr header_{};
    std::vector<Segment> code_;
    std::vector<Segment> data_;
    std::vector<Segment> loaded_;
    std::vector<Segment> notes_;
    Segment interpreter_{};
    std::vector<Elf64_Shdr> sections_;
    std::vector<SymbolSection> symbols_;
    // Names lie close together: one window of the file serves many of them.
    mutable std::string window_;
    mutable uint64_t window_offset_ = 0;
};

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// The sections of an ELF file that may be hostile, without its segments: those of
// a separate debug file describe another file.
#pragma once

#include "bytes.h"

#include <elf.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace igsdk {

struct Symbol {
    uint64_t address;
    uint32_t name; // offset in the table's strings
    uint64_t size; // 0 = unknown
    uint8_t type, binding;
};

class ElfSections {
  public:
    // A file without usable section headers has none: it is still a file.
    explicit ElfSections(std::shared_ptr<const Bytes> bytes);

    const std::shared_ptr<const Bytes> &bytes() const { return bytes_; }
    const Elf64_Ehdr &header() const { return header_; }
    const std::vector<Elf64_Shdr> &all() const { return sections_; }
    std::string name(const Elf64_Shdr &section) const;
    // The first with that name, or type, and null where there is none.
    const Elf64_Shdr *find(const char *name) const;
    const Elf64_Shdr *find(uint32_t type) const;
    // The section of code in which an address lies.
    const Elf64_Shdr *code_at(uint64_t address) const;
    std::string build_id() const; // hex, "" = none

    // How many bytes it has when it is not compressed; 0 = of no use.
    uint64_t plain_size(const Elf64_Shdr &section) const;
    // Fills `into` with its plain content; false where the file has not that much.
    bool read_plain(const Elf64_Shdr &section, char *into, size_t size) const;
    std::optional<std::vector<char>> content(const Elf64_Shdr &section, size_t limit) const;

    // Calls `visit` for what .symtab or .dynsym (`table`: SHT_SYMTAB, SHT_DYNSYM)
    // defines; counts `left` down, and returns false where it came to 0.
    bool each_symbol(uint32_t table, const std::function<void(const Symbol &)> &visit,
                     size_t &left) const;
    // Where that table's strings begin in the file.
    std::optional<uint64_t> strings(uint32_t table) const;
    // What one entry of .dynsym is called, as an offset in its strings; 0 = nothing.
    uint32_t dynamic_name(uint32_t number) const;

  private:
    struct SymbolSection {
        uint64_t offset, count, names, names_size;
    };

    std::optional<SymbolSection> symbol_section(uint32_t type) const;
    bool inflate(const Elf64_Shdr &section, char *into, size_t size) const;

    std::shared_ptr<const Bytes> bytes_;
    Elf64_Ehdr header_{};
    std::vector<Elf64_Shdr> sections_;
    std::vector<size_t> code_; // numbers of those that hold code
};

std::string hex(const unsigned char *bytes, size_t size);

// The build id among the notes there; "" = none.
std::string build_id_in(const Bytes &bytes, uint64_t offset, uint64_t size);

} // namespace igsdk

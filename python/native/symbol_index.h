// SPDX-License-Identifier: Apache-2.0
// The functions that symbol tables name, by address: 16 bytes each, names stay in the
// file. libtorch_cpu has 524,000.
#pragma once

#include "elf_sections.h"

namespace igsdk {

class SymbolIndex {
  public:
    struct Found {
        std::string name; // mangled; without its version
        uint64_t address;
        bool sized; // the symbol itself says that it reaches so far
    };

    // `file` is the one that runs: its sections say how far a function without a
    // size can reach.
    explicit SymbolIndex(const ElfSections &file) : code_(file) {}

    // Adds what .symtab and .dynsym of a file (or of its separate debug file) name
    // where no earlier file names anything.
    void add(const ElfSections &file);
    // Adds the stubs through which it calls functions of others: "function@plt".
    void add_stubs(const ElfSections &file);

    // The function nearest before the address that reaches it; one without a size
    // reaches the next one of its section.
    std::optional<Found> find(uint64_t address) const;

    // How many addresses and names.
    size_t size() const { return entries_.size(); }
    // All were taken, none left out for want of room.
    bool complete() const { return complete_; }
    uint64_t memory() const;

  private:
    struct Entry {
        uint64_t address : 48;
        uint64_t rank : 8; // of those at one address the lowest is the best
        uint64_t source : 8;
        uint32_t name;
        uint32_t size; // 0 = unknown
    };
    struct Source {
        std::shared_ptr<const Bytes> bytes;
        uint64_t strings;
        bool stubs;
    };
    using Iterator = std::vector<Entry>::const_iterator;

    void add_table(const ElfSections &file, uint32_t table);
    void put(const Symbol &symbol, uint8_t source, size_t sorted);
    bool is_label(const Entry &entry);
    bool known(uint64_t address, size_t sorted) const;
    void sort_from(size_t sorted);
    const Entry *best(Iterator first, Iterator last, uint64_t address, bool nearest) const;
    bool reaches(const Entry &entry, uint64_t address, bool nearest) const;
    std::string name_of(const Entry &entry) const;

    const ElfSections &code_;
    std::vector<Source> sources_;
    std::vector<Entry> entries_;
    size_t labels_ = 0;
    bool complete_ = true;
};

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// Finds the entry of a file's unwind tables that describes an address.
//
// Only what a lookup needs is read, by pread: a file of 1 GB costs no memory, one that
// is truncated while we read is no signal, and nothing in it is trusted. How the tables
// look: the LSB's chapter "Exception Frames", DWARF 5 section 6.4.
#pragma once

#include <cstdint>
#include <elf.h>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace igsdk {

// One function's entry with all that its common entry says.
struct FrameEntry {
    uint64_t start = 0, end = 0; // addresses of its code, as the file numbers them
    uint64_t code_align = 1;
    int64_t data_align = 1;
    uint8_t return_register = 0;
    bool signal = false;
    std::string common, own; // programs: of the common entry, and of this one
};

// What many entries have in common.
struct FrameCommon {
    FrameEntry entry;
    uint8_t encoding = 0; // of addresses
    bool augmented = false, good = false;
};

class FrameTables {
  public:
    // The descriptor must stay open. A file that is no ELF file has no tables.
    explicit FrameTables(int fd);
    FrameTables(const FrameTables &) = delete;
    FrameTables &operator=(const FrameTables &) = delete;
    ~FrameTables();

    uint16_t machine() const { return machine_; }
    // From an offset in the file's code to the address that the file gives it.
    std::optional<uint64_t> address_of(uint64_t offset) const;
    // Where the program or the dynamic linker starts; 0 = nowhere.
    uint64_t entry() const { return entry_; }
    bool find(uint64_t address, FrameEntry &entry);
    // Up to `size` bytes of the file.
    std::string read_some(uint64_t offset, size_t size) const;

  private:
    struct Load {
        uint64_t address, offset, size;
        bool code;
    };
    // Where an entry stands: in the file, as the file numbers it, and, in .debug_frame
    // only, where that section begins in the file.
    struct Place {
        uint64_t offset, address;
        std::optional<uint64_t> debug;
    };
    struct Section {
        uint64_t address, offset, size;
        bool debug; // .debug_frame, else .eh_frame
    };
    struct Known {
        uint64_t start, end;
        Place place;
    };

    size_t read(uint64_t offset, void *into, size_t size) const;
    bool read_header(Elf64_Ehdr &header);
    void read_sections(const Elf64_Ehdr &header);
    void read_search_table(const Elf64_Phdr &segment);
    std::optional<Place> place_of(uint64_t address) const;

    std::optional<Place> search(uint64_t address) const;
    std::optional<Place> look_up(uint64_t address);
    bool keep(size_t bytes);
    void index();
    void index(const Section &section);
    std::string read_entry(uint64_t offset, size_t limit) const;
    const FrameCommon &common_at(const Place &place);
    FrameCommon parse_common(const Place &place) const;
    bool parse_entry(const Place &place, FrameEntry &entry);
    Place common_of(const Place &entry, uint32_t pointer) const;

    int fd_;
    uint16_t machine_ = 0;
    uint64_t entry_ = 0;
    std::vector<Load> loads_;
    std::vector<Section> sections_;       // those without a search table
    uint64_t table_ = 0, table_base_ = 0; // of .eh_frame_hdr: offset, address
    uint64_t table_entries_ = 0;
    bool indexed_ = false;
    std::string window_; // of the file, while the index is made
    uint64_t window_offset_ = 0;
    std::vector<Known> known_; // where there is no such table: all entries, sorted
    std::unordered_map<uint64_t, FrameCommon> commons_;
    size_t kept_ = 0; // bytes, of known_
};

} // namespace igsdk

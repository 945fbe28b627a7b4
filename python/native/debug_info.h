// SPDX-License-Identifier: Apache-2.0
// Functions, inlined calls and source lines of the addresses of one file, from DWARF.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

struct Dwarf;
struct Elf;
typedef struct Dwarf_CU Dwarf_CU;

namespace igsdk {

struct SourceFrame {
    std::string function; // as DWARF has it: mangled where `mangled`; "" = unknown
    std::string file;     // "" = unknown
    uint32_t line = 0;    // 0 = unknown
    bool mangled = false;
};

class DebugInfo {
  public:
    // Takes images that debug_image() made. `shared` is the file that others refer to
    // for what they have in common (dwz), or empty. nullptr: libdw can't use them.
    static std::unique_ptr<DebugInfo> of(std::vector<char> image, std::vector<char> shared);
    ~DebugInfo();

    // Innermost first: inlined functions, then the function that holds them. Empty
    // where the debug information says nothing of the address.
    std::vector<SourceFrame> frames(uint64_t address);
    // Bytes of images and, about, of what was made of them so far.
    uint64_t memory() const;

  private:
    struct Image;
    struct Range {
        uint64_t low, high;
        uint64_t die; // offset
    };
    // What was read of a unit: its functions by address.
    struct Unit {
        std::vector<Range> functions;
        bool has_lines = false;
    };
    struct Walk;

    DebugInfo();
    bool open();
    void close();
    void index_units();
    const Unit &unit_at(uint64_t die);
    std::vector<SourceFrame> frames_in(uint64_t unit, uint64_t address);

    std::unique_ptr<Image> image_, shared_;
    std::vector<Range> units_;
    std::unordered_map<uint64_t, Unit> read_;
    unsigned given_up_ = 0; // walks that took too long: beyond a few, the file is not asked
    uint64_t derived_ = 0;  // about how many bytes libdw and we made of the units in read_
};

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// From an address in a file to the functions that lie there, by all that the file and
// its separate debug file tell.
#pragma once

#include "debug_files.h"
#include "debug_info.h"
#include "elf_file.h"
#include "symbol_index.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace igsdk {

// What was read of one file. Safe to use from several threads. All tables together
// keep kMaxTableMemory: what was used longest ago is forgotten, and read again when
// it is asked for.
class SymbolTable {
  public:
    struct Frame {
        std::string function, file; // demangled; "" = unknown
        uint32_t line;              // 0 = unknown
    };
    using Place = std::optional<std::pair<std::string, uint64_t>>;

    // Throws std::invalid_argument with a clause such as "it is not an ELF file".
    SymbolTable(int fd, DebugSearch search);
    ~SymbolTable();
    SymbolTable(const SymbolTable &) = delete;
    SymbolTable &operator=(const SymbolTable &) = delete;

    // The function and how far into it, by symbols alone.
    Place lookup(uint64_t file_offset);
    Place lookup_address(uint64_t address);
    // Innermost first; empty where nothing is known.
    std::vector<Frame> frames(uint64_t file_offset);

    const std::string &build_id() const { return build_id_; }
    size_t size();
    bool complete();
    // Where lines come from: "own", "separate", "too large" (there is debug
    // information, but more than kMaxDebugBytes) or "none".
    std::string debug();
    uint64_t memory() const { return memory_; }
    // Gives all memory back; false where another thread is using the table.
    bool forget();
    uint64_t last_used() const { return last_used_; }

  private:
    struct Loaded;

    Loaded &symbols();
    Loaded &debug_info();
    void load_symbols(Loaded &loaded);
    void load_debug(Loaded &loaded);
    std::vector<Frame> frames_at(uint64_t address);
    template <typename Body> auto locked(Body body);

    SymbolTable(std::shared_ptr<const FileBytes> bytes, DebugSearch search);
    std::optional<uint64_t> address_of(uint64_t file_offset) const;

    const ElfSections sections_; // the only one to keep a descriptor
    std::vector<Segment> code_;
    std::string build_id_;
    const DebugSearch search_;
    std::mutex lock_;
    std::unique_ptr<Loaded> loaded_;
    std::atomic<uint64_t> memory_{0}, last_used_{0};
};

constexpr uint64_t kMaxTableMemory = 192 << 20;
constexpr uint64_t kMaxDebugBytes = 96 << 20; // of one file's debug sections

} // namespace igsdk

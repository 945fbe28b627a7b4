// SPDX-License-Identifier: Apache-2.0
// The pieces that a compiler split a function into, where no symbol names them.
//
// gcc moves what is seldom run into a piece of its own (`name.cold`). Its symbol is local:
// a stripped file has none, but nothing calls it, it is only jumped to.
#pragma once

#include "elf_file.h"
#include "frame_tables.h"
#include "rules.h"

#include <set>
#include <string>
#include <vector>

namespace igsdk {

struct Range {
    uint64_t start, end;

    bool holds(uint64_t value) const { return value >= start && value < end; }
};

class PieceFinder {
  public:
    // The descriptor must stay open. Throws std::invalid_argument where it is no ELF file.
    explicit PieceFinder(int fd) : file_(fd), tables_(fd) {}

    // Where the other pieces of a function lie in the file, in order; that of its symbol
    // is not among them. None for another machine's files.
    std::vector<Range> find(const std::string &name);

  private:
    struct Jump {
        uint64_t from, to;
    };

    std::optional<Range> named(const std::string &name);
    void follow(const Range &range);
    void follow(const Jump &jump);
    std::vector<Jump> jumps_of(const Range &range) const;
    bool is_known(uint64_t address) const;
    bool is_function(const FrameEntry &entry) const;
    bool goes_on(const Jump &jump, const FrameEntry &entry);
    bool leads_back(const Range &range) const;
    Range in_file(const Range &range) const;

    ElfFile file_;
    FrameTables tables_;
    std::vector<Range> known_;     // by address, the symbol's own first
    std::set<uint64_t> functions_; // where what was jumped to turned out to be one
    std::set<uint64_t> once_;      // starts of entries that one jump leads to
    size_t looked_ = 0;
};

} // namespace igsdk

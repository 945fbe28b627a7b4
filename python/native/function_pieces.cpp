// SPDX-License-Identifier: Apache-2.0
#include "function_pieces.h"
#include "cfi.h"
#include "machine.h"

#include <algorithm>
#include <cstring>

namespace igsdk {
namespace {

constexpr size_t kMaxSymbols = 8'000'000;
constexpr size_t kMaxPieces = 16;
constexpr uint64_t kMaxPiece = 4 << 20; // bytes of code that are looked through
constexpr size_t kMaxLooks = 256;       // jumps to other entries whose rules are asked for

// What a jump without a condition, or with one, adds to the address behind it; rel32.
// A byte that only looks like one leads nowhere, or fails the checks of its target.
std::optional<uint64_t> jump_x86(const unsigned char *code, size_t left) {
    size_t size = code[0] == 0xe9 ? 5 : 6;
    if (left < size || (size == 6 && (code[0] != 0x0f || (code[1] & 0xf0) != 0x80)))
        return std::nullopt;
    int32_t distance;
    std::memcpy(&distance, code + size - 4, sizeof(distance));
    return size + static_cast<uint64_t>(static_cast<int64_t>(distance));
}

// `b` and `b.cond`, relative to itself.
std::optional<uint64_t> jump_arm(const unsigned char *code, size_t left) {
    uint32_t word;
    if (left < sizeof(word))
        return std::nullopt;
    std::memcpy(&word, code, sizeof(word));
    int32_t distance;
    if ((word & 0xfc000000) == 0x14000000)
        distance = static_cast<int32_t>(word << 6) >> 6;
    else if ((word & 0xff000010) == 0x54000000)
        distance = static_cast<int32_t>(word << 8) >> 13;
    else
        return std::nullopt;
    return static_cast<uint64_t>(static_cast<int64_t>(distance)) * 4;
}

bool is_cfa_of_entry(const Rule &cfa) {
    int64_t above = returns_on_stack() ? 8 : 0; // the return address
    return cfa.how == Rule::How::moved && cfa.base == kMachine.stack && cfa.offset == above;
}

} // namespace

std::vector<Range> PieceFinder::find(const std::string &name) {
    auto own = file_.is(kMachine.elf) ? named(name) : std::nullopt;
    if (!own)
        return {};
    known_ = {*own};
    for (size_t i = 0; i < known_.size(); i++)
        follow(Range(known_[i]));
    std::vector<Range> found;
    for (size_t i = 1; i < known_.size(); i++)
        found.push_back(in_file(known_[i]));
    std::sort(found.begin(), found.end(),
              [](const Range &a, const Range &b) { return a.start < b.start; });
    return found;
}

// What the unwind tables say of the symbol's address: they know its size for sure.
std::optional<Range> PieceFinder::named(const std::string &name) {
    std::optional<Function> symbol = file_.exported(name);
    auto visit = [&](const Function &function) {
        if (!symbol && file_.name_at(function.name) == name)
            symbol = function;
    };
    if (!symbol && !file_.export_table())
        file_.each_function(visit, kMaxSymbols);
    FrameEntry entry;
    if (!symbol || !tables_.find(symbol->address, entry))
        return std::nullopt;
    return Range{entry.start, entry.end};
}

void PieceFinder::follow(const Range &range) {
    for (const Jump &jump : jumps_of(range))
        if (!is_known(jump.to) && looked_ < kMaxLooks && known_.size() <= kMaxPieces)
            follow(jump);
}

void PieceFinder::follow(const Jump &jump) {
    FrameEntry entry;
    looked_++;
    if (!tables_.find(jump.to, entry) || !goes_on(jump, entry))
        return;
    // Bytes that only look like a jump may lead into some other function's piece, but
    // hardly to its first instruction, twice, or into one that leads back.
    Range piece{entry.start, entry.end};
    if (jump.to == entry.start || !once_.insert(entry.start).second || leads_back(piece))
        known_.push_back(piece);
}

std::vector<PieceFinder::Jump> PieceFinder::jumps_of(const Range &range) const {
    std::string code(std::min(range.end - range.start, kMaxPiece), '\0');
    code.resize(file_.read_at(range.start, code.data(), code.size()));
    auto *bytes = reinterpret_cast<const unsigned char *>(code.data());
    bool arm = kMachine.elf == EM_AARCH64;
    std::vector<Jump> jumps;
    for (size_t at = 0; at < code.size(); at += arm ? 4 : 1) {
        auto distance = (arm ? jump_arm : jump_x86)(bytes + at, code.size() - at);
        uint64_t from = range.start + at;
        if (distance && !range.holds(from + *distance) && file_.offset_of(from + *distance))
            jumps.push_back({from, from + *distance});
    }
    return jumps;
}

bool PieceFinder::is_known(uint64_t address) const {
    return std::any_of(known_.begin(), known_.end(),
                       [&](const Range &range) { return range.holds(address); });
}

// A function begins with nothing but its return address taken from the stack.
bool PieceFinder::is_function(const FrameEntry &entry) const {
    auto first = rules_at(entry, entry.start, tables_.machine());
    return !first || is_cfa_of_entry(first->cfa);
}

// Whether the same frame goes on there: a jump leaves the stack as it is.
bool PieceFinder::goes_on(const Jump &jump, const FrameEntry &entry) {
    if (functions_.count(entry.start))
        return false;
    if (is_function(entry)) {
        functions_.insert(entry.start);
        return false;
    }
    FrameEntry source;
    if (!tables_.find(jump.from, source))
        return false;
    auto here = rules_at(source, jump.from, tables_.machine());
    auto there = rules_at(entry, jump.to, tables_.machine());
    return here && there && here->cfa.how == Rule::How::moved &&
           there->cfa.how == Rule::How::moved && here->cfa.base == there->cfa.base &&
           here->cfa.offset == there->cfa.offset;
}

bool PieceFinder::leads_back(const Range &range) const {
    std::vector<Jump> jumps = jumps_of(range);
    return std::any_of(jumps.begin(), jumps.end(),
                       [&](const Jump &jump) { return is_known(jump.to); });
}

Range PieceFinder::in_file(const Range &range) const {
    uint64_t offset = file_.offset_of(range.start).value_or(0);
    return {offset, offset + (range.end - range.start)};
}

} // namespace igsdk

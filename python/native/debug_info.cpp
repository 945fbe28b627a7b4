// SPDX-License-Identifier: Apache-2.0
#include "debug_info.h"

#include "support.h"

#include <algorithm>
#include <cstring>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <optional>

namespace igsdk {
namespace {

// Bounds against files that were made to take time or memory; real ones stay below.
constexpr size_t kMaxUnits = 1 << 18;
constexpr size_t kMaxRanges = 1 << 16;        // of one unit or function
constexpr size_t kMaxEntries = 4'000'000;     // and ranges of one unit, to look through
constexpr uint64_t kMaxNs = 2'000'000'000;    // of CPU time for that
constexpr unsigned kMaxGivenUp = 4;           // walks of a file that were not ended
constexpr size_t kMaxNested = 64;             // entries within entries
constexpr size_t kMaxFrames = 128;            // of one address
constexpr uint64_t kMaxLineProgram = 2 << 20; // bytes; up to 40 times that in memory
constexpr size_t kMaxText = 4096;
// What libdw keeps of what it read is freed when it is closed: then we begin anew.
constexpr uint64_t kMaxDerived = 48 << 20;
// About: an abbreviation and its hash entry for each so many bytes of a unit; a line.
constexpr uint64_t kBytesPerLine = 56;
// Ranges of units can overlap: how many before an address are asked.
constexpr size_t kOverlapping = 16;

// What one walk may cost.
class Effort {
  public:
    bool spend() {
        if (left_ == 0 || --left_ == 0)
            return false;
        if (left_ % 256 == 0 && clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ > kMaxNs)
            left_ = 0;
        return left_ > 0;
    }
    bool spent() const { return left_ == 0; }

  private:
    size_t left_ = kMaxEntries;
    uint64_t start_ = clock_ns(CLOCK_THREAD_CPUTIME_ID);
};

// Calls `visit(low, high)` for each range of code that an entry has; false: it has none
// at all, not even an empty one.
template <typename Visitor> bool each_range(Dwarf_Die *die, Effort &effort, Visitor visit) {
    Dwarf_Addr base = 0, low, high;
    ptrdiff_t at = 0;
    size_t n = 0;
    while (n < kMaxRanges && effort.spend() &&
           (at = dwarf_ranges(die, at, &base, &low, &high)) > 0) {
        n++;
        // Code that the linker dropped stands at 0 or at the end of memory.
        if (low != 0 && low < high)
            visit(low, high);
    }
    return n > 0;
}

std::string text_of(const char *text) {
    return text ? std::string(text, ::strnlen(text, kMaxText)) : std::string();
}

// An attribute of the entry or of the one that it is an instance of.
const char *string_of(Dwarf_Die *die, unsigned name) {
    Dwarf_Attribute memory;
    return dwarf_formstring(dwarf_attr_integrate(die, name, &memory));
}

void name_function(Dwarf_Die *die, SourceFrame &frame) {
    const char *linkage = string_of(die, DW_AT_linkage_name);
    if (!linkage)
        linkage = string_of(die, DW_AT_MIPS_linkage_name);
    frame.mangled = linkage != nullptr;
    frame.function = text_of(linkage ? linkage : string_of(die, DW_AT_name));
}

// Names of files are relative to the folder in which the compiler ran.
std::string path_of(const char *name, const std::string &folder) {
    std::string path = text_of(name);
    if (path.empty() || path[0] == '/' || folder.compare(0, 1, "/") != 0)
        return path;
    while (path.compare(0, 2, "./") == 0)
        path.erase(0, 2);
    return folder + "/" + path;
}

uint64_t number_of(Dwarf_Die *die, unsigned name) {
    Dwarf_Attribute memory;
    Dwarf_Word value = 0;
    return dwarf_formudata(dwarf_attr(die, name, &memory), &value) == 0 ? value : 0;
}

// Whether functions can stand within the entry.
bool can_hold_functions(int tag) {
    switch (tag) {
    case DW_TAG_namespace:
    case DW_TAG_module:
    case DW_TAG_subprogram: // GNU C's nested functions, Fortran's `contains`
    case DW_TAG_lexical_block:
    case DW_TAG_class_type:
    case DW_TAG_structure_type:
        return true;
    default:
        return false;
    }
}

bool has_ranges(Dwarf_Die *die) {
    return dwarf_hasattr(die, DW_AT_low_pc) || dwarf_hasattr(die, DW_AT_ranges);
}

bool holds(Dwarf_Die *die, Effort &effort, uint64_t address) {
    bool found = false;
    each_range(die, effort, [&](uint64_t low, uint64_t high) {
        found = found || (address >= low && address < high);
    });
    return found;
}

// A walk through the entries of a unit, in their order. A file that lies about where
// the next entry is leads nowhere: no entry is visited twice.
class Walker {
  public:
    template <typename Visitor> void each_child(Dwarf_Die *parent, Visitor visit) {
        Dwarf_Die child;
        int result = dwarf_child(parent, &child);
        while (result == 0 && effort.spend() && dwarf_dieoffset(&child) > last_) {
            last_ = dwarf_dieoffset(&child);
            if (!visit(&child))
                return;
            result = dwarf_siblingof(&child, &child);
        }
    }

    Effort effort;

  private:
    Dwarf_Off last_ = 0;
};

// The inlined calls that hold an address, outermost first.
class InlinedCalls {
  public:
    explicit InlinedCalls(uint64_t address) : address_(address) {}

    std::vector<Dwarf_Die> in(Dwarf_Die *function) {
        descend(function, 0);
        return std::move(calls_);
    }
    bool given_up() const { return walker_.effort.spent(); }

  private:
    bool descend(Dwarf_Die *parent, size_t depth) {
        bool found = false;
        if (depth >= kMaxNested * 2 || calls_.size() >= kMaxFrames)
            return false;
        walker_.each_child(parent, [&](Dwarf_Die *child) {
            found = enter(child, depth);
            return !found;
        });
        return found;
    }

    // Whether the address lies in there: then it lies nowhere beside it.
    bool enter(Dwarf_Die *child, size_t depth) {
        int tag = dwarf_tag(child);
        if (tag == DW_TAG_inlined_subroutine && holds(child, walker_.effort, address_)) {
            calls_.push_back(*child);
            descend(child, depth + 1);
            return true;
        }
        if (tag != DW_TAG_lexical_block)
            return false;
        bool inside = has_ranges(child) && holds(child, walker_.effort, address_);
        if (!inside && has_ranges(child))
            return false;
        return descend(child, depth + 1) || inside;
    }

    uint64_t address_;
    Walker walker_;
    std::vector<Dwarf_Die> calls_;
};

template <typename Range>
const Range *find_range(const std::vector<Range> &ranges, uint64_t address, size_t tries) {
    auto above = std::upper_bound(ranges.begin(), ranges.end(), address,
                                  [](uint64_t value, const Range &r) { return value < r.low; });
    for (; above != ranges.begin() && tries > 0; tries--) {
        const Range &range = *--above;
        if (address < range.high)
            return &range;
    }
    return nullptr;
}

} // namespace

struct DebugInfo::Image {
    explicit Image(std::vector<char> content) : bytes(std::move(content)) {}
    ~Image() { close(); }

    bool open() {
        elf_version(EV_CURRENT);
        elf = elf_memory(bytes.data(), bytes.size());
        dwarf = elf ? dwarf_begin_elf(elf, DWARF_C_READ, nullptr) : nullptr;
        return dwarf != nullptr;
    }

    // How long the line program is that begins there; its lines are read all at once.
    uint64_t line_program(uint64_t at) {
        uint32_t size = 0;
        if (!lines)
            find_lines();
        if (!lines || at > lines->d_size || lines->d_size - at < sizeof(size))
            return 0;
        std::memcpy(&size, static_cast<const char *>(lines->d_buf) + at, sizeof(size));
        return std::min<uint64_t>(size, lines->d_size - at);
    }

    void find_lines() {
        size_t names = 0;
        elf_getshdrstrndx(elf, &names);
        for (Elf_Scn *section = nullptr; (section = elf_nextscn(elf, section));) {
            Elf64_Shdr *header = elf64_getshdr(section);
            const char *name = header ? elf_strptr(elf, names, header->sh_name) : nullptr;
            if (name && std::strcmp(name, ".debug_line") == 0)
                lines = elf_rawdata(section, nullptr);
        }
    }

    void close() {
        lines = nullptr;
        if (dwarf)
            dwarf_end(dwarf);
        if (elf)
            elf_end(elf);
        dwarf = nullptr;
        elf = nullptr;
    }

    std::vector<char> bytes;
    Elf *elf = nullptr;
    Dwarf *dwarf = nullptr;
    Elf_Data *lines = nullptr;
};

// Collects the functions of one unit.
struct DebugInfo::Walk {
    std::vector<Range> &functions;
    Walker walker{};

    void below(Dwarf_Die *parent, size_t depth) {
        if (depth >= kMaxNested)
            return;
        walker.each_child(parent, [&](Dwarf_Die *child) {
            int tag = dwarf_tag(child);
            if (tag == DW_TAG_subprogram)
                each_range(child, walker.effort, [&](uint64_t low, uint64_t high) {
                    functions.push_back({low, high, dwarf_dieoffset(child)});
                });
            if (can_hold_functions(tag))
                below(child, depth + 1);
            return true;
        });
    }
};

DebugInfo::DebugInfo() = default;
DebugInfo::~DebugInfo() { close(); }

std::unique_ptr<DebugInfo> DebugInfo::of(std::vector<char> image, std::vector<char> shared) {
    std::unique_ptr<DebugInfo> info(new DebugInfo());
    info->image_ = std::make_unique<Image>(std::move(image));
    if (!shared.empty())
        info->shared_ = std::make_unique<Image>(std::move(shared));
    if (!info->open())
        return nullptr;
    info->index_units();
    return info;
}

bool DebugInfo::open() {
    if (!image_->open())
        return false;
    if (shared_ && shared_->open())
        dwarf_setalt(image_->dwarf, shared_->dwarf);
    return true;
}

// The image first: it refers to the other.
void DebugInfo::close() {
    image_->close();
    if (shared_)
        shared_->close();
    read_.clear();
    derived_ = 0;
}

uint64_t DebugInfo::memory() const {
    return image_->bytes.size() + (shared_ ? shared_->bytes.size() : 0) +
           units_.size() * sizeof(Range) + derived_;
}

void DebugInfo::index_units() {
    Dwarf_Off at = 0, next = 0;
    size_t header = 0;
    Effort effort;
    for (size_t n = 0; n < kMaxUnits; n++, at = next) {
        if (dwarf_nextcu(image_->dwarf, at, &next, &header, nullptr, nullptr, nullptr) != 0 ||
            next <= at)
            break;
        Dwarf_Die unit;
        if (!dwarf_offdie(image_->dwarf, at + header, &unit))
            continue;
        each_range(&unit, effort, [&](uint64_t low, uint64_t high) {
            units_.push_back({low, high, at + header});
        });
    }
    std::sort(units_.begin(), units_.end(),
              [](const Range &a, const Range &b) { return a.low < b.low; });
    units_.shrink_to_fit();
}

const DebugInfo::Unit &DebugInfo::unit_at(uint64_t die) {
    auto known = read_.find(die);
    if (known != read_.end())
        return known->second;
    if (derived_ > kMaxDerived) {
        close();
        open();
    }
    Unit &unit = read_[die];
    Dwarf_Die memory;
    if (!image_->dwarf || !dwarf_offdie(image_->dwarf, die, &memory))
        return unit;
    Walk walk{unit.functions};
    walk.below(&memory, 0);
    given_up_ += walk.walker.effort.spent();
    std::sort(unit.functions.begin(), unit.functions.end(),
              [](const Range &a, const Range &b) { return a.low < b.low; });
    unit.functions.shrink_to_fit();
    Dwarf_Lines *lines = nullptr;
    size_t n = 0;
    uint64_t program = image_->line_program(number_of(&memory, DW_AT_stmt_list));
    unit.has_lines =
        program > 0 && program <= kMaxLineProgram && dwarf_getsrclines(&memory, &lines, &n) == 0;
    derived_ += unit.functions.size() * sizeof(Range) + n * kBytesPerLine + sizeof(Unit);
    return unit;
}

std::vector<SourceFrame> DebugInfo::frames(uint64_t address) {
    if (given_up_ >= kMaxGivenUp)
        return {};
    const Range *unit = find_range(units_, address, kOverlapping);
    return unit ? frames_in(unit->die, address) : std::vector<SourceFrame>();
}

std::vector<SourceFrame> DebugInfo::frames_in(uint64_t at, uint64_t address) {
    const Unit &unit = unit_at(at);
    Dwarf_Die memory, function;
    if (!image_->dwarf || !dwarf_offdie(image_->dwarf, at, &memory))
        return {};
    SourceFrame frame;
    Dwarf_Line *line = unit.has_lines ? dwarf_getsrc_die(&memory, address) : nullptr;
    int number = 0;
    if (line && dwarf_lineno(line, &number) == 0 && number > 0)
        frame.line = static_cast<uint32_t>(number);
    std::string folder = text_of(string_of(&memory, DW_AT_comp_dir));
    if (line)
        frame.file = path_of(dwarf_linesrc(line, nullptr, nullptr), folder);
    std::vector<SourceFrame> frames;
    const Range *range = find_range(unit.functions, address, kOverlapping);
    if (!range || !dwarf_offdie(image_->dwarf, range->die, &function)) {
        if (line)
            frames.push_back(frame);
        return frames;
    }
    Dwarf_Files *files = nullptr;
    size_t n_files = 0;
    if (!unit.has_lines || dwarf_getsrcfiles(&memory, &files, &n_files) != 0)
        files = nullptr;
    InlinedCalls walk(address);
    auto calls = walk.in(&function);
    given_up_ += walk.given_up();
    // From the inside out: each call's place is where the function around it stands.
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
        name_function(&*call, frame);
        frames.push_back(frame);
        uint64_t file = number_of(&*call, DW_AT_call_file);
        frame = SourceFrame();
        frame.line = static_cast<uint32_t>(number_of(&*call, DW_AT_call_line));
        if (files && file < n_files)
            frame.file = path_of(dwarf_filesrc(files, file, nullptr, nullptr), folder);
    }
    name_function(&function, frame);
    frames.push_back(frame);
    return frames;
}

} // namespace igsdk

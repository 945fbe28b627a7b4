// SPDX-License-Identifier: Apache-2.0
#include "frame_tables.h"
#include "bytes.h"
#include "cursor.h"

#include <algorithm>
#include <atomic>
#include <dwarf.h>

namespace igsdk {
namespace {

constexpr size_t kMaxLoads = 64;
constexpr size_t kMaxSections = 4096;
constexpr size_t kMaxNames = 256 * 1024;
constexpr size_t kMaxCommon = 4096;       // bytes of a common entry
constexpr size_t kMaxEntry = 256 * 1024;  // bytes of an entry
constexpr size_t kMaxCommons = 64;        // kept
constexpr size_t kMaxIndexed = 32u << 20; // bytes of a section that has no search table
constexpr size_t kMaxIndexedSections = 4;
constexpr size_t kMaxKnown = 300'000;   // entries of such a section
constexpr size_t kMaxKept = 128u << 20; // bytes of such entries, of all files
constexpr size_t kWindow = 512;         // rows of the search table read at once

std::atomic<size_t> all_kept{0};

struct Row { // of .eh_frame_hdr, both relative to its own address
    int32_t start, entry;
};

// Bytes that a pointer of that encoding takes; 0: one that we don't read.
size_t encoded_size(uint8_t encoding) {
    switch (encoding & 0x07) {
    case DW_EH_PE_absptr:
    case DW_EH_PE_udata8:
        return 8;
    case DW_EH_PE_udata2:
        return 2;
    case DW_EH_PE_udata4:
        return 4;
    default:
        return 0;
    }
}

uint64_t encoded(Cursor &cursor, uint8_t encoding) {
    bool is_signed = encoding & DW_EH_PE_signed;
    switch (encoded_size(encoding)) {
    case 2:
        return is_signed ? static_cast<uint64_t>(cursor.fixed<int16_t>())
                         : cursor.fixed<uint16_t>();
    case 4:
        return is_signed ? static_cast<uint64_t>(cursor.fixed<int32_t>())
                         : cursor.fixed<uint32_t>();
    default:
        return cursor.fixed<uint64_t>();
    }
}

Cursor over(const std::string &bytes) {
    return Cursor(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
}

std::string rest_of(const Cursor &cursor) {
    return std::string(reinterpret_cast<const char *>(cursor.here()), cursor.left());
}

// The personality routine is not ours to know.
bool skip_personality(Cursor &cursor) {
    uint8_t encoding = cursor.fixed<uint8_t>();
    size_t size = encoding == DW_EH_PE_omit ? 0 : encoded_size(encoding);
    cursor.take(size);
    return (size || encoding == DW_EH_PE_omit) && (encoding & 0x70) != DW_EH_PE_aligned;
}

// What follows an augmentation's letter 'z': sizes and encodings, one for each letter.
bool parse_augmentation(Cursor &cursor, const std::string &letters, FrameCommon &common) {
    if (letters.empty())
        return true;
    if (letters[0] != 'z')
        return false;
    common.augmented = true;
    uint64_t size = cursor.uleb();
    const uint8_t *bytes = cursor.take(size);
    if (!bytes)
        return false;
    Cursor data(bytes, size);
    for (char letter : letters.substr(1)) {
        if (letter == 'R')
            common.encoding = data.fixed<uint8_t>();
        else if (letter == 'L')
            data.fixed<uint8_t>();
        else if (letter == 'S')
            common.entry.signal = true;
        else if (letter == 'P' ? !skip_personality(data) : letter != 'B' && letter != 'G')
            return false; // B, G: arm64's signed and tagged addresses
    }
    return data.ok();
}

// Reads a zero-terminated string of at most 15 bytes.
std::string short_text(Cursor &cursor) {
    std::string text;
    for (char letter; (letter = cursor.fixed<char>()) && text.size() < 15;)
        text += letter;
    return text;
}

} // namespace

FrameTables::FrameTables(int fd) : fd_(fd) {
    Elf64_Ehdr header;
    if (read_header(header))
        read_sections(header);
}

FrameTables::~FrameTables() { all_kept -= kept_; }

// Files are many, and made by whoever wants our memory.
bool FrameTables::keep(size_t bytes) {
    if (all_kept + bytes > kMaxKept)
        return false;
    all_kept += bytes;
    kept_ += bytes;
    return true;
}

size_t FrameTables::read(uint64_t offset, void *into, size_t size) const {
    if (offset >= window_offset_ && offset - window_offset_ <= window_.size() &&
        size <= window_.size() - (offset - window_offset_)) {
        std::memcpy(into, window_.data() + (offset - window_offset_), size);
        return size;
    }
    return read_file(fd_, offset, into, size);
}

std::string FrameTables::read_some(uint64_t offset, size_t size) const {
    std::string bytes(size, '\0');
    bytes.resize(read(offset, bytes.data(), size));
    return bytes;
}

bool FrameTables::read_header(Elf64_Ehdr &header) {
    if (read(0, &header, sizeof(header)) < sizeof(header) ||
        !std::equal(ELFMAG, ELFMAG + SELFMAG, header.e_ident) ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_phentsize != sizeof(Elf64_Phdr))
        return false;
    machine_ = header.e_machine;
    entry_ = header.e_entry;
    Elf64_Phdr segment;
    for (size_t i = 0; i < std::min<size_t>(header.e_phnum, kMaxLoads); i++) {
        if (read(header.e_phoff + i * sizeof(segment), &segment, sizeof(segment)) < sizeof(segment))
            return false;
        if (segment.p_type == PT_LOAD)
            loads_.push_back({segment.p_vaddr, segment.p_offset, segment.p_filesz,
                              (segment.p_flags & PF_X) != 0});
        else if (segment.p_type == PT_GNU_EH_FRAME)
            read_search_table(segment);
    }
    return true;
}

// Linkers write one form: version 1, a pointer of four bytes, a count of four, rows of two
// signed words relative to the table itself.
void FrameTables::read_search_table(const Elf64_Phdr &segment) {
    std::string bytes = read_some(segment.p_offset, 12);
    Cursor cursor = over(bytes);
    uint8_t version = cursor.fixed<uint8_t>(), pointer = cursor.fixed<uint8_t>();
    uint8_t count = cursor.fixed<uint8_t>(), rows = cursor.fixed<uint8_t>();
    cursor.fixed<uint32_t>();
    uint64_t entries = cursor.fixed<uint32_t>();
    if (!cursor.ok() || version != 1 || encoded_size(pointer) != 4 || count != DW_EH_PE_udata4 ||
        rows != (DW_EH_PE_datarel | DW_EH_PE_sdata4) || segment.p_filesz < 12)
        return;
    table_ = segment.p_offset + 12;
    table_base_ = segment.p_vaddr;
    table_entries_ = std::min<uint64_t>(entries, (segment.p_filesz - 12) / sizeof(Row));
}

void FrameTables::read_sections(const Elf64_Ehdr &header) {
    if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum > kMaxSections ||
        header.e_shstrndx >= header.e_shnum)
        return;
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    sections.resize(read(header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr)) /
                    sizeof(Elf64_Shdr));
    if (header.e_shstrndx >= sections.size())
        return;
    const Elf64_Shdr &strings = sections[header.e_shstrndx];
    std::string names =
        read_some(strings.sh_offset, std::min<uint64_t>(strings.sh_size, kMaxNames));
    names += '\0';
    for (const Elf64_Shdr &section : sections) {
        if (section.sh_type == SHT_NOBITS || section.sh_name >= names.size() ||
            (section.sh_flags & SHF_COMPRESSED))
            continue;
        std::string name = names.c_str() + section.sh_name;
        bool debug = name == ".debug_frame";
        if (debug || (name == ".eh_frame" && table_entries_ == 0))
            sections_.push_back({section.sh_addr, section.sh_offset, section.sh_size, debug});
        if (sections_.size() == kMaxIndexedSections)
            return;
    }
}

std::optional<uint64_t> FrameTables::address_of(uint64_t offset) const {
    for (const Load &load : loads_)
        if (load.code && offset >= load.offset && offset - load.offset < load.size)
            return offset - load.offset + load.address;
    return std::nullopt;
}

std::optional<FrameTables::Place> FrameTables::place_of(uint64_t address) const {
    for (const Load &load : loads_)
        if (address >= load.address && address - load.address < load.size)
            return Place{address - load.address + load.offset, address, std::nullopt};
    return std::nullopt;
}

// The last row that begins at or before the address; rows are read in windows once
// there are few enough left.
std::optional<FrameTables::Place> FrameTables::search(uint64_t address) const {
    uint64_t low = 0, high = table_entries_;
    auto begins = [this](const Row &row) {
        return table_base_ + static_cast<uint64_t>(static_cast<int64_t>(row.start));
    };
    while (high - low > kWindow) {
        uint64_t middle = low + (high - low) / 2;
        Row row;
        if (read(table_ + middle * sizeof(Row), &row, sizeof(row)) < sizeof(row))
            return std::nullopt;
        if (begins(row) <= address)
            low = middle;
        else
            high = middle;
    }
    Row rows[kWindow];
    size_t n = read(table_ + low * sizeof(Row), rows, (high - low) * sizeof(Row)) / sizeof(Row);
    Row *above =
        std::upper_bound(rows, rows + n, address,
                         [&begins](uint64_t value, const Row &row) { return value < begins(row); });
    if (above == rows)
        return std::nullopt;
    return place_of(table_base_ + static_cast<uint64_t>(static_cast<int64_t>(above[-1].entry)));
}

std::optional<FrameTables::Place> FrameTables::look_up(uint64_t address) {
    if (!indexed_)
        index();
    auto above =
        std::upper_bound(known_.begin(), known_.end(), address,
                         [](uint64_t value, const Known &known) { return value < known.start; });
    if (above == known_.begin() || (--above)->end <= address)
        return std::nullopt;
    return above->place;
}

// Static programs of old toolchains, and files that carry .debug_frame.
void FrameTables::index() {
    indexed_ = true;
    for (const Section &section : sections_)
        index(section);
    window_ = std::string();
    std::sort(known_.begin(), known_.end(),
              [](const Known &a, const Known &b) { return a.start < b.start; });
    known_.shrink_to_fit();
}

void FrameTables::index(const Section &section) {
    window_ = read_some(section.offset, std::min<uint64_t>(section.size, kMaxIndexed));
    window_offset_ = section.offset;
    uint64_t at = 0;
    while (at + 8 <= window_.size() && known_.size() < kMaxKnown) {
        uint32_t length;
        std::memcpy(&length, window_.data() + at, sizeof(length));
        if (length == 0 || length >= 0xfffffff0)
            break;
        Place place{section.offset + at, section.address + at, std::nullopt};
        if (section.debug)
            place.debug = section.offset;
        FrameEntry entry;
        if (parse_entry(place, entry)) {
            if (!keep(sizeof(Known)))
                return;
            known_.push_back({entry.start, entry.end, place});
        }
        at += 4 + uint64_t{length};
    }
}

// The bytes of an entry behind its length; "" where there is none.
std::string FrameTables::read_entry(uint64_t offset, size_t limit) const {
    uint32_t length = 0;
    if (read(offset, &length, sizeof(length)) < sizeof(length) || length < 4 || length > limit)
        return {};
    std::string bytes = read_some(offset + 4, length);
    return bytes.size() == length ? bytes : std::string();
}

const FrameCommon &FrameTables::common_at(const Place &place) {
    if (commons_.size() >= kMaxCommons)
        commons_.clear();
    auto [found, fresh] = commons_.try_emplace(place.offset);
    if (fresh)
        found->second = parse_common(place);
    return found->second;
}

FrameCommon FrameTables::parse_common(const Place &place) const {
    FrameCommon common;
    std::string bytes = read_entry(place.offset, kMaxCommon);
    Cursor cursor = over(bytes);
    uint32_t id = cursor.fixed<uint32_t>();
    uint8_t version = cursor.fixed<uint8_t>();
    if (!cursor.ok() || id != (place.debug ? UINT32_MAX : 0) ||
        (version != 1 && version != 3 && version != 4))
        return common;
    std::string letters = short_text(cursor);
    if (version == 4) // sizes of an address and of a segment selector
        if (cursor.fixed<uint8_t>() != 8 || cursor.fixed<uint8_t>() != 0)
            return common;
    common.entry.code_align = cursor.uleb();
    common.entry.data_align = cursor.sleb();
    uint64_t return_register = version == 1 ? cursor.fixed<uint8_t>() : cursor.uleb();
    common.entry.return_register = static_cast<uint8_t>(return_register);
    common.good = parse_augmentation(cursor, letters, common) && cursor.ok() &&
                  return_register < 128 && encoded_size(common.encoding) &&
                  (common.encoding & 0x70) <= DW_EH_PE_pcrel &&
                  !(common.encoding & DW_EH_PE_indirect);
    common.entry.common = rest_of(cursor);
    return common;
}

FrameTables::Place FrameTables::common_of(const Place &entry, uint32_t pointer) const {
    if (entry.debug)
        return {*entry.debug + pointer, 0, entry.debug};
    return {entry.offset + 4 - pointer, entry.address + 4 - pointer, std::nullopt};
}

bool FrameTables::parse_entry(const Place &place, FrameEntry &entry) {
    std::string bytes = read_entry(place.offset, kMaxEntry);
    Cursor cursor = over(bytes);
    uint32_t pointer = cursor.fixed<uint32_t>();
    if (!cursor.ok() || pointer == (place.debug ? UINT32_MAX : 0))
        return false;
    const FrameCommon &common = common_at(common_of(place, pointer));
    if (!common.good)
        return false;
    entry = common.entry;
    entry.start = encoded(cursor, common.encoding);
    if ((common.encoding & 0x70) == DW_EH_PE_pcrel)
        entry.start += place.address + 8;
    entry.end = entry.start + encoded(cursor, common.encoding & 0x07);
    if (common.augmented)
        cursor.take(cursor.uleb());
    entry.own = rest_of(cursor);
    return cursor.ok() && entry.start < entry.end;
}

bool FrameTables::find(uint64_t address, FrameEntry &entry) {
    auto holds = [&](const std::optional<Place> &place) {
        return place && parse_entry(*place, entry) && entry.start <= address && address < entry.end;
    };
    return holds(search(address)) || holds(look_up(address));
}

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
#include "debug_image.h"

#include <algorithm>
#include <cstring>
#include <lzma.h>

namespace igsdk {
namespace {

// What names of functions, inlined calls and lines need. Neither where variables live
// (the largest of all) nor what only debuggers ask for.
const char *const kWanted[] = {
    ".debug_info", ".debug_abbrev",      ".debug_line",   ".debug_line_str", ".debug_str",
    ".debug_addr", ".debug_str_offsets", ".debug_ranges", ".debug_rnglists",
};
// libdw looks for the end of some numbers without asking where the section ends.
constexpr size_t kPadding = 64;
constexpr size_t kMaxPacked = 16 << 20;
constexpr size_t kMaxUnpacked = 64 << 20;
constexpr uint64_t kMaxLzmaMemory = 96 << 20;

struct Part {
    const Elf64_Shdr *section;
    const char *name;
    uint64_t size, offset;
};

std::vector<Part> parts_of(const ElfSections &file) {
    std::vector<Part> parts;
    for (const Elf64_Shdr &section : file.all()) {
        if (section.sh_type != SHT_PROGBITS || (section.sh_flags & SHF_ALLOC))
            continue;
        std::string name = file.name(section);
        for (const char *wanted : kWanted) {
            uint64_t size = name == wanted ? file.plain_size(section) : 0;
            auto same = [&](const Part &part) { return part.name == wanted; };
            if (size && std::none_of(parts.begin(), parts.end(), same))
                parts.push_back({&section, wanted, size, 0});
        }
    }
    return parts;
}

uint64_t total(const std::vector<Part> &parts, uint64_t limit) {
    uint64_t sum = 0;
    for (const Part &part : parts)
        sum += std::min(part.size, limit + 1);
    return sum;
}

uint64_t align(uint64_t at) { return (at + 15) & ~uint64_t{15}; }

struct Layout {
    uint64_t names, headers, size;
};

Layout lay_out(std::vector<Part> &parts) {
    uint64_t at = sizeof(Elf64_Ehdr), names = sizeof(".shstrtab") + 1;
    for (Part &part : parts) {
        part.offset = align(at);
        at = part.offset + part.size + kPadding;
        names += std::strlen(part.name) + 1;
    }
    Layout layout{align(at), align(align(at) + names), 0};
    layout.size = layout.headers + (parts.size() + 2) * sizeof(Elf64_Shdr);
    return layout;
}

uint32_t add_name(char *names, uint64_t &at, const char *name) {
    auto start = static_cast<uint32_t>(at);
    size_t size = std::strlen(name) + 1;
    std::memcpy(names + at, name, size);
    at += size;
    return start;
}

void put_header(std::vector<char> &image, const Elf64_Ehdr &of, const Layout &layout, size_t n) {
    Elf64_Ehdr header{};
    std::copy_n(ELFMAG, SELFMAG, header.e_ident);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = of.e_machine;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof(header);
    header.e_shoff = layout.headers;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(n + 2);
    header.e_shstrndx = static_cast<uint16_t>(n + 1);
    std::memcpy(image.data(), &header, sizeof(header));
}

void put_sections(std::vector<char> &image, const std::vector<Part> &parts, const Layout &layout) {
    std::vector<Elf64_Shdr> headers(parts.size() + 2);
    uint64_t at = 1;
    char *names = image.data() + layout.names;
    for (size_t i = 0; i < parts.size(); i++) {
        Elf64_Shdr &header = headers[i + 1];
        header.sh_name = add_name(names, at, parts[i].name);
        header.sh_type = SHT_PROGBITS;
        header.sh_offset = parts[i].offset;
        header.sh_size = parts[i].size;
        header.sh_addralign = 1;
    }
    Elf64_Shdr &last = headers.back();
    last.sh_name = add_name(names, at, ".shstrtab");
    last.sh_type = SHT_STRTAB;
    last.sh_offset = layout.names;
    last.sh_size = at;
    last.sh_addralign = 1;
    std::memcpy(image.data() + layout.headers, headers.data(), headers.size() * sizeof(Elf64_Shdr));
}

// Ends its decoder with itself.
struct Unpacker {
    lzma_stream stream = LZMA_STREAM_INIT;
    bool usable = lzma_stream_decoder(&stream, kMaxLzmaMemory, 0) == LZMA_OK;
    Unpacker() = default;
    Unpacker(const Unpacker &) = delete;
    Unpacker &operator=(const Unpacker &) = delete;
    ~Unpacker() { lzma_end(&stream); }
};

std::vector<char> unpack(const std::vector<char> &packed) {
    Unpacker unpacker;
    lzma_stream &stream = unpacker.stream;
    stream.next_in = reinterpret_cast<const uint8_t *>(packed.data());
    stream.avail_in = packed.size();
    std::vector<char> plain;
    lzma_ret result = unpacker.usable ? LZMA_OK : LZMA_MEM_ERROR;
    while (result == LZMA_OK && plain.size() < kMaxUnpacked) {
        size_t before = plain.size();
        plain.resize(std::min(kMaxUnpacked, before + std::max<size_t>(before, 64 * 1024)));
        stream.next_out = reinterpret_cast<uint8_t *>(plain.data() + before);
        stream.avail_out = plain.size() - before;
        result = lzma_code(&stream, LZMA_FINISH);
        plain.resize(plain.size() - stream.avail_out);
    }
    if (result != LZMA_STREAM_END)
        plain.clear();
    return plain;
}

} // namespace

DebugKind debug_kind(const ElfSections &file, uint64_t limit) {
    auto parts = parts_of(file);
    auto has = [&](const char *name) {
        return std::any_of(parts.begin(), parts.end(),
                           [&](const Part &part) { return std::strcmp(part.name, name) == 0; });
    };
    if (!has(".debug_info") || !has(".debug_abbrev"))
        return DebugKind::none;
    return total(parts, limit) > limit ? DebugKind::too_large : DebugKind::usable;
}

std::vector<char> debug_image(const ElfSections &file, uint64_t limit) {
    if (debug_kind(file, limit) != DebugKind::usable)
        return {};
    auto parts = parts_of(file);
    Layout layout = lay_out(parts);
    std::vector<char> image(layout.size);
    put_header(image, file.header(), layout, parts.size());
    for (const Part &part : parts)
        if (!file.read_plain(*part.section, image.data() + part.offset, part.size))
            return {};
    put_sections(image, parts, layout);
    return image;
}

std::shared_ptr<const Bytes> mini_debug_data(const ElfSections &file) {
    const Elf64_Shdr *section = file.find(".gnu_debugdata");
    auto packed = section ? file.content(*section, kMaxPacked) : std::nullopt;
    auto plain = packed ? unpack(*packed) : std::vector<char>();
    if (plain.empty())
        return nullptr;
    plain.shrink_to_fit();
    return std::make_shared<MemoryBytes>(std::move(plain));
}

} // namespace igsdk

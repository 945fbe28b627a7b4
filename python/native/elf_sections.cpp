// SPDX-License-Identifier: Apache-2.0
#include "elf_sections.h"

#include <algorithm>
#include <cstring>
#include <zlib.h>

namespace igsdk {
namespace {

constexpr size_t kMaxHeaders = 0xffff;
constexpr size_t kMaxCode = 256; // sections of code; linkers make about ten
constexpr size_t kMaxNotes = 64 * 1024;
constexpr size_t kSymbolsAtOnce = 2048;
constexpr size_t kPackedAtOnce = 64 * 1024;

uint64_t align4(uint64_t value) { return (value + 3) & ~uint64_t{3}; }

bool is_elf64(const Elf64_Ehdr &header) {
    return std::equal(ELFMAG, ELFMAG + SELFMAG, header.e_ident) &&
           header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB;
}

// Ends its stream with itself.
struct Inflater {
    z_stream stream{};
    bool usable = inflateInit(&stream) == Z_OK;
    Inflater() = default;
    Inflater(const Inflater &) = delete;
    Inflater &operator=(const Inflater &) = delete;
    ~Inflater() {
        if (usable)
            inflateEnd(&stream);
    }
};

} // namespace

ElfSections::ElfSections(std::shared_ptr<const Bytes> bytes) : bytes_(std::move(bytes)) {
    if (bytes_->read(0, &header_, sizeof(header_)) < sizeof(header_) || !is_elf64(header_) ||
        header_.e_shoff == 0 || header_.e_shentsize != sizeof(Elf64_Shdr))
        return;
    size_t count = header_.e_shnum;
    Elf64_Shdr first;
    if (count == 0 && bytes_->read(header_.e_shoff, &first, sizeof(first)) == sizeof(first))
        count = std::min<uint64_t>(first.sh_size, kMaxHeaders);
    sections_ = bytes_->table<Elf64_Shdr>(header_.e_shoff, count);
    for (size_t i = 0; i < sections_.size() && code_.size() < kMaxCode; i++)
        if (sections_[i].sh_flags & SHF_EXECINSTR)
            code_.push_back(i);
}

std::string ElfSections::name(const Elf64_Shdr &section) const {
    size_t names = header_.e_shstrndx;
    if (names == SHN_XINDEX && !sections_.empty())
        names = sections_[0].sh_link;
    if (names >= sections_.size() || section.sh_name >= sections_[names].sh_size)
        return {};
    return bytes_->text(sections_[names].sh_offset + section.sh_name);
}

const Elf64_Shdr *ElfSections::find(const char *wanted) const {
    for (const Elf64_Shdr &section : sections_)
        if (name(section) == wanted)
            return &section;
    return nullptr;
}

const Elf64_Shdr *ElfSections::find(uint32_t type) const {
    for (const Elf64_Shdr &section : sections_)
        if (section.sh_type == type)
            return &section;
    return nullptr;
}

const Elf64_Shdr *ElfSections::code_at(uint64_t address) const {
    for (size_t number : code_) {
        const Elf64_Shdr &section = sections_[number];
        if (address >= section.sh_addr && address - section.sh_addr < section.sh_size)
            return &section;
    }
    return nullptr;
}

std::string ElfSections::build_id() const {
    for (const Elf64_Shdr &section : sections_) {
        if (section.sh_type != SHT_NOTE)
            continue;
        std::string id = build_id_in(*bytes_, section.sh_offset, section.sh_size);
        if (!id.empty())
            return id;
    }
    return {};
}

uint64_t ElfSections::plain_size(const Elf64_Shdr &section) const {
    uint64_t size = bytes_->size();
    if (section.sh_type == SHT_NOBITS || section.sh_offset > size ||
        section.sh_size > size - section.sh_offset)
        return 0;
    if (!(section.sh_flags & SHF_COMPRESSED))
        return section.sh_size;
    Elf64_Chdr packed;
    if (section.sh_size < sizeof(packed) ||
        bytes_->read(section.sh_offset, &packed, sizeof(packed)) < sizeof(packed) ||
        packed.ch_type != ELFCOMPRESS_ZLIB)
        return 0;
    return packed.ch_size;
}

bool ElfSections::read_plain(const Elf64_Shdr &section, char *into, size_t size) const {
    if (section.sh_flags & SHF_COMPRESSED)
        return inflate(section, into, size);
    return bytes_->read(section.sh_offset, into, size) == size;
}

bool ElfSections::inflate(const Elf64_Shdr &section, char *into, size_t size) const {
    Inflater inflater;
    z_stream &stream = inflater.stream;
    stream.next_out = reinterpret_cast<Bytef *>(into);
    stream.avail_out = static_cast<uInt>(size);
    uint64_t at = section.sh_offset + sizeof(Elf64_Chdr), end = section.sh_offset + section.sh_size;
    int result = inflater.usable ? Z_OK : Z_MEM_ERROR;
    while (result == Z_OK && stream.avail_out && at < end) {
        auto packed = bytes_->table<char>(at, std::min<uint64_t>(kPackedAtOnce, end - at));
        if (packed.empty())
            break;
        at += packed.size();
        stream.next_in = reinterpret_cast<Bytef *>(packed.data());
        stream.avail_in = static_cast<uInt>(packed.size());
        result = ::inflate(&stream, Z_NO_FLUSH);
    }
    return stream.avail_out == 0;
}

std::optional<std::vector<char>> ElfSections::content(const Elf64_Shdr &section,
                                                      size_t limit) const {
    uint64_t size = plain_size(section);
    if (size == 0 || size > limit)
        return std::nullopt;
    std::vector<char> content(size);
    if (!read_plain(section, content.data(), content.size()))
        return std::nullopt;
    return content;
}

std::optional<ElfSections::SymbolSection> ElfSections::symbol_section(uint32_t type) const {
    uint64_t size = bytes_->size();
    for (const Elf64_Shdr &section : sections_) {
        if (section.sh_type != type || section.sh_entsize != sizeof(Elf64_Sym) ||
            section.sh_link >= sections_.size() || section.sh_offset > size)
            continue;
        const Elf64_Shdr &names = sections_[section.sh_link];
        if (names.sh_type != SHT_STRTAB || names.sh_offset > size)
            continue;
        return SymbolSection{section.sh_offset,
                             std::min(section.sh_size, size - section.sh_offset) /
                                 sizeof(Elf64_Sym),
                             names.sh_offset, std::min(names.sh_size, size - names.sh_offset)};
    }
    return std::nullopt;
}

bool ElfSections::each_symbol(uint32_t type, const std::function<void(const Symbol &)> &visit,
                              size_t &left) const {
    auto section = symbol_section(type);
    for (uint64_t done = 0; section && done < section->count; done += kSymbolsAtOnce) {
        auto entries =
            bytes_->table<Elf64_Sym>(section->offset + done * sizeof(Elf64_Sym),
                                     std::min<uint64_t>(kSymbolsAtOnce, section->count - done));
        for (const Elf64_Sym &entry : entries) {
            if (left == 0)
                return false;
            left--;
            if (entry.st_shndx != SHN_UNDEF && entry.st_name < section->names_size)
                visit({entry.st_value, entry.st_name, entry.st_size,
                       static_cast<uint8_t>(ELF64_ST_TYPE(entry.st_info)),
                       static_cast<uint8_t>(ELF64_ST_BIND(entry.st_info))});
        }
        if (entries.empty())
            break; // the file has shrunk
    }
    return true;
}

std::optional<uint64_t> ElfSections::strings(uint32_t table) const {
    auto section = symbol_section(table);
    return section ? std::optional<uint64_t>(section->names) : std::nullopt;
}

uint32_t ElfSections::dynamic_name(uint32_t number) const {
    auto section = symbol_section(SHT_DYNSYM);
    Elf64_Sym entry;
    if (!section || number >= section->count ||
        bytes_->read(section->offset + number * sizeof(entry), &entry, sizeof(entry)) <
            sizeof(entry) ||
        entry.st_name >= section->names_size)
        return 0;
    return entry.st_name;
}

std::string hex(const unsigned char *bytes, size_t size) {
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (size_t i = 0; i < size; i++) {
        text += digits[bytes[i] >> 4];
        text += digits[bytes[i] & 15];
    }
    return text;
}

std::string build_id_in(const Bytes &file, uint64_t offset, uint64_t size) {
    auto bytes = file.table<unsigned char>(offset, std::min<uint64_t>(size, kMaxNotes));
    for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= bytes.size();) {
        Elf64_Nhdr note;
        std::copy_n(bytes.data() + at, sizeof(note), reinterpret_cast<unsigned char *>(&note));
        uint64_t name = at + sizeof(note);
        uint64_t content = name + align4(note.n_namesz);
        if (content > bytes.size() || note.n_descsz > bytes.size() - content)
            break;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(ELF_NOTE_GNU) &&
            std::equal(ELF_NOTE_GNU, ELF_NOTE_GNU + sizeof(ELF_NOTE_GNU), bytes.data() + name))
            return hex(bytes.data() + content, std::min<size_t>(note.n_descsz, 64));
        at = content + align4(note.n_descsz);
    }
    return {};
}

} // namespace igsdk

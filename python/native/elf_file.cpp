// SPDX-License-Identifier: Apache-2.0
#include "elf_file.h"
#include "elf_sections.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace igsdk {
namespace {

constexpr size_t kMaxHeaders = 0xffff;
constexpr size_t kMaxName = 8 * 1024;
constexpr size_t kWindow = 64 * 1024;
constexpr size_t kSymbolsAtOnce = 2048;
constexpr unsigned kFunctions = 1u << STT_FUNC;
constexpr unsigned kSymbols = kFunctions | 1u << STT_OBJECT | 1u << STT_NOTYPE;

[[noreturn]] void refuse(const char *why) { throw std::invalid_argument(why); }

} // namespace

ElfFile::ElfFile(int fd) : ElfFile(FileBytes::duplicate(fd)) {}

ElfFile::ElfFile(std::shared_ptr<const FileBytes> file) : file_(std::move(file)) {
    read_header();
    read_segments();
    read_sections();
}

size_t ElfFile::read(uint64_t offset, void *into, size_t size) const {
    return file_->read(offset, into, size);
}

void ElfFile::read_header() {
    size_t n = read(0, &header_, sizeof(header_));
    if (n < SELFMAG || !std::equal(ELFMAG, ELFMAG + SELFMAG, header_.e_ident))
        refuse("it is not an ELF file");
    if (n > EI_CLASS && header_.e_ident[EI_CLASS] == ELFCLASS32)
        refuse("it is a 32-bit file");
    if (n < sizeof(header_))
        refuse("it is cut short within its header");
    if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB)
        refuse("it is not a 64-bit little-endian ELF file");
    if (header_.e_type != ET_DYN && header_.e_type != ET_EXEC)
        refuse("it is neither a shared library nor a program");
}

void ElfFile::read_segments() {
    if (header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phnum >= PN_XNUM)
        refuse("its program headers have an unknown form");
    auto table = file_->table<Elf64_Phdr>(header_.e_phoff, header_.e_phnum);
    if (table.size() < header_.e_phnum || table.empty())
        refuse("it is cut short within its program headers");
    for (const Elf64_Phdr &entry : table) {
        if (entry.p_offset > size() || entry.p_filesz > size() - entry.p_offset) {
            if (entry.p_type == PT_LOAD)
                refuse("it is cut short within a segment");
            continue;
        }
        Segment segment{entry.p_vaddr, entry.p_offset, entry.p_filesz};
        if (entry.p_type == PT_LOAD)
            loaded_.push_back(segment);
        if (entry.p_type == PT_LOAD && (entry.p_flags & PF_X))
            code_.push_back(segment);
        else if (entry.p_type == PT_LOAD && (entry.p_flags & PF_W))
            data_.push_back(segment);
        else if (entry.p_type == PT_NOTE)
            notes_.push_back(segment);
        else if (entry.p_type == PT_INTERP)
            interpreter_ = segment;
    }
}

// Without usable section headers a file has no symbols for us; it is still a file.
void ElfFile::read_sections() {
    if (header_.e_shoff == 0 || header_.e_shentsize != sizeof(Elf64_Shdr))
        return;
    size_t count = header_.e_shnum;
    Elf64_Shdr first;
    if (count == 0 && read(header_.e_shoff, &first, sizeof(first)) == sizeof(first))
        count = std::min<uint64_t>(first.sh_size, kMaxHeaders);
    sections_ = file_->table<Elf64_Shdr>(header_.e_shoff, count);
    add_symbols(SHT_DYNSYM);
    add_symbols(SHT_SYMTAB);
}

void ElfFile::add_symbols(uint32_t type) {
    for (const Elf64_Shdr &section : sections_) {
        if (section.sh_type != type || section.sh_entsize != sizeof(Elf64_Sym) ||
            section.sh_link >= sections_.size() || section.sh_offset > size())
            continue;
        const Elf64_Shdr &names = sections_[section.sh_link];
        if (names.sh_type != SHT_STRTAB || names.sh_offset > size())
            continue;
        symbols_.push_back(
            {section.sh_offset,
             std::min(section.sh_size, size() - section.sh_offset) / sizeof(Elf64_Sym),
             names.sh_offset, std::min(names.sh_size, size() - names.sh_offset)});
        return;
    }
}

std::optional<Segment> ElfFile::section(const std::string &name) const {
    size_t at = header_.e_shstrndx;
    if (at == SHN_XINDEX && !sections_.empty())
        at = sections_[0].sh_link;
    if (at >= sections_.size())
        return std::nullopt;
    const Elf64_Shdr &names = sections_[at];
    for (const Elf64_Shdr &section : sections_) {
        bool has_bytes = section.sh_type != SHT_NOBITS && section.sh_offset <= size() &&
                         section.sh_size <= size() - section.sh_offset;
        if (has_bytes && names.sh_offset <= size() && section.sh_name < names.sh_size &&
            name_at(names.sh_offset + section.sh_name) == name)
            return Segment{section.sh_addr, section.sh_offset, section.sh_size};
    }
    return std::nullopt;
}

bool ElfFile::each_function(const std::function<void(const Function &)> &visit,
                            size_t limit) const {
    return visit_all(kFunctions, visit, limit);
}

bool ElfFile::each_symbol(const std::function<void(const Function &)> &visit, size_t limit) const {
    return visit_all(kSymbols, visit, limit);
}

bool ElfFile::visit_all(unsigned types, const std::function<void(const Function &)> &visit,
                        size_t limit) const {
    for (const SymbolSection &section : symbols_)
        if (!visit_symbols(section, types, visit, limit))
            return false;
    return true;
}

bool ElfFile::visit_symbols(const SymbolSection &section, unsigned types,
                            const std::function<void(const Function &)> &visit,
                            size_t &left) const {
    for (uint64_t done = 0; done < section.count; done += kSymbolsAtOnce) {
        auto table =
            file_->table<Elf64_Sym>(section.offset + done * sizeof(Elf64_Sym),
                                    std::min<uint64_t>(kSymbolsAtOnce, section.count - done));
        for (const Elf64_Sym &symbol : table) {
            if (left-- == 0)
                return false;
            if (!(types >> ELF64_ST_TYPE(symbol.st_info) & 1) || symbol.st_shndx == SHN_UNDEF ||
                symbol.st_value == 0 || symbol.st_name >= section.names_size)
                continue;
            auto size = std::min<uint64_t>(symbol.st_size, UINT32_MAX);
            visit({symbol.st_value, section.names + symbol.st_name, static_cast<uint32_t>(size),
                   static_cast<uint8_t>(ELF64_ST_BIND(symbol.st_info))});
        }
    }
    return true;
}

std::optional<uint64_t> ElfFile::offset_of(uint64_t address) const {
    for (const Segment &segment : code_)
        if (address >= segment.address && address - segment.address < segment.size)
            return address - segment.address + segment.offset;
    return std::nullopt;
}

std::optional<uint64_t> ElfFile::address_of(uint64_t offset) const {
    const Segment *segment = code_at(offset);
    if (!segment)
        return std::nullopt;
    return offset - segment->offset + segment->address;
}

const Segment *ElfFile::code_at(uint64_t offset) const {
    for (const Segment &segment : code_)
        if (offset >= segment.offset && offset - segment.offset < segment.size)
            return &segment;
    return nullptr;
}

std::string ElfFile::name_at(uint64_t offset) const {
    uint64_t needed = std::min<uint64_t>(kMaxName, size() - std::min(offset, size()));
    if (offset < window_offset_ || offset - window_offset_ + needed > window_.size()) {
        window_.resize(kWindow);
        window_offset_ = offset;
        window_.resize(read(offset, window_.data(), kWindow));
    }
    size_t at = offset - window_offset_;
    if (at >= window_.size())
        return {};
    size_t longest = std::min(kMaxName, window_.size() - at);
    return std::string(window_.data() + at, ::strnlen(window_.data() + at, longest));
}

size_t ElfFile::read_at(uint64_t address, void *into, size_t size) const {
    for (const Segment &segment : loaded_)
        if (address >= segment.address && address - segment.address < segment.size) {
            uint64_t skipped = address - segment.address;
            size = std::min<uint64_t>(size, segment.size - skipped);
            return read(segment.offset + skipped, into, size);
        }
    return 0;
}

std::string ElfFile::interpreter() const {
    return interpreter_.size ? name_at(interpreter_.offset) : std::string();
}

std::string ElfFile::machine() const {
    switch (header_.e_machine) {
    case EM_X86_64:
        return "x86_64";
    case EM_AARCH64:
        return "aarch64";
    case EM_PPC64:
        return "ppc64le";
    case EM_RISCV:
        return "riscv64";
    default:
        return "machine " + std::to_string(header_.e_machine);
    }
}

std::string ElfFile::type() const { return header_.e_type == ET_EXEC ? "program" : "shared"; }

std::string ElfFile::build_id() const {
    for (const Segment &notes : notes_) {
        std::string id = build_id_in(*file_, notes.offset, notes.size);
        if (!id.empty())
            return id;
    }
    return {};
}

} // namespace igsdk

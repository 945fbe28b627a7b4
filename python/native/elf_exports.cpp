// SPDX-License-Identifier: Apache-2.0
// One exported symbol of a large library, without a look at all of them: by the hash
// table that the dynamic loader uses.
#include "elf_file.h"

#include <algorithm>

namespace igsdk {
namespace {

// Names in one chain; a table that was not made to mislead has a handful.
constexpr size_t kMaxChain = 4096;

struct HashHeader {
    uint32_t buckets, first_symbol, filter_words, filter_shift;
};

// DJB's hash, as .gnu.hash has it.
uint32_t hash_name(const std::string &name) {
    uint32_t hash = 5381;
    for (unsigned char letter : name)
        hash = hash * 33 + letter;
    return hash;
}

template <typename T> std::optional<T> value_at(const ElfFile &file, uint64_t offset) {
    T value;
    if (file.read(offset, &value, sizeof(value)) < sizeof(value))
        return std::nullopt;
    return value;
}

// Neither a variable of each thread nor a function that chooses another.
bool has_address(const Elf64_Sym &symbol) {
    unsigned type = ELF64_ST_TYPE(symbol.st_info);
    return type == STT_FUNC || type == STT_OBJECT || type == STT_NOTYPE;
}

} // namespace

const Elf64_Shdr *ElfFile::export_table() const {
    for (const Elf64_Shdr &section : sections_)
        if (section.sh_type == SHT_GNU_HASH && section.sh_link < sections_.size() &&
            section.sh_offset <= size() && sections_[section.sh_link].sh_type == SHT_DYNSYM)
            return &section;
    return nullptr;
}

std::optional<Function> ElfFile::exported(const std::string &name) const {
    const Elf64_Shdr *table = export_table();
    if (!table || symbols_.empty())
        return std::nullopt;
    auto header = value_at<HashHeader>(*this, table->sh_offset);
    if (!header || header->buckets == 0)
        return std::nullopt;
    uint32_t hash = hash_name(name);
    uint64_t buckets = table->sh_offset + sizeof(HashHeader) + 8ull * header->filter_words;
    uint64_t chains = buckets + 4ull * header->buckets;
    auto number = value_at<uint32_t>(*this, buckets + 4ull * (hash % header->buckets));
    if (!number || *number < header->first_symbol)
        return std::nullopt;
    for (size_t i = 0; i < kMaxChain; i++, ++*number) {
        auto link = value_at<uint32_t>(*this, chains + 4ull * (*number - header->first_symbol));
        if (!link)
            break;
        if ((*link | 1) == (hash | 1))
            if (auto symbol = dynamic_symbol(*number, name))
                return symbol;
        if (*link & 1)
            break;
    }
    return std::nullopt;
}

std::optional<Function> ElfFile::dynamic_symbol(uint64_t number, const std::string &name) const {
    const SymbolSection &section = symbols_.front(); // .dynsym, where there is one
    if (number >= section.count)
        return std::nullopt;
    auto symbol = value_at<Elf64_Sym>(*this, section.offset + number * sizeof(Elf64_Sym));
    if (!symbol || symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0 ||
        symbol->st_name >= section.names_size || !has_address(*symbol))
        return std::nullopt;
    std::string found(name.size() + 1, '\1');
    read(section.names + symbol->st_name, found.data(), found.size());
    if (found.compare(0, name.size(), name) != 0 || found.back() != '\0')
        return std::nullopt;
    auto size = std::min<uint64_t>(symbol->st_size, UINT32_MAX);
    return Function{symbol->st_value, section.names + symbol->st_name, static_cast<uint32_t>(size),
                    static_cast<uint8_t>(ELF64_ST_BIND(symbol->st_info))};
}

} // namespace igsdk

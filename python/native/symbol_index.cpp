// SPDX-License-Identifier: Apache-2.0
#include "symbol_index.h"

#include "plt.h"

#include <algorithm>
#include <tuple>

namespace igsdk {
namespace {

constexpr size_t kMaxFunctions = 2'000'000;
constexpr size_t kMaxSymbols = 8'000'000; // of any type, to look through
constexpr size_t kMaxStubs = 100'000;
constexpr size_t kMaxLabels = 100'000; // symbols without a type, whose names are looked at
// How many addresses before the one looked for are asked whether they reach it, and
// how many names of one address are compared.
constexpr size_t kEnclosing = 16, kAliases = 16;
constexpr uint64_t kMaxAddress = (uint64_t{1} << 48) - 1;

enum Rank : uint8_t { local = 1, resolver = 2, label = 4, unsized = 8 };

std::optional<uint8_t> rank_of(const Symbol &symbol) {
    uint8_t rank = symbol.binding == STB_LOCAL ? local : 0;
    if (symbol.size == 0)
        rank |= unsized;
    switch (symbol.type) {
    case STT_FUNC:
        return rank;
    case STT_GNU_IFUNC: // lies at the function that chooses
        return rank | resolver;
    case STT_NOTYPE: // assembly that says nothing more
        return rank | label;
    default:
        return std::nullopt;
    }
}

// Of several names of one function people know the one with the fewest underscores
// ("read", not "__read" or "__libc_read"). In the vdso it is the other way round.
size_t roughness(const std::string &name) {
    if (name.compare(0, 7, "__vdso_") == 0)
        return 0;
    return 1 + std::min(name.find_first_not_of('_'), name.size());
}

} // namespace

void SymbolIndex::add(const ElfSections &file) {
    add_table(file, SHT_SYMTAB);
    add_table(file, SHT_DYNSYM);
}

void SymbolIndex::add_table(const ElfSections &file, uint32_t table) {
    auto strings = file.strings(table);
    if (!strings || sources_.size() >= UINT8_MAX)
        return;
    auto source = static_cast<uint8_t>(sources_.size());
    sources_.push_back({file.bytes(), *strings, false});
    size_t sorted = entries_.size(), left = kMaxSymbols;
    auto visit = [&](const Symbol &symbol) { put(symbol, source, sorted); };
    complete_ = file.each_symbol(table, visit, left) && complete_;
    sort_from(sorted);
}

void SymbolIndex::put(const Symbol &symbol, uint8_t source, size_t sorted) {
    auto rank = rank_of(symbol);
    if (!rank || symbol.address == 0 || symbol.address > kMaxAddress ||
        known(symbol.address, sorted))
        return;
    if (entries_.size() >= kMaxFunctions) {
        complete_ = false;
        return;
    }
    auto size = static_cast<uint32_t>(std::min<uint64_t>(symbol.size, UINT32_MAX));
    Entry entry{symbol.address, *rank, source, symbol.name, size};
    if (!(*rank & label) || is_label(entry))
        entries_.push_back(entry);
}

// In code, and not of the assembler's own making.
bool SymbolIndex::is_label(const Entry &entry) {
    if (!code_.code_at(entry.address) || labels_ >= kMaxLabels)
        return false;
    labels_++;
    std::string name = name_of(entry);
    return !name.empty() && name[0] != '$' && name[0] != '.';
}

bool SymbolIndex::known(uint64_t address, size_t sorted) const {
    auto end = entries_.begin() + static_cast<ptrdiff_t>(sorted);
    auto at = std::lower_bound(entries_.begin(), end, address,
                               [](const Entry &e, uint64_t value) { return e.address < value; });
    return at != end && at->address == address;
}

void SymbolIndex::sort_from(size_t sorted) {
    auto before = [](const Entry &a, const Entry &b) {
        auto key = [](const Entry &e) {
            return std::make_tuple(uint64_t{e.address}, uint64_t{e.rank}, e.name);
        };
        return key(a) < key(b);
    };
    auto middle = entries_.begin() + static_cast<ptrdiff_t>(sorted);
    std::sort(middle, entries_.end(), before);
    std::inplace_merge(entries_.begin(), middle, entries_.end(), before);
    entries_.shrink_to_fit();
}

void SymbolIndex::add_stubs(const ElfSections &file) {
    auto strings = file.strings(SHT_DYNSYM);
    if (!strings || sources_.size() >= UINT8_MAX)
        return;
    auto source = static_cast<uint8_t>(sources_.size());
    sources_.push_back({file.bytes(), *strings, true});
    size_t sorted = entries_.size();
    for (const Stub &stub : find_stubs(file, kMaxStubs))
        if (stub.address <= kMaxAddress && !known(stub.address, sorted))
            entries_.push_back({stub.address, label, source, stub.name, stub.size});
    sort_from(sorted);
}

std::optional<SymbolIndex::Found> SymbolIndex::find(uint64_t address) const {
    auto above =
        std::upper_bound(entries_.begin(), entries_.end(), address,
                         [](uint64_t value, const Entry &entry) { return value < entry.address; });
    bool nearest = true;
    for (size_t tries = 0; above != entries_.begin() && tries < kEnclosing; tries++) {
        uint64_t start = (above - 1)->address;
        auto first = std::lower_bound(
            entries_.begin(), above, start,
            [](const Entry &entry, uint64_t value) { return entry.address < value; });
        if (const Entry *entry = best(first, above, address, nearest))
            return Found{name_of(*entry), entry->address, entry->size != 0};
        above = first;
        nearest = false;
    }
    return std::nullopt;
}

const SymbolIndex::Entry *SymbolIndex::best(Iterator first, Iterator last, uint64_t address,
                                            bool nearest) const {
    const Entry *found = nullptr;
    size_t found_roughness = 0;
    if (static_cast<size_t>(last - first) > kAliases)
        last = first + kAliases;
    for (auto entry = first; entry != last; ++entry) {
        if (!reaches(*entry, address, nearest))
            continue;
        if (found && entry->rank != found->rank)
            break;
        if (!found && (entry + 1 == last || (entry + 1)->rank != entry->rank))
            return &*entry;
        size_t rough = roughness(name_of(*entry));
        if (!found || rough < found_roughness) {
            found = &*entry;
            found_roughness = rough;
        }
    }
    return found;
}

bool SymbolIndex::reaches(const Entry &entry, uint64_t address, bool nearest) const {
    if (entry.size)
        return address - entry.address < entry.size;
    return nearest && code_.code_at(address) &&
           code_.code_at(entry.address) == code_.code_at(address);
}

std::string SymbolIndex::name_of(const Entry &entry) const {
    const Source &source = sources_[entry.source];
    std::string name = source.bytes->text(source.strings + entry.name);
    size_t version = name.find('@');
    if (version != 0 && version != std::string::npos)
        name.resize(version);
    return source.stubs ? name + "@plt" : name;
}

uint64_t SymbolIndex::memory() const {
    uint64_t sum = entries_.capacity() * sizeof(Entry);
    for (const Source &source : sources_)
        if (dynamic_cast<const MemoryBytes *>(source.bytes.get()))
            sum += source.bytes->size();
    return sum;
}

} // namespace igsdk

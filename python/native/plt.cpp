// SPDX-License-Identifier: Apache-2.0
#include "plt.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace igsdk {
namespace {

constexpr size_t kMaxBytes = 8 << 20; // of one section of stubs
constexpr size_t kMaxRelocations = 4'000'000;
constexpr size_t kAtOnce = 4096;

// The word that is filled -> the function's number in .dynsym.
using Words = std::unordered_map<uint64_t, uint32_t>;

void read_relocations(const ElfSections &file, const Elf64_Shdr &section, size_t limit,
                      Words &words) {
    uint64_t count = std::min<uint64_t>(section.sh_size / sizeof(Elf64_Rela), kMaxRelocations);
    for (uint64_t done = 0; done < count; done += kAtOnce) {
        auto entries =
            file.bytes()->table<Elf64_Rela>(section.sh_offset + done * sizeof(Elf64_Rela),
                                            std::min<uint64_t>(kAtOnce, count - done));
        for (const Elf64_Rela &entry : entries) {
            auto type = ELF64_R_TYPE(entry.r_info);
            if (type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT)
                words.emplace(entry.r_offset, ELF64_R_SYM(entry.r_info));
            if (words.size() >= limit)
                return;
        }
        if (entries.empty())
            return;
    }
}

Words filled_words(const ElfSections &file, size_t limit) {
    Words words;
    for (const char *name : {".rela.plt", ".rela.dyn"})
        if (const Elf64_Shdr *section = file.find(name))
            if (section->sh_type == SHT_RELA)
                read_relocations(file, *section, limit, words);
    return words;
}

// The address of the word through which the stub jumps; 0 where it does not.
// [endbr64] [bnd] jmp *disp32(%rip)
uint64_t jumped_through(const unsigned char *code, size_t size, uint64_t address) {
    for (size_t at = 0; at + 6 <= std::min<size_t>(size, 12); at++) {
        if (code[at] != 0xff || code[at + 1] != 0x25)
            continue;
        int32_t distance;
        std::memcpy(&distance, code + at + 2, sizeof(distance));
        return address + at + 6 + static_cast<uint64_t>(int64_t{distance});
    }
    return 0;
}

class Section {
  public:
    Section(const ElfSections &file, const Elf64_Shdr &header, const Words &words)
        : file_(file), header_(header), words_(words) {}

    void add_to(std::vector<Stub> &stubs, size_t limit) const {
        auto code = file_.content(header_, kMaxBytes);
        // Eight bytes each in .plt.got, unless they begin with endbr64.
        uint64_t size = header_.sh_entsize == 8 ? 8 : 16;
        for (uint64_t at = 0; code && at + size <= code->size() && stubs.size() < limit; at += size)
            add(reinterpret_cast<const unsigned char *>(code->data()) + at, at, size, stubs);
    }

  private:
    void add(const unsigned char *code, uint64_t at, uint64_t size,
             std::vector<Stub> &stubs) const {
        uint64_t address = header_.sh_addr + at;
        auto word = words_.find(jumped_through(code, size, address));
        uint32_t name = word == words_.end() ? 0 : file_.dynamic_name(word->second);
        if (name)
            stubs.push_back({address, static_cast<uint32_t>(size), name});
    }

    const ElfSections &file_;
    const Elf64_Shdr &header_;
    const Words &words_;
};

} // namespace

std::vector<Stub> find_stubs(const ElfSections &file, size_t limit) {
    std::vector<Stub> stubs;
    if (file.header().e_machine != EM_X86_64)
        return stubs;
    Words words = filled_words(file, limit);
    for (const Elf64_Shdr &header : file.all()) {
        if (!(header.sh_flags & SHF_EXECINSTR))
            continue;
        std::string name = file.name(header);
        if (name == ".plt" || name == ".plt.sec" || name == ".plt.got")
            Section(file, header, words).add_to(stubs, limit);
    }
    return stubs;
}

} // namespace igsdk

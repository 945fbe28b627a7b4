// SPDX-License-Identifier: Apache-2.0
// What a libcuda is, where its functions lie and where a probe on them is cheap.
#include "elf_file.h"
#include "function_pieces.h"
#include "parts.h"

#include <algorithm>
#include <cstring>
#include <pybind11/stl.h>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

namespace py = pybind11;

namespace igsdk {
namespace {

// What the largest known libraries have, several times; a sparse file can claim any number.
constexpr size_t kMaxSymbols = 8'000'000;
constexpr size_t kMostRead = 1 << 20;

struct ElfInfo {
    using Segments = std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>;
    std::string machine, type, build_id, interpreter;
    Segments code, data;
};

ElfInfo inspect(int fd) {
    ElfFile file(fd);
    ElfInfo info{file.machine(), file.type(), file.build_id(), file.interpreter(), {}, {}};
    for (const Segment &segment : file.code())
        info.code.emplace_back(segment.address, segment.offset, segment.size);
    for (const Segment &segment : file.data())
        info.data.emplace_back(segment.address, segment.offset, segment.size);
    return info;
}

using Symbol = std::tuple<std::string, uint64_t, uint64_t>;

std::vector<Symbol> exports(const ElfFile &file, const std::vector<std::string> &names) {
    std::set<Symbol> found;
    for (const std::string &name : names)
        if (auto symbol = file.exported(name))
            found.emplace(name, symbol->address, symbol->size);
    return {found.begin(), found.end()};
}

std::vector<Symbol> symbols(int fd, const std::vector<std::string> &names, bool exported) {
    ElfFile file(fd);
    if (exported && file.export_table())
        return exports(file, names);
    std::unordered_set<std::string> wanted(names.begin(), names.end());
    std::set<Symbol> found;
    auto visit = [&](const Function &symbol) {
        std::string name = file.name_at(symbol.name);
        if (wanted.count(name))
            found.emplace(std::move(name), symbol.address, symbol.size);
    };
    file.each_symbol(visit, kMaxSymbols);
    return {found.begin(), found.end()};
}

std::optional<std::pair<uint64_t, uint64_t>> section(int fd, const std::string &name) {
    auto found = ElfFile(fd).section(name);
    if (!found)
        return std::nullopt;
    return std::make_pair(found->address, found->size);
}

py::bytes read_at(int fd, uint64_t address, size_t size) {
    std::string bytes(std::min(size, kMostRead), '\0');
    bytes.resize(ElfFile(fd).read_at(address, bytes.data(), bytes.size()));
    return bytes;
}

using Found = std::tuple<std::string, uint64_t, uint64_t, uint64_t>;

// A name may stand for several addresses (symbol versions): each is returned.
std::vector<Found> functions(int fd, const std::vector<std::string> &names) {
    ElfFile file(fd);
    std::unordered_set<std::string> wanted(names.begin(), names.end());
    std::set<Found> found;
    auto visit = [&](const Function &function) {
        auto offset = file.offset_of(function.address);
        if (!offset)
            return;
        std::string name = file.name_at(function.name);
        if (wanted.count(name))
            found.emplace(std::move(name), function.address, *offset, function.size);
    };
    file.each_function(visit, kMaxSymbols);
    return {found.begin(), found.end()};
}

std::vector<std::pair<uint64_t, uint64_t>> pieces(int fd, const std::string &name) {
    std::vector<std::pair<uint64_t, uint64_t>> found;
    for (const Range &piece : PieceFinder(fd).find(name))
        found.emplace_back(piece.start, piece.end);
    return found;
}

// The first instructions of a function, x86-64.
class Entry {
  public:
    Entry(const unsigned char *bytes, size_t size) : bytes_(bytes), size_(size) {}

    // Where the conditional jump behind a compare with a word of memory lies; 0 if the
    // function doesn't begin so. The compare is single-stepped by the kernel, the jump
    // emulated, and neither touches an argument or the stack.
    size_t jump() const {
        size_t at = behind_endbr();
        size_t compare = compare_size(at);
        if (compare == 0)
            return 0;
        at += compare;
        bool jumps = (is(at, 0x70, 0xf0) && has(at, 2)) ||
                     (is(at, 0x0f) && is(at + 1, 0x80, 0xf0) && has(at, 6));
        return jumps ? at : 0;
    }

    size_t jump_size(size_t at) const { return is(at, 0x0f) ? 6 : 2; }

    int64_t jump_distance(size_t at) const {
        if (!is(at, 0x0f))
            return static_cast<int8_t>(bytes_[at + 1]);
        int32_t distance;
        std::memcpy(&distance, bytes_ + at + 2, sizeof(distance));
        return distance;
    }

    // What the kernel emulates, and so is cheap, or "stepped".
    const char *note() const {
        size_t push = is(0, 0x41) ? 1 : 0;
        if (is(push, 0x50, 0xf8))
            return "push";
        if (is(0, 0x90) || (is(0, 0x0f) && is(1, 0x1f)) ||
            (is(0, 0x66) && is(1, 0x0f) && is(2, 0x1f)))
            return "nop";
        if (is(0, 0xe9) || is(0, 0xeb))
            return "jump";
        return size_ == 0 ? "unreadable" : "stepped";
    }

  private:
    bool has(size_t at, size_t count) const { return at + count <= size_; }
    bool is(size_t at, unsigned value, unsigned mask = 0xff) const {
        return at < size_ && (bytes_[at] & mask) == value;
    }

    size_t behind_endbr() const {
        return is(0, 0xf3) && is(1, 0x0f) && is(2, 0x1e) && is(3, 0xfa) ? 4 : 0;
    }

    // cmpl $imm32, disp32(%rip) or cmpl $imm8, disp32(%rip): /7, mod 0, rm 5.
    size_t compare_size(size_t at) const {
        if (!is(at + 1, 0x3d))
            return 0;
        if (is(at, 0x81))
            return 10;
        return is(at, 0x83) ? 7 : 0;
    }

    const unsigned char *bytes_;
    size_t size_;
};

using Site = std::tuple<uint64_t, std::string, std::string>;

// The probe goes on the jump only if it lies within the function and leads into code.
Site probe_site(int fd, uint64_t offset, uint64_t size) {
    ElfFile file(fd);
    const Segment *code = file.code_at(offset);
    if (!code)
        throw std::invalid_argument("the offset does not lie in its code");
    if (!file.is(EM_X86_64))
        return {offset, "entry", ""};
    unsigned char bytes[24];
    uint64_t end = code->offset + code->size;
    size_t there = file.read(offset, bytes, std::min<uint64_t>(sizeof(bytes), end - offset));
    Entry entry(bytes, size ? std::min<uint64_t>(there, size) : there);
    size_t jump = entry.jump();
    if (jump) {
        uint64_t behind = offset + jump + entry.jump_size(jump);
        uint64_t target = behind + static_cast<uint64_t>(entry.jump_distance(jump));
        if (target >= code->offset && target < end)
            return {offset + jump, "jump", "jump"};
    }
    return {offset, "entry", entry.note()};
}

} // namespace
} // namespace igsdk

void register_elf(py::module_ &m) {
    using namespace igsdk;
    py::class_<ElfInfo>(m, "ElfInfo")
        .def_readonly("machine", &ElfInfo::machine)
        .def_readonly("type", &ElfInfo::type)
        .def_readonly("build_id", &ElfInfo::build_id)
        .def_readonly("interpreter", &ElfInfo::interpreter)
        .def_readonly("code", &ElfInfo::code)
        .def_readonly("data", &ElfInfo::data);
    m.def("elf_inspect", &inspect, py::arg("fd"));
    m.def("elf_functions", &functions, py::arg("fd"), py::arg("names"));
    m.def("function_pieces", &pieces, py::arg("fd"), py::arg("name"));
    m.def("elf_symbols", &symbols, py::arg("fd"), py::arg("names"), py::arg("exported") = false);
    m.def("elf_section", &section, py::arg("fd"), py::arg("name"));
    m.def("elf_read", &read_at, py::arg("fd"), py::arg("address"), py::arg("size"));
    m.def("probe_site", &probe_site, py::arg("fd"), py::arg("offset"), py::arg("size") = 0);
}

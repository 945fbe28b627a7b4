// SPDX-License-Identifier: Apache-2.0
// From an address in a file to the function that lies there.
#include "elf_file.h"
#include "parts.h"

#include <algorithm>
#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <mutex>
#include <optional>
#include <pybind11/stl.h>
#include <string>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace igsdk {
namespace {

// 24 bytes each: 48 MB at most for one file. libtorch_cuda has about 400,000.
constexpr size_t kMaxFunctions = 2'000'000;
constexpr size_t kMaxSymbols = 8'000'000; // of any type, to look through
// Longer names are shown as they stand: the demangler's work grows faster than they do.
constexpr size_t kMaxMangled = 2048;
// How many symbols before an address are asked whether they reach it.
constexpr size_t kEnclosing = 16;

std::string demangled(const std::string &name) {
    if (name.compare(0, 2, "_Z") != 0 || name.size() > kMaxMangled)
        return name;
    int status = 0;
    std::unique_ptr<char, decltype(&std::free)> text(
        abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
    return text ? std::string(text.get()) : name;
}

using Place = std::optional<std::pair<std::string, uint64_t>>;

class SymbolTable {
  public:
    explicit SymbolTable(int fd) : file_(fd) {}

    Place lookup(uint64_t file_offset) {
        auto address = file_.address_of(file_offset);
        return address ? lookup_address(*address) : std::nullopt;
    }

    Place lookup_address(uint64_t address) {
        std::lock_guard<std::mutex> guard(lock_);
        load();
        const Function *function = find(address);
        if (!function)
            return std::nullopt;
        return std::make_pair(demangled(file_.name_at(function->name)),
                              address - function->address);
    }

    std::string build_id() const { return file_.build_id(); }

    size_t size() {
        std::lock_guard<std::mutex> guard(lock_);
        load();
        return symbols_.size();
    }

    bool complete() {
        std::lock_guard<std::mutex> guard(lock_);
        load();
        return complete_;
    }

  private:
    // Among symbols of one address the first has a size and is global.
    static bool before(const Function &a, const Function &b) {
        auto rank = [](const Function &f) {
            return std::make_pair(f.size == 0, f.binding == STB_LOCAL);
        };
        return a.address != b.address ? a.address < b.address : rank(a) < rank(b);
    }

    void load() {
        if (loaded_)
            return;
        loaded_ = true;
        auto keep = [this](const Function &function) {
            if (symbols_.size() < kMaxFunctions)
                symbols_.push_back(function);
        };
        complete_ = file_.each_function(keep, kMaxSymbols) && symbols_.size() < kMaxFunctions;
        std::stable_sort(symbols_.begin(), symbols_.end(), before);
        auto same = [](const Function &a, const Function &b) { return a.address == b.address; };
        symbols_.erase(std::unique(symbols_.begin(), symbols_.end(), same), symbols_.end());
        symbols_.shrink_to_fit();
    }

    // The nearest symbol before the address that reaches it; one without a size
    // reaches the next symbol, but not the next segment.
    const Function *find(uint64_t address) const {
        auto above =
            std::upper_bound(symbols_.begin(), symbols_.end(), address,
                             [](uint64_t value, const Function &f) { return value < f.address; });
        bool nearest = true;
        for (size_t tries = 0; above != symbols_.begin() && tries < kEnclosing; tries++) {
            const Function &function = *--above;
            uint64_t distance = address - function.address;
            if (function.size ? distance < function.size
                              : nearest && same_segment(function, address))
                return &function;
            nearest = false;
        }
        return nullptr;
    }

    bool same_segment(const Function &function, uint64_t address) const {
        auto from = file_.offset_of(function.address), to = file_.offset_of(address);
        return from && to && *to - *from == address - function.address;
    }

    ElfFile file_;
    std::mutex lock_;
    std::vector<Function> symbols_;
    bool loaded_ = false, complete_ = true;
};

// The names in a hostile file need not be text.
py::object name_text(const std::string &name) {
    PyObject *text =
        PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "replace");
    if (!text)
        throw py::error_already_set();
    return py::reinterpret_steal<py::object>(text);
}

py::object place_tuple(const Place &place) {
    if (!place)
        return py::none();
    return py::make_tuple(name_text(place->first), place->second);
}

template <Place (SymbolTable::*find)(uint64_t)>
py::object find_place(SymbolTable &table, uint64_t where) {
    Place place;
    {
        py::gil_scoped_release released;
        place = (table.*find)(where);
    }
    return place_tuple(place);
}

} // namespace
} // namespace igsdk

void register_symbols(py::module_ &m) {
    using igsdk::SymbolTable, igsdk::find_place;
    py::class_<SymbolTable>(m, "SymbolTable")
        .def(py::init<int>(), py::arg("fd"))
        .def("lookup", &find_place<&SymbolTable::lookup>, py::arg("file_offset"))
        .def("lookup_address", &find_place<&SymbolTable::lookup_address>, py::arg("address"))
        .def_property_readonly("build_id", &SymbolTable::build_id)
        .def_property_readonly("complete", &SymbolTable::complete)
        .def("__len__", &SymbolTable::size);
    m.def(
        "demangle",
        [](const std::string &name) { return igsdk::name_text(igsdk::demangled(name)); },
        py::arg("name"));
}

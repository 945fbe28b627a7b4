// SPDX-License-Identifier: Apache-2.0
// The Python face of symbol tables and of the demangler.
#include "demangle.h"
#include "parts.h"
#include "symbol_table.h"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace igsdk {
namespace {

// The names in a hostile file need not be text.
py::str name_text(const std::string &name) { return utf8_text(name, "replace"); }

template <SymbolTable::Place (SymbolTable::*find)(uint64_t)>
py::object find_place(SymbolTable &table, uint64_t where) {
    SymbolTable::Place place;
    {
        py::gil_scoped_release released;
        place = (table.*find)(where);
    }
    if (!place)
        return py::none();
    return py::make_tuple(name_text(place->first), place->second);
}

py::list frame_list(const std::vector<SymbolTable::Frame> &frames) {
    py::list list;
    for (const SymbolTable::Frame &frame : frames) {
        py::object file =
            frame.file.empty() ? py::object(py::none()) : py::object(name_text(frame.file));
        list.append(py::make_tuple(name_text(frame.function), std::move(file), frame.line));
    }
    return list;
}

py::list find_frames(SymbolTable &table, uint64_t file_offset) {
    std::vector<SymbolTable::Frame> frames;
    {
        py::gil_scoped_release released;
        frames = table.frames(file_offset);
    }
    return frame_list(frames);
}

template <auto body> auto unlocked(SymbolTable &table) {
    py::gil_scoped_release released;
    return (table.*body)();
}

std::unique_ptr<SymbolTable> open_table(int fd, std::string path, std::string root) {
    return std::make_unique<SymbolTable>(fd, DebugSearch{std::move(path), std::move(root)});
}

} // namespace
} // namespace igsdk

void register_symbols(py::module_ &m) {
    using namespace igsdk;
    py::class_<SymbolTable>(m, "SymbolTable")
        .def(py::init(&open_table), py::arg("fd"), py::arg("path") = "", py::arg("root") = "")
        .def("lookup", &find_place<&SymbolTable::lookup>, py::arg("file_offset"))
        .def("lookup_address", &find_place<&SymbolTable::lookup_address>, py::arg("address"))
        .def("frames", &find_frames, py::arg("file_offset"))
        .def("forget", &unlocked<&SymbolTable::forget>)
        .def_property_readonly("build_id", &SymbolTable::build_id)
        .def_property_readonly("complete", &unlocked<&SymbolTable::complete>)
        .def_property_readonly("debug", &unlocked<&SymbolTable::debug>)
        .def_property_readonly("memory", &SymbolTable::memory)
        .def("__len__", &unlocked<&SymbolTable::size>);
    m.def(
        "demangle", [](const std::string &name) { return name_text(demangled(name)); },
        py::arg("name"));
}

// SPDX-License-Identifier: Apache-2.0
// What Python sees of a stack table, of the tracer's and of one fed by hand.
#pragma once

#include "parts.h"
#include "stack_table.h"

#include <cstring>
#include <pybind11/stl.h>
#include <stdexcept>

namespace py = pybind11;

namespace igsdk {

// A file that code was mapped from; open for as long as this lives.
struct OpenFile {
    std::shared_ptr<const File> file;
};

// Raise ValueError or KeyError.
std::vector<uint64_t> words_of(const std::string &bytes);
igsdk_python read_layout(const std::string &bytes);
std::string numbers_of(StackTable &table, const std::string &processes, const std::string &keys);
void forget_keys(StackTable &table, const std::string &processes, const std::string &keys);
Code code_of(StackTable &table, uint32_t number);
std::string class_name_of(StackTable &table, uint32_t number);
py::object file_of(StackTable &table, uint32_t id);
void set_python(StackTable &table, uint32_t pid, const std::string &layout);

// Adds the methods that both have. Nothing that waits for a lock holds the GIL.
template <typename Owner, typename Table, typename Drain>
void define_stack_methods(py::class_<Owner> &owner, Table table, Drain drain) {
    using Unlocked = py::call_guard<py::gil_scoped_release>;
    owner.def(
             "admit", [=](Owner &o, uint32_t pid) { table(o).admit(pid); }, Unlocked())
        .def("set_python", [=](Owner &o, uint32_t pid,
                               const py::bytes &layout) { set_python(table(o), pid, layout); })
        .def(
            "clear_python", [=](Owner &o, uint32_t pid) { table(o).space_map().clear_python(pid); },
            Unlocked())
        .def(
            "take_stacks",
            [=](Owner &o) {
                drain(o);
                return table(o).take_stacks();
            },
            Unlocked())
        .def(
            "code", [=](Owner &o, uint32_t number) { return code_of(table(o), number); },
            Unlocked())
        .def("class_name",
             [=](Owner &o, uint32_t number) {
                 return utf8_text(class_name_of(table(o), number), "replace");
             })
        .def(
            "close_unused_files", [=](Owner &o) { return table(o).close_unused_files(); },
            Unlocked())
        .def("file", [=](Owner &o, uint32_t id) { return file_of(table(o), id); })
        .def("stack_numbers",
             [=](Owner &o, const py::bytes &processes, const py::bytes &keys) {
                 return py::bytes(numbers_of(table(o), processes, keys));
             })
        .def("forget_keys", [=](Owner &o, const py::bytes &processes,
                                const py::bytes &keys) { forget_keys(table(o), processes, keys); })
        .def("keep_fresh_keys",
             [=](Owner &o, const py::bytes &live) {
                 std::vector<uint64_t> keys = words_of(live);
                 py::gil_scoped_release unlocked;
                 table(o).keep_fresh_keys(keys);
             })
        .def("stack_counts", [=](Owner &o) { return table(o).counts(); }, Unlocked());
}

} // namespace igsdk

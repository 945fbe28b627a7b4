// SPDX-License-Identifier: Apache-2.0
// What Python sees of BPF objects beside the one that traces.
#include "contract.h"
#include "file_mappings.h"
#include "parts.h"

#include <pybind11/stl.h>

namespace py = pybind11;

void register_objects(py::module_ &m) {
    using namespace igsdk;
    py::class_<FileMappings>(m, "FileMappings")
        .def(py::init([](const py::bytes &object) {
                 std::string bytes = object;
                 py::gil_scoped_release unlocked;
                 return std::make_unique<FileMappings>(bytes);
             }),
             py::arg("object"))
        .def("close", &FileMappings::close)
        .def("of", [](const FileMappings &lister, uint32_t pid) {
            std::string rows;
            {
                py::gil_scoped_release unlocked;
                rows = lister.of(pid);
            }
            return py::bytes(rows);
        });
    m.def(
        "compare_objects",
        [](const py::bytes &own, const py::bytes &other) {
            Differences found = compare_objects(own, other);
            return std::make_tuple(found.missing, found.changed, found.extra);
        },
        py::arg("own"), py::arg("other"));
}

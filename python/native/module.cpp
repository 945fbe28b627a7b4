// SPDX-License-Identifier: Apache-2.0
// The one extension module.
#include "parts.h"
#include "support.h"

void igsdk::throw_errno(const char *what, int error) {
    auto value = pybind11::reinterpret_steal<pybind11::object>(
        PyObject_CallFunction(PyExc_OSError, "is", error, what));
    if (value)
        PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(value.ptr())), value.ptr());
    throw pybind11::error_already_set();
}

PYBIND11_MODULE(_native, m) {
    m.doc() = "The native parts of igsdk.";
    register_elf(m);
    register_symbols(m);
    register_watch(m);
    register_unwinding(m);
    register_hold(m);
    register_launch(m);
    register_stacks(m);
    register_objects(m);
    register_packets(m);
    register_tracer(m);
    register_selftest(m);
}

// SPDX-License-Identifier: Apache-2.0
// Each part of the extension module registers its own classes and functions.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

void register_elf(pybind11::module_ &m);
void register_symbols(pybind11::module_ &m);
void register_watch(pybind11::module_ &m);
void register_unwinding(pybind11::module_ &m);
void register_hold(pybind11::module_ &m);
void register_launch(pybind11::module_ &m);
void register_stacks(pybind11::module_ &m);
void register_objects(pybind11::module_ &m);
void register_packets(pybind11::module_ &m);
void register_tracer(pybind11::module_ &m);
void register_selftest(pybind11::module_ &m);

namespace igsdk {

// `errors` says, as for bytes.decode(), what becomes of bytes that are no UTF-8.
inline pybind11::str utf8_text(const std::string &text, const char *errors) {
    PyObject *value =
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), errors);
    if (!value)
        throw pybind11::error_already_set();
    return pybind11::reinterpret_steal<pybind11::str>(value);
}

// A path or name as Python names files: bytes that are no UTF-8 survive the round trip.
inline pybind11::object file_text(const std::string &text) {
    PyObject *value =
        PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
    if (!value)
        throw pybind11::error_already_set();
    return pybind11::reinterpret_steal<pybind11::object>(value);
}

} // namespace igsdk

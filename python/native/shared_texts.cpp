// SPDX-License-Identifier: Apache-2.0
#include "shared_texts.h"

#include <functional>
#include <string_view>

namespace py = pybind11;

namespace igsdk {
namespace {

py::object decoded(std::string_view bytes) {
    PyObject *made = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                                          "backslashreplace");
    if (!made)
        throw py::error_already_set();
    return py::reinterpret_steal<py::object>(made);
}

} // namespace

py::object SharedTexts::text(const Slice &slice) {
    std::string_view bytes(reinterpret_cast<const char *>(slice.data), slice.size);
    if (bytes.size() > longest)
        return decoded(bytes);
    Known &known = known_[std::hash<std::string_view>{}(bytes) & (places - 1)];
    if (known.text && known.bytes == bytes)
        return known.text;
    py::object made = decoded(bytes);
    known.bytes = bytes;
    known.text = made;
    return made;
}

} // namespace igsdk

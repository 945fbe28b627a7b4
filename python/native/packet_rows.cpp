// SPDX-License-Identifier: Apache-2.0
#include "packet_rows.h"

#include <algorithm>

namespace py = pybind11;

namespace igsdk {
namespace {

py::object owned(PyObject *made) {
    if (!made)
        throw py::error_already_set();
    return py::reinterpret_steal<py::object>(made);
}

template <typename T> T as(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(value)); // little-endian, as all machines that we run on
    return value;
}

py::object signed_number(uint64_t bits, uint32_t width) {
    unsigned unused = 64 - 8 * width;
    return owned(PyLong_FromLongLong(static_cast<int64_t>(bits << unused) >> unused));
}

} // namespace

ValueMaker::ValueMaker(const PacketField &field, bool swapped) : field_(field), swapped_(swapped) {}

py::object ValueMaker::value(const Slice *slots, SharedTexts &texts) const {
    Slice part = field_.part_of(slots);
    if (field_.width)
        return field_.array ? list(part) : number(part.data);
    if (field_.sort != ValueSort::bytes)
        return texts.text(part);
    return owned(PyBytes_FromStringAndSize(reinterpret_cast<const char *>(part.data),
                                           static_cast<Py_ssize_t>(part.size)));
}

py::object ValueMaker::number(const uint8_t *bytes) const {
    uint64_t bits = 0;
    if (swapped_)
        std::reverse_copy(bytes, bytes + field_.width, reinterpret_cast<uint8_t *>(&bits));
    else
        std::memcpy(&bits, bytes, field_.width);
    switch (field_.sort) {
    case ValueSort::boolean:
        return py::bool_(bits == 1);
    case ValueSort::integer:
        return signed_number(bits, field_.width);
    case ValueSort::real:
        return owned(PyFloat_FromDouble(field_.width == 4 ? as<float>(bits) : as<double>(bits)));
    default:
        return owned(PyLong_FromUnsignedLongLong(bits));
    }
}

py::object ValueMaker::list(const Slice &part) const {
    size_t length = part.size / field_.width;
    py::tuple values(length);
    for (size_t place = 0; place < length; ++place)
        values[place] = number(part.data + place * field_.width);
    return std::move(values);
}

RowMaker::RowMaker(const PacketLayout &layout, py::tuple names, py::object blank)
    : layout_(layout), names_(std::move(names)), blank_(std::move(blank)) {
    for (const PacketField &field : layout.fields)
        values_.emplace_back(field, layout.swapped);
}

py::object RowMaker::rows(Slice packet) {
    PacketRows found(layout_.needs, layout_.array, packet);
    py::list good;
    size_t bad = 0;
    while (found.next()) {
        if (found.fits())
            good.append(row(found.slots()));
        else
            ++bad;
    }
    if (found.odd())
        return py::none();
    return py::make_tuple(std::move(good), bad);
}

py::object RowMaker::row(const Slice *slots) {
    py::object made = blank_();
    PyObject *names = names_.ptr();
    for (size_t place = 0; place < values_.size(); ++place) {
        py::object value = values_[place].value(slots, texts_);
        if (PyDict_SetItem(made.ptr(), PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(place)),
                           value.ptr()))
            throw py::error_already_set();
    }
    return made;
}

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// The Python face of the reader of packets.
#include "packet_columns.h"
#include "packet_rows.h"
#include "parts.h"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace igsdk {
namespace {

using TellNeed = std::tuple<uint32_t, uint64_t, int64_t, uint64_t>;
using TellField = std::tuple<size_t, uint64_t, uint64_t, uint32_t, char, bool>;

constexpr bool big_endian_machine = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;

Slice slice_of(const py::bytes &packet) {
    return {reinterpret_cast<const uint8_t *>(PyBytes_AS_STRING(packet.ptr())),
            static_cast<size_t>(PyBytes_GET_SIZE(packet.ptr()))};
}

class PacketReader {
  public:
    PacketReader(bool array, bool big_endian, const std::vector<TellNeed> &needs,
                 const std::vector<TellField> &fields, py::tuple names, py::object blank)
        : layout_(layout(array, big_endian, needs, fields)),
          rows_(layout_, std::move(names), std::move(blank)) {
        if (const char *fault = layout_.fault())
            throw py::value_error(fault);
        if (rows_.names() != fields.size())
            throw py::value_error("names are not as many as fields");
    }

    py::tuple columns(const std::vector<py::bytes> &packets) const {
        std::vector<Slice> slices;
        for (const py::bytes &packet : packets)
            slices.push_back(slice_of(packet));
        PacketColumns made(layout_);
        std::vector<size_t> odd;
        {
            py::gil_scoped_release unlocked;
            for (size_t place = 0; place < slices.size(); ++place)
                if (!made.append(slices[place]))
                    odd.push_back(place);
            made.fit();
        }
        py::list columns;
        for (PacketColumn &column : made.columns)
            columns.append(py::make_tuple(std::move(column.data), std::move(column.starts)));
        return py::make_tuple(std::move(columns), made.rows, made.unreadable, odd);
    }

    py::object rows(const py::bytes &packet) { return rows_.rows(slice_of(packet)); }

  private:
    static PacketLayout layout(bool array, bool big_endian, const std::vector<TellNeed> &needs,
                               const std::vector<TellField> &fields) {
        PacketLayout made{array, big_endian != big_endian_machine, {}, {}};
        for (const auto &[number, least, exact, unit] : needs)
            made.needs.push_back({number, least, exact, unit});
        for (const auto &[need, offset, size, width, sort, is_array] : fields)
            made.fields.push_back(
                {need, offset, size, width, static_cast<ValueSort>(sort), is_array});
        return made;
    }

    PacketLayout layout_;
    RowMaker rows_;
};

// The texts that lie in `data` one after the other; each begins at one of `starts`.
py::list text_list(const py::buffer &data, const py::buffer &starts) {
    py::buffer_info bytes = data.request(), places = starts.request();
    if (bytes.itemsize != 1 || bytes.ndim != 1 || places.itemsize != 8 || places.ndim != 1 ||
        bytes.strides[0] != 1 || (places.size > 1 && places.strides[0] != 8))
        throw py::value_error("texts are bytes, and where they begin are int64, without gaps");
    auto at = static_cast<const int64_t *>(places.ptr);
    SharedTexts texts;
    py::list list;
    for (py::ssize_t place = 0; place + 1 < places.size; ++place) {
        int64_t start = at[place], end = at[place + 1];
        if (start < 0 || end < start || end > bytes.size)
            throw py::value_error("a text lies outside of the bytes");
        list.append(texts.text(
            {static_cast<const uint8_t *>(bytes.ptr) + start, static_cast<size_t>(end - start)}));
    }
    return list;
}

} // namespace
} // namespace igsdk

void register_packets(py::module_ &m) {
    using namespace igsdk;
    py::class_<GrowingBytes>(m, "ColumnBytes", py::buffer_protocol())
        .def("__len__", &GrowingBytes::size)
        .def_buffer([](GrowingBytes &bytes) {
            return py::buffer_info(bytes.data(), static_cast<py::ssize_t>(bytes.size()));
        });
    py::class_<PacketReader>(m, "PacketReader")
        .def(py::init<bool, bool, const std::vector<TellNeed> &, const std::vector<TellField> &,
                      py::tuple, py::object>(),
             py::arg("array"), py::arg("big_endian"), py::arg("needs"), py::arg("fields"),
             py::arg("names"), py::arg("blank"))
        .def("columns", &PacketReader::columns, py::arg("packets"))
        .def("rows", &PacketReader::rows, py::arg("packet"));
    m.def("text_list", &text_list, py::arg("data"), py::arg("starts"));
}

// SPDX-License-Identifier: Apache-2.0
// Rows of packets as Python dictionaries. Everything here needs the GIL.
#pragma once

#include "packet_fields.h"
#include "shared_texts.h"

#include <pybind11/pybind11.h>

#include <utility>

namespace igsdk {

// Makes the values of one field.
class ValueMaker {
  public:
    ValueMaker(const PacketField &field, bool swapped);

    pybind11::object value(const Slice *slots, SharedTexts &texts) const;

  private:
    pybind11::object number(const uint8_t *bytes) const;
    pybind11::object list(const Slice &part) const;

    PacketField field_;
    bool swapped_;
};

class RowMaker {
  public:
    // `blank` gives a new row with all names in their order; there have to be as many names
    // as fields.
    RowMaker(const PacketLayout &layout, pybind11::tuple names, pybind11::object blank);

    size_t names() const { return names_.size(); }
    // The rows of a packet that can be read, and how many can't; None: the packet is odd.
    pybind11::object rows(Slice packet);

  private:
    pybind11::object row(const Slice *slots);

    const PacketLayout &layout_;
    pybind11::tuple names_;
    pybind11::object blank_;
    std::vector<ValueMaker> values_;
    SharedTexts texts_;
};

} // namespace igsdk

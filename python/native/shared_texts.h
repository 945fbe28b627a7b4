// SPDX-License-Identifier: Apache-2.0
// Python texts of bytes, with equal ones made once where that is cheap to know. Pods, users
// and programs are the same in many rows, which then share one object. Needs the GIL.
#pragma once

#include "packets.h"

#include <pybind11/pybind11.h>

#include <string>

namespace igsdk {

class SharedTexts {
  public:
    SharedTexts() : known_(places) {}

    // What is no UTF-8 stays visible as \xff.
    pybind11::object text(const Slice &bytes);

  private:
    static constexpr size_t places = 1024; // a power of two
    static constexpr size_t longest = 128;

    // The latest text of all whose hashes lead here.
    struct Known {
        std::string bytes;
        pybind11::object text;
    };
    std::vector<Known> known_;
};

} // namespace igsdk

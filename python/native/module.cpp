// SPDX-License-Identifier: Apache-2.0
// The one extension module.
#include "parts.h"

PYBIND11_MODULE(_native, m) {
    m.doc() = "The native parts of igsdk's local runtime.";
    register_elf(m);
    register_symbols(m);
    register_watch(m);
    register_hold(m);
    register_launch(m);
    register_tracer(m);
}

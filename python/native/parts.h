// SPDX-License-Identifier: Apache-2.0
// Each part of the extension module registers its own classes and functions.
#pragma once

#include <pybind11/pybind11.h>

void register_elf(pybind11::module_ &m);
void register_symbols(pybind11::module_ &m);
void register_watch(pybind11::module_ &m);
void register_hold(pybind11::module_ &m);
void register_launch(pybind11::module_ &m);
void register_tracer(pybind11::module_ &m);

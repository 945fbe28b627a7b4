// SPDX-License-Identifier: Apache-2.0
// Looks through the programs of an unwind table's entry before a library runs them.
//
// libdw takes memory by the highest register that a program names, keeps as many states
// as it is told to, and reads operands past a program's end: fine for honest files.
#pragma once

#include <cstdint>
#include <string>

namespace igsdk {

// Whether the program is well-formed and modest. Rewrites what libdw 0.188 takes for
// something else: arm64's mark of a signed return address.
bool guard_frame_program(std::string &program, uint16_t machine);

} // namespace igsdk

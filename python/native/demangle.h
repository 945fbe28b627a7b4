// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace igsdk {

// A symbol's name as its source has it; one that is not mangled stays as it is.
std::string demangled(const std::string &name);

} // namespace igsdk

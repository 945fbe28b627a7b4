// SPDX-License-Identifier: Apache-2.0
// Whether an object from elsewhere means the same as the package's own: an older build or
// another gadget would load, and then be read wrongly.
#pragma once

#include <string>
#include <vector>

namespace igsdk {

struct Differences {
    std::vector<std::string> missing; // programs and maps that the runtime needs
    std::vector<std::string> changed; // maps and types that are there and are others
    std::vector<std::string> extra;   // maps that only the other one has
};

// `own` and `other` are the bytes of objects; throws a ProgramError for what is none.
Differences compare_objects(const std::string &own, const std::string &other);

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// Rust's symbol names: the present form (_R..., RFC 2603) and the older one, which
// looks like a C++ name that ends in a hash.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace igsdk {

// Without the hashes that tell crates and versions apart; nothing where it is no such
// name. What a hostile name can grow to is bounded.
std::optional<std::string> rust_name(const std::string &symbol);
// The present form, without "_R" and what the compiler appended.
std::optional<std::string> rust_v0_name(std::string_view name);

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// Characters beyond ASCII in names that are ASCII.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace igsdk {

// A name that does not mean anything.
struct Malformed {};

bool is_character(uint64_t code);
void put_utf8(std::string &text, uint32_t code);

// What a name in Punycode (RFC 3492, with "_" for "-") stands for; throws Malformed.
std::string from_punycode(std::string_view text);

} // namespace igsdk

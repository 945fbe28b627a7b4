// SPDX-License-Identifier: Apache-2.0
// Text and bytes objects of another process's interpreter: what the probe copied of
// them, and what it had no room for.
#pragma once

#include "abi.h"

#include <cstddef>
#include <optional>
#include <string>

namespace igsdk {

// More of one object is never read.
constexpr size_t kMaxObjectBytes = 1 << 20;

// Code points of `kind` bytes (1 = Latin-1, 2 or 4) as UTF-8. Lone surrogates that stand
// for undecodable bytes (U+DC80 to U+DCFF) stay, as Python's "surrogatepass" reads them;
// what is no character else becomes U+FFFD.
std::string decode_points(const uint8_t *bytes, size_t size, uint32_t kind);

struct Taken {
    std::string value;
    bool complete;
};

// A str as UTF-8. Where `bytes` does not hold all of it, the rest comes from the living
// process, if the object there still begins the same and has the same length; else what
// there is. `room` is the size of `bytes`; `head` may lie.
Taken take_text(uint32_t pid, const std::optional<igsdk_python> &layout,
                const igsdk_python_string &head, const uint8_t *bytes, size_t room);

// The same for a bytes object.
Taken take_bytes(uint32_t pid, const std::optional<igsdk_python> &layout, uint64_t object,
                 uint64_t length, const uint8_t *bytes, size_t taken, size_t room);

// A C string of which `taken` bytes, its end included, were copied: where they fill the
// room, the rest comes from the living process.
std::string take_c_string(uint32_t pid, uint64_t address, const char *bytes, size_t taken,
                          size_t room);

} // namespace igsdk

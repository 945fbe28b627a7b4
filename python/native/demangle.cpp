// SPDX-License-Identifier: Apache-2.0
#include "demangle.h"

#include "rust_names.h"

#include <cstdlib>
#include <cxxabi.h>
#include <memory>

namespace igsdk {
namespace {

// Longer names are shown as they stand: the demangler's work grows faster than they do.
constexpr size_t kMaxMangled = 2048;

} // namespace

std::string demangled(const std::string &name) {
    static const std::string stub = "@plt";
    if (name.size() > stub.size() &&
        name.compare(name.size() - stub.size(), stub.size(), stub) == 0)
        return demangled(name.substr(0, name.size() - stub.size())) + stub;
    if (name.size() > kMaxMangled)
        return name;
    if (auto rust = rust_name(name))
        return *rust;
    if (name.compare(0, 2, "_Z") != 0)
        return name;
    int status = 0;
    std::unique_ptr<char, decltype(&std::free)> text(
        abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
    return text ? std::string(text.get()) : name;
}

} // namespace igsdk

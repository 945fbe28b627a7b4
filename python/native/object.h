// SPDX-License-Identifier: Apache-2.0
// BPF objects as libbpf opens them, and what it has to say when something fails.
#pragma once

#include <bpf/libbpf.h>
#include <memory>
#include <stdexcept>
#include <string>

namespace igsdk {

// A call of the kernel or of libbpf that failed, with what libbpf had to say.
struct ProgramError : std::runtime_error {
    ProgramError(const std::string &what, int error) : std::runtime_error(what), error(error) {}
    int error;
};

// Throws a ProgramError; libbpf's messages since forget_messages() stand below its first line.
[[noreturn]] void fail(const std::string &what, int error);
void forget_messages();

struct CloseObject {
    void operator()(bpf_object *object) const { bpf_object__close(object); }
};
struct DestroyLink {
    void operator()(bpf_link *link) const { bpf_link__destroy(link); }
};
using Object = std::unique_ptr<bpf_object, CloseObject>;
using Link = std::unique_ptr<bpf_link, DestroyLink>;

Object open_object(const std::string &bytes);
void load_object(const Object &object);

} // namespace igsdk

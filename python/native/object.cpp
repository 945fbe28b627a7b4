// SPDX-License-Identifier: Apache-2.0
#include "object.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace igsdk {
namespace {

constexpr size_t most_said = 16384;

thread_local std::string last_message;

// libbpf speaks through a callback; its warnings become the error's detail.
int keep_message(libbpf_print_level level, const char *format, va_list arguments) {
    if (level != LIBBPF_WARN)
        return 0;
    char line[1024];
    vsnprintf(line, sizeof(line), format, arguments);
    if (last_message.size() < most_said)
        last_message += line;
    return 0;
}

} // namespace

void fail(const std::string &what, int error) {
    throw ProgramError(
        what + ": " + strerror(error) + (last_message.empty() ? "" : "\n" + last_message), error);
}

void forget_messages() { last_message.clear(); }

Object open_object(const std::string &bytes) {
    forget_messages();
    libbpf_set_print(keep_message);
    Object object(bpf_object__open_mem(bytes.data(), bytes.size(), nullptr));
    if (!object)
        fail("opening the BPF object", errno);
    return object;
}

void load_object(const Object &object) {
    if (int error = bpf_object__load(object.get()))
        fail("loading the BPF program", -error);
}

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
#include "code_rules.h"
#include "machine.h"

#include <cstring>

namespace igsdk {
namespace {

using Rules = std::shared_ptr<const FrameRules>;

constexpr int kMaxInstructions = 24;

bool begins(const std::string &code, size_t at, const char *bytes, size_t size) {
    return code.size() >= at + size && code.compare(at, size, bytes, size) == 0;
}

template <typename T> T value_at(const std::string &code, size_t at) {
    T value{};
    if (at + sizeof(value) <= code.size())
        std::memcpy(&value, code.data() + at, sizeof(value));
    return value;
}

Rule saved(uint8_t target, int64_t offset) {
    Rule rule;
    rule.how = Rule::How::saved;
    rule.target = target;
    rule.offset = offset;
    return rule;
}

// An epilogue as it is carried out in thought: how far above its base register the
// stack pointer stands, and from where registers were taken back.
struct Epilogue {
    uint8_t base = kMachine.stack;
    int64_t depth = 0;
    std::vector<Rule> taken;

    void take(uint8_t target, int64_t at) { taken.push_back(saved(target, at)); }

    // The stack pointer has arrived where the caller had it before its call.
    Rules done() const {
        auto rules = std::make_shared<FrameRules>();
        rules->return_register = kMachine.return_address;
        rules->guessed = true;
        rules->cfa.how = Rule::How::moved;
        rules->cfa.base = base;
        rules->cfa.offset = depth;
        rules->registers = taken;
        for (Rule &rule : rules->registers)
            rule.offset -= depth;
        return rules;
    }
};

namespace x86 {

constexpr uint8_t kRbp = 6;
// What instructions call 0 .. 7: rax rcx rdx rbx rsp rbp rsi rdi.
constexpr uint8_t kNumbers[] = {0, 2, 1, 3, 7, 6, 4, 5};

struct Skipped {
    const char *bytes;
    size_t size;
};

// Instructions that move no stack: vzeroupper, nop, endbr64, results into rax.
constexpr Skipped kSkipped[] = {
    {"\xc5\xf8\x77", 3}, {"\x90", 1},         {"\x66\x90", 2},     {"\xf3\x0f\x1e\xfa", 4},
    {"\x31\xc0", 2},     {"\x48\x89\xd8", 3}, {"\x48\x89\xc8", 3}, {"\x48\x89\xd0", 3},
};

size_t skip(const std::string &code, size_t at) {
    for (const Skipped &skipped : kSkipped)
        if (begins(code, at, skipped.bytes, skipped.size))
            return skipped.size;
    return 0;
}

size_t pop(const std::string &code, size_t at, Epilogue &state) {
    bool high = value_at<uint8_t>(code, at) == 0x41;
    uint8_t byte = value_at<uint8_t>(code, at + high);
    if (byte < 0x58 || byte > 0x5f || (!high && byte == 0x5c))
        return 0;
    auto number = static_cast<uint8_t>(byte - 0x58);
    state.take(high ? static_cast<uint8_t>(number + 8) : kNumbers[number], state.depth);
    state.depth += 8;
    return 1u + high;
}

// Instructions that set the stack pointer; returns their length.
size_t move_stack(const std::string &code, size_t at, Epilogue &state) {
    if (begins(code, at, "\x48\x83\xc4", 3)) { // add imm8, rsp
        state.depth += value_at<int8_t>(code, at + 3);
        return 4;
    }
    if (begins(code, at, "\x48\x81\xc4", 3)) { // add imm32, rsp
        state.depth += value_at<int32_t>(code, at + 3);
        return 7;
    }
    if (begins(code, at, "\x48\x8d\x65", 3)) { // lea imm8(rbp), rsp
        state.base = kRbp;
        state.depth = value_at<int8_t>(code, at + 3);
        return 4;
    }
    if (begins(code, at, "\x48\x89\xec", 3)) { // mov rbp, rsp
        state.base = kRbp;
        state.depth = 0;
        return 3;
    }
    if (begins(code, at, "\xc9", 1)) { // leave
        state.base = kRbp;
        state.take(kRbp, 0);
        state.depth = 8;
        return 1;
    }
    return pop(code, at, state);
}

Rules epilogue(const std::string &code) {
    Epilogue state;
    size_t at = 0;
    for (int i = 0; i < kMaxInstructions && at < code.size(); i++) {
        if (begins(code, at, "\xc3", 1) || begins(code, at, "\xf3\xc3", 2)) {
            state.take(kMachine.pc, state.depth);
            state.depth += 8;
            return state.done();
        }
        size_t size = skip(code, at);
        if (size == 0)
            size = move_stack(code, at, state);
        if (size == 0)
            break;
        at += size;
    }
    return nullptr;
}

// exit(2) with the status from before: musl's, glibc's.
bool ends_thread(const std::string &code) {
    for (size_t at = 0; at < 12; at++)
        if (begins(code, at, "\xb8\x3c\0\0\0\x0f\x05", 7) ||
            begins(code, at, "\x31\xc0\xb0\x3c\x0f\x05", 6))
            return true;
    return false;
}

bool is_signal_return(const std::string &code) { // mov $15, rax; syscall
    return begins(code, 0, "\x48\xc7\xc0\x0f\0\0\0\x0f\x05", 9) ||
           begins(code, 0, "\xb8\x0f\0\0\0\x0f\x05", 7);
}

// struct ucontext of the kernel: its registers begin at 40, in this order.
Rules signal_rules() {
    constexpr uint8_t kOrder[] = {8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16};
    Epilogue state;
    for (size_t i = 0; i < sizeof(kOrder); i++)
        state.take(kOrder[i], static_cast<int64_t>(40 + 8 * i));
    return state.done();
}

// call rel32, or call through a register or memory: opcode ff, /2.
bool ends_with_call(const std::string &code) {
    size_t end = code.size();
    if (end >= 5 && static_cast<uint8_t>(code[end - 5]) == 0xe8)
        return true;
    for (size_t length = 2; length <= 7 && length <= end; length++) {
        auto form = static_cast<uint8_t>(code[end - length + 1]);
        if (static_cast<uint8_t>(code[end - length]) != 0xff || (form >> 3 & 7) != 2)
            continue;
        unsigned mode = form >> 6, low = form & 7;
        size_t needed = 2 + (mode != 3 && low == 4); // SIB
        needed += mode == 1 ? 1 : mode == 2 || (mode == 0 && low == 5) ? 4 : 0;
        if (needed == length || (mode == 0 && low == 4 && length == 7))
            return true;
    }
    return false;
}

} // namespace x86

namespace arm {

constexpr uint8_t kLink = 30;

Rules epilogue(const std::string &code) {
    Epilogue state;
    for (size_t at = 0; at + 4 <= code.size(); at += 4) {
        auto word = value_at<uint32_t>(code, at);
        int64_t pair = static_cast<int32_t>(word << 10) >> 25; // imm7
        if (word == 0xd65f03c0) {                              // ret
            return state.done();
        } else if ((word & 0xffc07fff) == 0xa8c07bfd) { // ldp x29, x30, [sp], #imm
            state.take(kMachine.frame, state.depth);
            state.take(kLink, state.depth + 8);
            state.depth += pair * 8;
        } else if ((word & 0xffc003ff) == 0x910003ff) { // add sp, sp, #imm
            state.depth += word >> 10 & 0xfff;
        } else if (word != 0xd50323bf && word != 0xd503201f) { // autiasp, nop
            break;
        }
    }
    return nullptr;
}

bool ends_thread(const std::string &code) { // mov x8, #93; svc #0
    for (size_t at = 0; at < 12; at += 4)
        if (begins(code, at, "\xa8\x0b\x80\xd2\x01\0\0\xd4", 8))
            return true;
    return false;
}

bool is_signal_return(const std::string &code) { // mov x8, #139; svc #0
    return begins(code, 0, "\x68\x11\x80\xd2\x01\0\0\xd4", 8);
}

// struct rt_sigframe of the kernel: x0 .. x30, sp, pc from 312 on.
Rules signal_rules() {
    Epilogue state;
    for (uint8_t i = 0; i < kArm.registers; i++)
        state.take(i, 312 + 8 * i);
    return state.done();
}

bool ends_with_call(const std::string &code) { // bl, blr, and blr with authentication
    auto word = code.size() < 4 ? 0 : value_at<uint32_t>(code, code.size() - 4);
    return (word & 0xfc000000) == 0x94000000 || (word & 0xfffffc1f) == 0xd63f0000 ||
           (word & 0xfefff800) == 0xd63f0800;
}

} // namespace arm

constexpr bool kIsX86 = kMachine.elf == EM_X86_64;

} // namespace

Rules outermost_rules() {
    static const Rules rules = [] {
        auto made = std::make_shared<FrameRules>();
        made->return_register = kMachine.return_address;
        made->return_undefined = true;
        return made;
    }();
    return rules;
}

bool is_signal_return(const std::string &code) {
    return kIsX86 ? x86::is_signal_return(code) : arm::is_signal_return(code);
}

Rules rules_of_code(const std::string &code) {
    if (is_signal_return(code)) {
        auto rules =
            std::make_shared<FrameRules>(*(kIsX86 ? x86::signal_rules() : arm::signal_rules()));
        rules->signal = true;
        rules->guessed = false;
        rules->return_register = kMachine.pc;
        return rules;
    }
    if (kIsX86 ? x86::ends_thread(code) : arm::ends_thread(code))
        return outermost_rules();
    return kIsX86 ? x86::epilogue(code) : arm::epilogue(code);
}

bool ends_context(const std::string &code) {
    // x86-64: mov rbx, rsp; arm64: mov x0, x19.
    return kIsX86 ? begins(code, 0, "\x48\x89\xdc", 3) : begins(code, 0, "\xe0\x03\x13\xaa", 4);
}

Rules rules_at_entry() {
    Epilogue state;
    if (returns_on_stack()) {
        state.take(kMachine.pc, 0);
        state.depth = 8;
    }
    return state.done();
}

Rules rules_by_frame_pointer() {
    Epilogue state;
    state.base = kMachine.frame;
    state.take(kMachine.frame, 0);
    state.take(kMachine.return_address, 8);
    state.depth = 16;
    return state.done();
}

bool ends_with_call(const std::string &code) {
    return kIsX86 ? x86::ends_with_call(code) : arm::ends_with_call(code);
}

} // namespace igsdk

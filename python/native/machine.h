// SPDX-License-Identifier: Apache-2.0
// What differs between the architectures when a stack is unwound. Numbers are DWARF's.
#pragma once

#include <cstdint>
#include <elf.h>

namespace igsdk {

struct Machine {
    uint16_t elf;
    uint8_t registers;      // of which a probe takes copies, the pc included
    uint8_t stack, frame;   // stack pointer, frame pointer
    uint8_t pc;             // in a capture
    uint8_t return_address; // register that holds it at a function's entry; the pc: on the stack
};

// rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 .. r15, rip: the psABI's figure 3.36.
constexpr Machine kX86{EM_X86_64, 17, 7, 6, 16, 16};
// x0 .. x30, sp: the ABI's table of DWARF registers; the pc has no number there.
constexpr Machine kArm{EM_AARCH64, 33, 31, 29, 32, 30};

#if defined(__aarch64__)
constexpr Machine kMachine = kArm;
#else
constexpr Machine kMachine = kX86;
#endif

constexpr bool returns_on_stack() { return kMachine.return_address == kMachine.pc; }

} // namespace igsdk

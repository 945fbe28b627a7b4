// SPDX-License-Identifier: Apache-2.0
// From registers and the top of a stack to the calls that lead there, by unwind tables.
//
// Only the copy is read, never the stack of the process, which has gone on meanwhile.
#pragma once

#include "abi.h"
#include "spaces.h"

namespace igsdk {

struct Unwound {
    struct Frame {
        uint64_t pc = 0;     // of callers: the return address
        uint32_t file = 0;   // id; 0 = none
        uint64_t offset = 0; // in the file, of the instruction that runs: of callers, the call
        // Where its return address stands, in words above the stack pointer; 0xffff: no
        // such word (the innermost frame; a register had it; it is not aligned).
        uint16_t slot = 0xffff;
        bool guessed = false; // found without unwind tables, by frame pointer or code
    };
    enum class End {
        complete, // the outermost function of a thread was reached
        cut,      // the copy of the stack ends
        no_rules, // nothing says how to go on from the last frame's code
        not_code, // the last frame's return address is no code
        loop,     // the stack pointer did not go up
        too_long, // more than kMaxFrames, or more work than a stack is worth
    };
    std::vector<Frame> frames; // innermost first
    End end = End::no_rules;
};

constexpr size_t kMaxFrames = 4096;

// "" for a complete stack, else a clause such as "the copy of its stack ends".
const char *why_it_ended(Unwound::End end);

// What a probe copied. The bytes begin at the stack pointer.
struct StackCopy {
    const uint64_t *registers; // IGSDK_REGISTERS, in DWARF's order
    const uint8_t *bytes;
    size_t size;
    const igsdk_return *returns;
    size_t n_returns;
    bool all; // nothing readable lies above
};

// All by one snapshot.
Unwound unwind(const StackCopy &stack, const Space &space);
// Takes the snapshot; looks again where code appeared that no event told of.
Unwound unwind(const igsdk_capture &head, const uint8_t *stack, Spaces &spaces);

} // namespace igsdk

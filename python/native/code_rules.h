// SPDX-License-Identifier: Apache-2.0
// Rules read off the instructions themselves, where no table tells: what JIT compilers
// make, CPython's perf trampolines, assembly without call frame information.
#pragma once

#include "rules.h"

#include <memory>
#include <string>

namespace igsdk {

constexpr size_t kCodeBytes = 48; // to look at, from the next instruction on

// The rules of a function that nothing called.
std::shared_ptr<const FrameRules> outermost_rules();

// Whether the code is what the kernel has signal handlers return to.
bool is_signal_return(const std::string &code);

// Whether a function's code begins as the one of glibc that goes on after a context's end.
bool ends_context(const std::string &code);

// The code runs straight to its return, ends the thread, or ends a signal handler;
// else nullptr.
std::shared_ptr<const FrameRules> rules_of_code(const std::string &code);

// At a function's first instruction.
std::shared_ptr<const FrameRules> rules_at_entry();

// By the chain of frame pointers, which may be anything.
std::shared_ptr<const FrameRules> rules_by_frame_pointer();

// Whether the code, which ends where an address points to, ends with a call.
bool ends_with_call(const std::string &code);

} // namespace igsdk

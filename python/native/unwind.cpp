// SPDX-License-Identifier: Apache-2.0
#include "unwind.h"
#include "cfi.h"
#include "code_rules.h"
#include "machine.h"
#include "remote_memory.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace igsdk {
namespace {

constexpr int kMaxSignals = 16; // handlers interrupted by signals, in one stack
// Of a thread's time, for one stack: tables can be made so that each frame costs
// milliseconds, and all processes wait for this thread.
constexpr uint64_t kMaxWork = 100'000'000;
constexpr uint16_t kNoSlot = 0xffff;
constexpr size_t kCallBytes = 8; // no call instruction is longer

// The words that the probe copied, with those in place that return probes replaced.
class CopiedStack final : public Memory {
  public:
    explicit CopiedStack(const StackCopy &stack)
        : stack_(stack), base_(stack.registers[kMachine.stack]) {}

    bool read(uint64_t address, uint64_t &value) const override {
        uint64_t at = address - base_;
        if (at > stack_.size || stack_.size - at < sizeof(value)) {
            // The highest words of the address space count as below the stack.
            past_end_ |= at < UINT64_MAX / 2 || other_stack_;
            return false;
        }
        std::memcpy(&value, stack_.bytes + at, sizeof(value));
        for (size_t i = 0; i < stack_.n_returns; i++)
            if (stack_.returns[i].where == address)
                value = stack_.returns[i].address;
        return true;
    }

    uint16_t slot(uint64_t address) const {
        uint64_t at = address - base_;
        return at % 8 == 0 && at / 8 < kNoSlot ? static_cast<uint16_t>(at / 8) : kNoSlot;
    }

    // Whether a read failed only because no more was copied.
    bool cut() const { return past_end_ && (other_stack_ || !stack_.all); }
    void forget_failures() { past_end_ = false; }
    // A signal's handler may have had a stack of its own: what it left is elsewhere.
    void leave_handler() { other_stack_ = true; }

  private:
    const StackCopy &stack_;
    const uint64_t base_;
    mutable bool past_end_ = false;
    bool other_stack_ = false;
};

// Addresses with a signature in their upper bits, on machines that have such.
uint64_t plain_address(uint64_t address) {
    return kMachine.elf == EM_AARCH64 ? address & 0xffffffffffff : address;
}

class Walk {
  public:
    Walk(const StackCopy &stack, const Space &space) : memory_(stack), space_(space) {
        for (unsigned i = 0; i < kMachine.registers; i++)
            at_.registers.set(i, stack.registers[i]);
        at_.pc = stack.registers[kMachine.pc];
    }

    Unwound run() {
        std::optional<Unwound::End> end;
        while (!end)
            end = step();
        result_.end = *end;
        return std::move(result_);
    }

  private:
    using End = Unwound::End;
    using Rules = std::shared_ptr<const FrameRules>;

    struct State {
        Registers registers;
        uint64_t pc = 0;
        bool caller = false; // the pc follows a call; else it is the next instruction
        bool guessed = false;
        uint16_t slot = kNoSlot;
    };

    const Region *region_at(const State &state) const {
        const Region *region = space_.find(state.pc - state.caller);
        // Return probes put their own address there: that is nobody's frame.
        return region && region->name != "[uprobes]" ? region : nullptr;
    }

    // Adds the frame where the walk stands, then goes to its caller.
    std::optional<End> step() {
        const Region *region = region_at(at_);
        if (!region)
            return at_.caller && at_.pc == 0 ? End::complete : End::not_code;
        if (result_.frames.size() == kMaxFrames || works_too_long())
            return End::too_long;
        Rules rules;
        if (region->file)
            rules = region->file->frames->at(offset_of(*region, at_.pc), at_.caller);
        else
            rules = rules_of_code(read_code(*region, at_.pc, kCodeBytes));
        bool exact = !at_.caller || (rules && (rules->signal || rules->entered));
        result_.frames.push_back({at_.pc, region->file ? region->file->id : 0,
                                  offset_of(*region, at_.pc - !exact), at_.slot, at_.guessed});
        if (rules && rules->return_undefined)
            return End::complete;
        if (rules && !rules->guessed)
            return apply(*rules);
        return guess(rules.get());
    }

    bool works_too_long() const {
        return result_.frames.size() % 4 == 3 &&
               clock_ns(CLOCK_THREAD_CPUTIME_ID) > began_ + kMaxWork;
    }

    static uint64_t offset_of(const Region &region, uint64_t pc) {
        return pc - region.start + region.offset;
    }

    // Without tables: what looks right, one after the other.
    std::optional<End> guess(const FrameRules *of_code) {
        if (of_code && try_rules(*of_code))
            return std::nullopt;
        if (!at_.caller && try_rules(*rules_at_entry()))
            return std::nullopt;
        memory_.forget_failures();
        if (try_rules(*rules_by_frame_pointer()))
            return std::nullopt;
        return memory_.cut() ? End::cut : End::no_rules;
    }

    bool try_rules(const FrameRules &rules) {
        State before = at_;
        if (!apply(rules) && at_.registers.values[kMachine.stack] % 8 == 0 && follows_call(at_))
            return true;
        at_ = before;
        return false;
    }

    // Calls return behind themselves, handlers of signals where the kernel says.
    bool follows_call(const State &state) const {
        const Region *region = region_at(state);
        if (!region)
            return false;
        size_t size = std::min<uint64_t>(kCallBytes, state.pc - region->start);
        std::string before = read_code(*region, state.pc - size, size);
        // What a process made itself is gone with it; that it was code is all there is to know.
        // To refuse it would leave out a frame without a word: the next guess finds its caller.
        if (before.empty() && !region->file)
            return true;
        return ends_with_call(before) || is_signal_return(read_code(*region, state.pc, kCodeBytes));
    }

    std::string read_code(const Region &region, uint64_t address, size_t size) const {
        std::string code(std::min<uint64_t>(size, region.end - address), '\0');
        ssize_t n = -1;
        if (region.file)
            n = ::pread(region.file->fd.get(), code.data(), code.size(),
                        static_cast<off_t>(offset_of(region, address)));
        else if (!code.empty() && read_process(space_.pid(), address, code.data(), code.size()))
            n = static_cast<ssize_t>(code.size());
        code.resize(n < 0 ? 0 : static_cast<size_t>(n));
        return code;
    }

    // Goes to the caller as the rules say; an end where they lead nowhere.
    std::optional<End> apply(const FrameRules &rules) {
        uint64_t cfa = 0;
        if (!find_cfa(rules, cfa))
            return memory_.cut() ? End::cut : End::no_rules;
        State next = at_;
        next.registers.known &= ~rules.lost;
        next.registers.set(kMachine.stack, cfa);
        next.slot = kNoSlot;
        bool returns = false;
        for (const Rule &rule : rules.registers) {
            bool found = restore(rules, rule, cfa, next);
            if (rule.target != rules.return_register)
                continue;
            if (!found)
                return memory_.cut() ? End::cut : End::no_rules;
            returns = true;
        }
        // A register that holds the return address does so up to the first call only.
        if (!returns && (at_.caller || returns_on_stack()))
            return End::no_rules;
        if (!next.registers.has(rules.return_register))
            return End::no_rules;
        next.pc = plain_address(next.registers.values[rules.return_register]);
        next.caller = !rules.signal;
        next.guessed = rules.guessed;
        if (!goes_up(rules, next))
            return End::loop;
        at_ = next;
        return std::nullopt;
    }

    bool find_cfa(const FrameRules &rules, uint64_t &cfa) const {
        const Rule &rule = rules.cfa;
        if (rule.how == Rule::How::value_expression)
            return evaluate(&rules.operations[rule.first_operation], rule.n_operations, nullptr,
                            at_.registers, memory_, cfa);
        if (rule.how != Rule::How::moved || !at_.registers.has(rule.base))
            return false;
        cfa = at_.registers.values[rule.base] + static_cast<uint64_t>(rule.offset);
        return true;
    }

    bool restore(const FrameRules &rules, const Rule &rule, uint64_t cfa, State &next) {
        uint64_t value = 0, where = cfa + static_cast<uint64_t>(rule.offset);
        bool found = true, saved = rule.how == Rule::How::saved;
        if (rule.how == Rule::How::saved_expression || rule.how == Rule::How::value_expression) {
            found = evaluate(&rules.operations[rule.first_operation], rule.n_operations, &cfa,
                             at_.registers, memory_, where);
            saved = rule.how == Rule::How::saved_expression;
        } else if (rule.how == Rule::How::moved) {
            found = at_.registers.has(rule.base);
            where = at_.registers.values[rule.base] + static_cast<uint64_t>(rule.offset);
        }
        if (found && saved)
            found = memory_.read(where, value);
        if (found)
            next.registers.set(rule.target, saved ? value : where);
        else
            next.registers.lose(rule.target);
        if (saved && rule.target == rules.return_register)
            next.slot = memory_.slot(where);
        return found;
    }

    // Stacks grow downwards, so callers lie above; a signal's handler may have a stack of
    // its own anywhere.
    bool goes_up(const FrameRules &rules, const State &next) {
        if (rules.signal) {
            memory_.leave_handler();
            return ++signals_ <= kMaxSignals;
        }
        uint64_t before = at_.registers.values[kMachine.stack];
        uint64_t after = next.registers.values[kMachine.stack];
        return after > before || (after == before && !at_.caller && !returns_on_stack());
    }

    CopiedStack memory_;
    const Space &space_;
    State at_;
    const uint64_t began_ = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int signals_ = 0;
    Unwound result_;
};

} // namespace

const char *why_it_ended(Unwound::End end) {
    switch (end) {
    case Unwound::End::complete:
        return "";
    case Unwound::End::cut:
        return "the copy of its stack ends";
    case Unwound::End::no_rules:
        return "no unwind table tells how to go on";
    case Unwound::End::not_code:
        return "a return address is no code";
    case Unwound::End::loop:
        return "it leads back to itself";
    case Unwound::End::too_long:
        return "it has more frames than are followed";
    }
    return "";
}

Unwound unwind(const StackCopy &stack, const Space &space) { return Walk(stack, space).run(); }

Unwound unwind(const igsdk_capture &head, const uint8_t *stack, Spaces &spaces) {
    StackCopy copy{head.registers,
                   stack,
                   head.stack_bytes,
                   head.returns,
                   std::min<size_t>(head.n_returns, IGSDK_MAX_RETURNS),
                   (head.flags & IGSDK_CAPTURE_STACK_END) != 0};
    Unwound result = unwind(copy, *spaces.snapshot(head.pid));
    // Only now is it worth a look whether the process has code that we don't know.
    if (result.end == Unwound::End::not_code && spaces.reread(head.pid))
        result = unwind(copy, *spaces.snapshot(head.pid));
    return result;
}

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// DWARF expressions as unwind tables use them: PLT entries, realigned stacks, signal
// frames. No jumps, so that every expression ends (DWARF 5, section 2.5.1).
#include "rules.h"

#include <array>
#include <dwarf.h>

namespace igsdk {
namespace {

constexpr size_t kDepth = 32;

class Evaluation {
  public:
    Evaluation(const Registers &registers, const Memory &memory)
        : registers_(registers), memory_(memory) {}

    void push(uint64_t value) {
        if (depth_ < kDepth)
            stack_[depth_++] = value;
        else
            ok_ = false;
    }

    bool run(const Operation &operation) {
        uint8_t atom = operation.atom;
        if (atom >= DW_OP_lit0 && atom <= DW_OP_lit31)
            push(static_cast<uint64_t>(atom - DW_OP_lit0));
        else if (atom >= DW_OP_breg0 && atom <= DW_OP_breg31)
            push_register(static_cast<unsigned>(atom - DW_OP_breg0), operation.number);
        else if (atom == DW_OP_bregx)
            push_register(operation.number, operation.number2);
        else if (!push_constant(operation) && !move(operation) && !change(operation))
            compute(atom);
        return ok_;
    }

    bool result(uint64_t &value) {
        value = pop();
        return ok_;
    }

  private:
    uint64_t pop() {
        if (depth_ == 0) {
            ok_ = false;
            return 0;
        }
        return stack_[--depth_];
    }

    uint64_t peek(uint64_t from_top) {
        if (from_top >= depth_) {
            ok_ = false;
            return 0;
        }
        return stack_[depth_ - 1 - from_top];
    }

    void push_register(uint64_t number, uint64_t offset) {
        if (number < 64 && registers_.has(static_cast<unsigned>(number)))
            push(registers_.values[number] + offset);
        else
            ok_ = false;
    }

    bool push_constant(const Operation &operation) {
        switch (operation.atom) {
        case DW_OP_addr:
            ok_ = false; // it would need the file's place in memory; no table has one
            return true;
        case DW_OP_const1u:
        case DW_OP_const1s:
        case DW_OP_const2u:
        case DW_OP_const2s:
        case DW_OP_const4u:
        case DW_OP_const4s:
        case DW_OP_const8u:
        case DW_OP_const8s:
        case DW_OP_constu:
        case DW_OP_consts:
            push(operation.number);
            return true;
        default:
            return false;
        }
    }

    // Operations that move values about.
    bool move(const Operation &operation) {
        uint64_t top, second, third;
        switch (operation.atom) {
        case DW_OP_nop:
            return true;
        case DW_OP_dup:
            push(peek(0));
            return true;
        case DW_OP_drop:
            pop();
            return true;
        case DW_OP_over:
            push(peek(1));
            return true;
        case DW_OP_pick:
            push(peek(operation.number));
            return true;
        case DW_OP_swap:
            top = pop(), second = pop();
            push(top), push(second);
            return true;
        case DW_OP_rot:
            top = pop(), second = pop(), third = pop();
            push(top), push(third), push(second);
            return true;
        default:
            return false;
        }
    }

    // Operations on the uppermost value alone.
    bool change(const Operation &operation) {
        switch (operation.atom) {
        case DW_OP_deref:
            load(8);
            return true;
        case DW_OP_deref_size:
            load(operation.number);
            return true;
        case DW_OP_plus_uconst:
            push(pop() + operation.number);
            return true;
        case DW_OP_neg:
            push(0 - pop());
            return true;
        case DW_OP_not:
            push(~pop());
            return true;
        case DW_OP_abs: {
            uint64_t value = pop();
            push(value >> 63 ? 0 - value : value);
            return true;
        }
        default:
            return false;
        }
    }

    void load(uint64_t size) {
        uint64_t value = 0;
        if (size == 0 || size > 8 || !memory_.read(pop(), value))
            ok_ = false;
        push(size < 8 ? value & ((uint64_t{1} << size * 8) - 1) : value);
    }

    void compute(uint8_t atom) {
        uint64_t b = pop(), a = pop();
        auto left = static_cast<int64_t>(a), right = static_cast<int64_t>(b);
        switch (atom) {
        case DW_OP_and:
            return push(a & b);
        case DW_OP_or:
            return push(a | b);
        case DW_OP_xor:
            return push(a ^ b);
        case DW_OP_plus:
            return push(a + b);
        case DW_OP_minus:
            return push(a - b);
        case DW_OP_mul:
            return push(a * b);
        case DW_OP_shl:
            return push(b < 64 ? a << b : 0);
        case DW_OP_shr:
            return push(b < 64 ? a >> b : 0);
        case DW_OP_shra:
            return push(static_cast<uint64_t>(left >> (b < 64 ? b : 63)));
        case DW_OP_eq:
            return push(left == right);
        case DW_OP_ne:
            return push(left != right);
        case DW_OP_lt:
            return push(left < right);
        case DW_OP_le:
            return push(left <= right);
        case DW_OP_gt:
            return push(left > right);
        case DW_OP_ge:
            return push(left >= right);
        default:
            ok_ = false; // divisions too: no unwind table has them
        }
    }

    const Registers &registers_;
    const Memory &memory_;
    std::array<uint64_t, kDepth> stack_;
    size_t depth_ = 0;
    bool ok_ = true;
};

} // namespace

bool evaluate(const Operation *operations, size_t count, const uint64_t *first,
              const Registers &registers, const Memory &memory, uint64_t &result) {
    Evaluation evaluation(registers, memory);
    if (first)
        evaluation.push(*first);
    for (size_t i = 0; i < count; i++)
        if (!evaluation.run(operations[i]))
            return false;
    return evaluation.result(result);
}

} // namespace igsdk

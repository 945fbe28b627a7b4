// SPDX-License-Identifier: Apache-2.0
// How to get from one frame to its caller's: what unwind tables say of one address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace igsdk {

// An operation of a DWARF expression; operands as libdw hands them out.
struct Operation {
    uint8_t atom = 0; // DW_OP_*
    uint64_t number = 0, number2 = 0;
};

struct Rule {
    enum class How : uint8_t {
        undefined,
        saved,            // in memory, at CFA + offset
        value,            // it is CFA + offset
        moved,            // it is base + offset
        saved_expression, // in memory, where the expression says
        value_expression, // it is what the expression says
    };
    How how = How::undefined;
    uint8_t target = 0;       // the register that it is about
    uint8_t base = 0;         // of `moved`
    uint8_t n_operations = 0; // of an expression
    uint32_t first_operation = 0;
    int64_t offset = 0;
};

struct FrameRules {
    Rule cfa;                    // moved or value_expression, else unknown
    std::vector<Rule> registers; // those that the call does not leave alone
    std::vector<Operation> operations;
    uint64_t lost = 0; // mask of the registers whose values are gone
    uint8_t return_register = 0;
    bool return_undefined = false; // this is the outermost function
    bool signal = false;           // the caller was interrupted, not calling
    bool entered = false;          // nothing called this function: it was jumped to
    bool guessed = false;          // no table said so
};

// Values of registers by DWARF number, with a mask of those that are known.
struct Registers {
    uint64_t values[34] = {};
    uint64_t known = 0; // mask

    bool has(unsigned number) const { return number < 64 && (known >> number & 1); }
    void set(unsigned number, uint64_t value) {
        values[number] = value;
        known |= uint64_t{1} << number;
    }
    void lose(unsigned number) { known &= ~(uint64_t{1} << number); }
};

// Memory as far as it is known.
class Memory {
  public:
    virtual bool read(uint64_t address, uint64_t &value) const = 0;

  protected:
    ~Memory() = default;
};

// Evaluates an expression; `first` is what stands on its stack at the beginning. False:
// it needs what is not known, or does what no unwind table does.
bool evaluate(const Operation *operations, size_t count, const uint64_t *first,
              const Registers &registers, const Memory &memory, uint64_t &result);

} // namespace igsdk

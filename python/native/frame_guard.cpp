// SPDX-License-Identifier: Apache-2.0
#include "frame_guard.h"
#include "cursor.h"

#include <dwarf.h>
#include <elf.h>

namespace igsdk {
namespace {

constexpr uint64_t kMaxRegister = 255;
constexpr uint64_t kMaxBlock = 512;
constexpr size_t kMaxOperations = 64;
constexpr int kMaxRemembered = 64;

// Operands by letter: 1, 2, 4, 8 = so many bytes; r = register; u, s = LEB128 numbers;
// b = expression in a block. nullptr = refused.
const char *frame_operands(uint8_t code) {
    switch (code) {
    case DW_CFA_nop:
    case DW_CFA_remember_state:
    case DW_CFA_restore_state:
        return "";
    case DW_CFA_advance_loc1:
        return "1";
    case DW_CFA_advance_loc2:
        return "2";
    case DW_CFA_advance_loc4:
        return "4";
    case DW_CFA_restore_extended:
    case DW_CFA_undefined:
    case DW_CFA_same_value:
    case DW_CFA_def_cfa_register:
        return "r";
    case DW_CFA_register:
        return "rr";
    case DW_CFA_offset_extended:
    case DW_CFA_def_cfa:
    case DW_CFA_val_offset:
    case DW_CFA_GNU_negative_offset_extended:
        return "ru";
    case DW_CFA_offset_extended_sf:
    case DW_CFA_def_cfa_sf:
    case DW_CFA_val_offset_sf:
        return "rs";
    case DW_CFA_def_cfa_offset:
    case DW_CFA_GNU_args_size:
        return "u";
    case DW_CFA_def_cfa_offset_sf:
        return "s";
    case DW_CFA_def_cfa_expression:
        return "b";
    case DW_CFA_expression:
    case DW_CFA_val_expression:
        return "rb";
    default: // set_loc too: its address would be relative to where we read it
        return nullptr;
    }
}

const char *expression_operands(uint8_t atom) {
    if (atom >= DW_OP_lit0 && atom <= DW_OP_lit31)
        return "";
    if (atom >= DW_OP_breg0 && atom <= DW_OP_breg31)
        return "s";
    switch (atom) {
    case DW_OP_deref:
    case DW_OP_dup:
    case DW_OP_drop:
    case DW_OP_over:
    case DW_OP_swap:
    case DW_OP_rot:
    case DW_OP_nop:
        return "";
    case DW_OP_const1u:
    case DW_OP_const1s:
    case DW_OP_pick:
    case DW_OP_deref_size:
        return "1";
    case DW_OP_const2u:
    case DW_OP_const2s:
        return "2";
    case DW_OP_const4u:
    case DW_OP_const4s:
        return "4";
    case DW_OP_const8u:
    case DW_OP_const8s:
        return "8";
    case DW_OP_constu:
    case DW_OP_plus_uconst:
        return "u";
    case DW_OP_consts:
        return "s";
    case DW_OP_bregx:
        return "rs";
    default:
        return atom >= DW_OP_abs && atom <= DW_OP_ne && atom != DW_OP_bra ? "" : nullptr;
    }
}

bool guard_expression(const uint8_t *bytes, uint64_t size);

void take_block(Cursor &cursor, bool &ok) {
    uint64_t size = cursor.uleb();
    const uint8_t *bytes = size <= kMaxBlock ? cursor.take(size) : nullptr;
    ok = bytes && guard_expression(bytes, size);
}

bool take_operands(Cursor &cursor, const char *shape) {
    bool ok = shape != nullptr;
    for (; ok && *shape; shape++) {
        if (*shape == 'r')
            ok = cursor.uleb() <= kMaxRegister;
        else if (*shape == 'u')
            cursor.uleb();
        else if (*shape == 's')
            cursor.sleb();
        else if (*shape == 'b')
            take_block(cursor, ok);
        else
            cursor.take(static_cast<uint64_t>(*shape - '0'));
    }
    return ok && cursor.ok();
}

bool guard_expression(const uint8_t *bytes, uint64_t size) {
    Cursor cursor(bytes, size);
    for (size_t count = 0; !cursor.done(); count++)
        if (count == kMaxOperations ||
            !take_operands(cursor, expression_operands(cursor.fixed<uint8_t>())))
            return false;
    return true;
}

} // namespace

bool guard_frame_program(std::string &program, uint16_t machine) {
    auto *bytes = reinterpret_cast<uint8_t *>(program.data());
    Cursor cursor(bytes, program.size());
    int remembered = 0;
    while (!cursor.done()) {
        uint8_t &code = bytes[program.size() - cursor.left()];
        if (machine == EM_AARCH64 && code == DW_CFA_AARCH64_negate_ra_state)
            code = DW_CFA_nop;
        cursor.fixed<uint8_t>();
        remembered += (code == DW_CFA_remember_state) - (code == DW_CFA_restore_state);
        const char *shape = frame_operands(code);
        if (code >= DW_CFA_restore || (code >= DW_CFA_advance_loc && code < DW_CFA_offset))
            shape = "";
        else if (code >= DW_CFA_offset)
            shape = "u";
        if (remembered < 0 || remembered > kMaxRemembered || !take_operands(cursor, shape))
            return false;
    }
    return true;
}

} // namespace igsdk

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that does nothing: entries of the real shape (compare, jump, indirect jump)
 * over functions of a few instructions, so that a call costs what its probes cost.
 *
 * The jump has a name too, NAME_jump, for tools that can only probe names.
 *
 * Addresses go round in a range that the client chooses: as wide as the number of live
 * allocations, so that tables are touched as widely as a real driver would have them.
 */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define BLOCK 512

static uint64_t first = BLOCK, end = 2 * BLOCK, next = BLOCK;

EXPORT void stubRange(uint64_t from, uint64_t blocks) {
    first = next = from;
    end = from + blocks * BLOCK;
}

#define FUNCTION(name)                                                                             \
    __asm__("    .pushsection .data.rel.ro,\"aw\"\n"                                               \
            ".Lslot_" #name ":\n"                                                                  \
            "    .quad impl_" #name "\n"                                                           \
            "    .popsection\n"                                                                    \
            "    .pushsection .text\n"                                                             \
            "    .p2align 5\n"                                                                     \
            "    .globl " #name "\n"                                                               \
            "    .type " #name ", @function\n" #name ":\n"                                         \
            "    cmpl $0x321cba00, stub_state(%rip)\n"                                             \
            "    .globl " #name "_jump\n"                                                          \
            "    .type " #name "_jump, @function\n" #name "_jump:\n"                               \
            "    je 1f\n"                                                                          \
            "    jmp *.Lslot_" #name "(%rip)\n"                                                    \
            "1:  mov $4, %eax\n"                                                                   \
            "    ret\n"                                                                            \
            "    .size " #name ", . - " #name "\n"                                                 \
            "    .size " #name "_jump, . - " #name "_jump\n"                                       \
            "    .popsection\n");

#define HIDDEN __attribute__((visibility("hidden"), used))

HIDDEN uint32_t stub_state;

FUNCTION(cuMemAlloc_v2)
FUNCTION(cuMemFree_v2)
FUNCTION(cuCtxCreate_v2)
FUNCTION(cuCtxDestroy_v2)

HIDDEN int impl_cuMemAlloc_v2(uint64_t *out, size_t bytes) {
    (void)bytes;
    *out = next;
    next = next + BLOCK < end ? next + BLOCK : first;
    return 0;
}

HIDDEN int impl_cuMemFree_v2(uint64_t pointer) {
    (void)pointer;
    return 0;
}

HIDDEN int impl_cuCtxCreate_v2(uint64_t *out, unsigned flags, int device) {
    (void)flags;
    (void)device;
    *out = 0xc0de;
    return 0;
}

HIDDEN int impl_cuCtxDestroy_v2(uint64_t context) {
    (void)context;
    return 0;
}

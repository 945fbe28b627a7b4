/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported entries, all of one shape and 0x20 bytes apart, as in the real library:
 *
 *     cmpl $magic, state(%rip)    10 bytes: the driver has been torn down?
 *     je   dead                    2 bytes
 *     jmp  *slot(%rip)             6 bytes
 *
 * The dead branch ends in code 4 as the real one does, but in the function itself, so
 * that the books count a refused allocation. -DPLAIN_ENTRIES begins each entry with a
 * frame instead, which is the other shape that a tracer must know.
 */
#include "sim.h"

#ifdef PLAIN_ENTRIES
#define HEAD          \
    "    push %rbp\n" \
    "    mov %rsp, %rbp\n"
#define UNDO "    pop %rbp\n"
#else
#define HEAD ""
#define UNDO ""
#endif

#define FUNCTION(name)                                             \
    __asm__("    .pushsection .data.rel.ro, \"aw\"\n"              \
            ".Lslot_" #name ":\n"                                  \
            "    .quad impl_" #name "\n"                           \
            "    .popsection\n"                                    \
            "    .pushsection .text.entries, \"ax\"\n"             \
            "    .p2align 5\n"                                     \
            "    .globl " #name "\n"                               \
            "    .type " #name ", @function\n" #name ":\n" HEAD    \
            "    cmpl $0x321cba00, simulated_state(%rip)\n"        \
            "    je 1f\n" UNDO "    jmp *.Lslot_" #name "(%rip)\n" \
            "1:\n" UNDO "    jmp impl_" #name "\n"                 \
            "    .size " #name ", . - " #name "\n"                 \
            "    .popsection\n");
#include "functions.def"
#undef FUNCTION

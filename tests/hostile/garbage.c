/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls the driver on stacks and with registers that are garbage.
 *
 *     garbage SEED ROUNDS
 *
 * Each round makes a stack of its own: random bytes, addresses of code that never
 * called anybody, pointers to itself, ends of mappings, holes. The driver is called
 * there, with every register that a caller may keep set to such words too; then all is
 * put back. The last allocation, of 1 MiB, is an honest one. Exit: 0, or 1 if the
 * driver did not do what was asked.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WORDS 8192 /* 64 KiB: more than is copied of a stack */
#define PAGE 4096ul
#define KEPT 6 /* rbx, rbp, r12 to r15 */
#define MAX_RANGES 64

struct range {
    uint64_t start, end;
};

static uint64_t state;
static struct range code[MAX_RANGES], data[MAX_RANGES];
static unsigned int n_code, n_data;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t below(uint64_t limit)
{
    return next() % limit;
}

static void read_ranges(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], rights[8];
    struct range range;

    while (fgets(line, sizeof(line), maps)) {
        if (sscanf(line, "%lx-%lx %7s", &range.start, &range.end, rights) != 3)
            continue;
        if (rights[2] == 'x' && n_code < MAX_RANGES)
            code[n_code++] = range;
        else if (rights[2] != 'x' && n_data < MAX_RANGES)
            data[n_data++] = range;
    }
    fclose(maps);
}

static uint64_t within(const struct range *ranges, unsigned int count)
{
    const struct range *range = &ranges[below(count)];

    switch (below(8)) {
    case 0:
        return range->start;
    case 1:
        return range->end;
    case 2:
        return range->end - 1;
    default:
        return range->start + below(range->end - range->start);
    }
}

/* One word of a stack; `kind` 9 mixes all of them. */
static uint64_t word(unsigned int kind, const uint64_t *stack)
{
    switch (kind) {
    case 0:
        return next();
    case 1:
    case 2:
        return within(code, n_code);
    case 3:
        return (uint64_t)(stack + below(WORDS));
    case 4:
        return below(4096);
    case 5:
        return next() | 1ul << 47; /* no such address */
    case 6:
        return ~below(1ul << 40); /* the kernel's */
    case 7:
        return within(data, n_data);
    case 8:
        return (uint64_t)stack + next() % 3 * WORDS * 8 - 8; /* at its ends */
    default:
        return word(below(9), stack);
    }
}

#if defined(__x86_64__)
/* Calls allocate(pointer, bytes) on that stack with those registers, and comes back. */
int call_there(allocate_fn allocate, uint64_t *pointer, size_t bytes, uint64_t *stack,
               const uint64_t *kept);
__asm__(".text\n"
        ".globl call_there\n"
        ".type call_there, @function\n"
        "call_there:\n"
        "	.cfi_startproc\n" /* says that its caller is the first word of garbage */
        "	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
        "	mov %rsp, home(%rip)\n"
        "	mov %rcx, %rsp\n"
        "	mov %rdi, %rax; mov %rsi, %rdi; mov %rdx, %rsi\n"
        "	mov (%r8), %rbx; mov 8(%r8), %rbp; mov 16(%r8), %r12\n"
        "	mov 24(%r8), %r13; mov 32(%r8), %r14; mov 40(%r8), %r15\n"
        "	call *%rax\n"
        "	mov home(%rip), %rsp\n"
        "	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
        "	ret\n"
        "	.cfi_endproc\n"
        ".size call_there, . - call_there\n"
        ".local home\n"
        ".comm home, 8, 8\n");
#else
#error "only x86-64"
#endif

/* Garbage above, room for the driver's own frames below. */
static uint64_t *make_stack(unsigned int kind)
{
    size_t bytes = 2 * WORDS * 8;
    uint64_t *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    for (size_t i = 0; i < WORDS; i++)
        stack[WORDS + i] = word(kind, stack + WORDS);
    return stack;
}

static int one_round(allocate_fn allocate, uint64_t *pointer)
{
    unsigned int kind = below(16);
    uint64_t *stack = make_stack(kind);
    /* some stacks end right above the call */
    uint64_t *top = below(4) ? stack + WORDS + 64 : stack + 2 * WORDS - 2 - 2 * below(16);
    uint64_t kept[KEPT];
    int result;

    for (int i = 0; i < KEPT; i++)
        kept[i] = word(kind, stack + WORDS);
    if (below(2))
        kept[1] = (uint64_t)(top + below(64)); /* a frame pointer that looks like one */
    if (below(4) == 0)                         /* a hole; the page of `top` itself stays */
        mprotect((char *)(stack + WORDS) + PAGE * (1 + below(14)), PAGE, PROT_NONE);
    mprotect((char *)((uint64_t)top & -PAGE) - PAGE, 2 * PAGE, PROT_READ | PROT_WRITE);
    result = call_there(allocate, pointer, 4096, top, kept);
    munmap(stack, 2 * WORDS * 8);
    return result;
}

int main(int argc, char **argv)
{
    struct driver driver;
    uint64_t pointer = 0;
    bool failed = false;

    state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15 + 1;
    failed |= open_driver(&driver);
    read_ranges();
    for (long left = atol(argv[argc - 1]); left > 0; left--) {
        failed |= one_round(driver.allocate, &pointer) != 0;
        failed |= driver.release(pointer) != 0;
    }
    failed |= honest(driver.allocate, &pointer) != 0;
    return failed;
}

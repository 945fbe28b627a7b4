// SPDX-License-Identifier: Apache-2.0
// Stacks of all sorts; the first argument says which.
#define _GNU_SOURCE
#include "snapshot.h"

#include <alloca.h>
#include <elf.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

FRAME static void inner(void)
{
    snapshot();
    STAY;
}

FRAME static void middle(int n)
{
    volatile char room[200];
    room[n] = 1;
    inner();
    room[n] = room[0];
}

FRAME static void plain(void)
{
    middle(3);
    STAY;
}

// A frame that is aligned anew, of a size that only the call knows.
#ifdef __x86_64__
__attribute__((target("avx"), noinline, noclone)) static void realigned(int n)
{
    volatile char vector[64] __attribute__((aligned(64)));
    volatile char *room = (volatile char *)alloca((size_t)n);
    vector[n % 64] = room[n / 2] = 1;
    inner();
    room[0] = vector[0];
}
#else
FRAME static void realigned(int n)
{
    volatile char *room = (volatile char *)alloca((size_t)n);
    room[n / 2] = 1;
    inner();
    room[0] = 1;
}
#endif

static int compare(const void *a, const void *b)
{
    static int once;
    if (!once++)
        inner();
    return *(const int *)a - *(const int *)b;
}

FRAME static void callback(void)
{
    int numbers[] = {2, 1};
    qsort(numbers, 2, sizeof(int), compare);
    STAY;
}

static void handler(int number)
{
    (void)number;
    inner();
    STAY;
}

FRAME static void interrupted(void)
{
    raise(SIGUSR1);
    STAY;
}

FRAME static void handled(int flags)
{
    static char other[65536];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof(other)};
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    if (flags & SA_ONSTACK)
        sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    interrupted();
    STAY;
}

#ifdef __x86_64__
// Interrupted at its first instruction: a pc that follows no call.
FRAME static void trap_at_once(void)
{
    __asm__ volatile("ud2");
}

static void after_trap(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    inner();
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

FRAME static void trapped(void)
{
    struct sigaction action = {.sa_sigaction = after_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    trap_at_once();
    STAY;
}

static uintptr_t vdso, vdso_end;

static void maybe_in_vdso(int number, siginfo_t *info, void *context)
{
    static int once;
    uintptr_t at = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    (void)number, (void)info;
    if (at >= vdso && at < vdso_end && !once++) {
        inner();
        _exit(0);
    }
}

static void find_vdso(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof(line), maps))
        if (strstr(line, "[vdso]"))
            sscanf(line, "%lx-%lx", &vdso, &vdso_end);
}

typedef int clock_call(clockid_t, struct timespec *);

// Not every C library calls it, so it is looked up by hand.
static clock_call *vdso_clock(void)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)vdso;
    const Elf64_Phdr *segment = (const Elf64_Phdr *)(vdso + header->e_phoff);
    const Elf64_Sym *symbols = NULL;
    const char *names = NULL;
    while (segment->p_type != PT_DYNAMIC)
        segment++;
    for (const Elf64_Dyn *d = (const Elf64_Dyn *)(vdso + segment->p_vaddr); d->d_tag; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols = (const Elf64_Sym *)(vdso + d->d_un.d_ptr);
        if (d->d_tag == DT_STRTAB)
            names = (const char *)(vdso + d->d_un.d_ptr);
    }
    while (strcmp(names + symbols->st_name, "__vdso_clock_gettime"))
        symbols++;
    return (clock_call *)(vdso + symbols->st_value);
}

FRAME static void in_vdso(void)
{
    struct sigaction action = {.sa_sigaction = maybe_in_vdso, .sa_flags = SA_SIGINFO};
    struct itimerval often = {{0, 1000}, {0, 1000}};
    struct timespec now;
    find_vdso();
    clock_call *call = vdso_clock();
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (;;)
        call(CLOCK_MONOTONIC, &now);
}
#endif

#ifdef __x86_64__
// Code without tables: the instructions around a call of its first argument.
FRAME static void through_code(const char *code, size_t size)
{
    void *room = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(room, code, size);
    mprotect(room, 4096, PROT_READ | PROT_EXEC);
    ((void (*)(void (*)(void)))room)(inner);
    STAY;
}

#define THROUGH(code) through_code(code, sizeof(code) - 1)
// sub $8, %rsp; call *%rdi; add $8, %rsp; ret
#define TRAMPOLINE "\x48\x83\xec\x08\xff\xd7\x48\x83\xc4\x08\xc3"
// push %rbp; mov %rsp, %rbp; sub $32, %rsp; call *%rdi; cpuid; leave; ret
#define COMPILED "\x55\x48\x89\xe5\x48\x83\xec\x20\xff\xd7\x0f\xa2\xc9\xc3"
#endif

static void *thread(void *nothing)
{
    middle(5);
    return nothing;
}

FRAME static void threaded(void)
{
    pthread_t started;
    pthread_create(&started, NULL, thread, NULL);
    pthread_join(started, NULL);
}

FRAME static void deeper(int n)
{
    volatile char room[64];
    room[0] = 1;
    if (n)
        deeper(n - 1);
    else
        inner();
    room[1] = room[0];
}

static ucontext_t before, coroutine;

static void in_coroutine(void)
{
    inner();
    STAY;
}

FRAME static void switched(void)
{
    static char other[65536];
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = other;
    coroutine.uc_stack.ss_size = sizeof(other);
    coroutine.uc_link = &before;
    makecontext(&coroutine, in_coroutine, 0);
    swapcontext(&before, &coroutine);
}

int main(int count, char **arguments)
{
    const char *shape = count > 1 ? arguments[1] : "plain";
#define IF(name, call)         \
    if (!strcmp(shape, #name)) \
    call
    IF(plain, plain());
    IF(realigned, realigned(40));
    IF(callback, callback());
    IF(signal, handled(0));
    IF(altstack, handled(SA_ONSTACK));
#ifdef __x86_64__
    IF(trapped, trapped());
    IF(vdso, in_vdso());
    IF(trampoline, THROUGH(TRAMPOLINE));
    IF(compiled, THROUGH(COMPILED));
#endif
    IF(threaded, threaded());
    IF(deep, deeper(20));
    IF(too_deep, deeper(5000));
    IF(switched, switched());
    return 0;
}

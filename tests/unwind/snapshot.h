// SPDX-License-Identifier: Apache-2.0
// A program's own registers and stack, as a probe at the entry of snapshot() would copy
// them, written to standard output; then it waits until its input ends.
#ifndef SNAPSHOT_H
#define SNAPSHOT_H

#ifdef __cplusplus
extern "C" {
#endif
void snapshot(void);
#ifdef __cplusplus
}
#endif

// Keeps a call from becoming the function's last jump.
#define STAY __asm__ volatile("")
#define FRAME __attribute__((noinline, noclone))

#endif

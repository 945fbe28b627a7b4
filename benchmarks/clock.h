/* SPDX-License-Identifier: Apache-2.0 */
/* How clients take time. */
#include <sched.h>
#include <stdint.h>
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

/* Others on this machine must wait while we measure; without the right to ask, they don't. */
static void go_first(int on) {
    struct sched_param priority = {.sched_priority = on ? 1 : 0};

    sched_setscheduler(0, on ? SCHED_FIFO : SCHED_OTHER, &priority);
}

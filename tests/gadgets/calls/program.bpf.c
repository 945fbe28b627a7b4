// SPDX-License-Identifier: Apache-2.0
// A gadget for the tests in which programs call others: a probe that ends in one of two
// handlers, and a sampler.
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef __u64 gadget_mntns_id;

#define SEC(name) __attribute__((section(name), used))
#define NAME_OF(what) const void *what __attribute__((unused))

static void *(*look_up)(void *, const void *) = (void *)1;
static long (*update)(void *, const void *, const void *, __u64) = (void *)2;
static long (*tail_call)(void *, void *, __u64) = (void *)12;

enum which { which_calls, which_ticks };

struct counted_key {
    __u32 which;
};

struct counted {
    __u64 times;
};

struct {
    int (*type)[1];
    int (*max_entries)[16];
    struct counted_key *key;
    struct counted *value;
} counts SEC(".maps");

struct {
    int (*type)[1];
    int (*max_entries)[1024];
    gadget_mntns_id *key;
    __u32 *value;
} gadget_mntns_filter_map SEC(".maps");

int on_call(void *ctx);
int on_return(void *ctx);

struct {
    int (*type)[3];
    int (*max_entries)[2];
    int (*key_size)[4];
    int (*value_size)[4];
    int (*values[])(void *);
} handlers SEC(".maps") = {.values = {on_call, on_return}};

const volatile char kinds[8] = "all";
const volatile _Bool loud = 1;
const volatile float share = 0;
NAME_OF(gadget_param_kinds);
NAME_OF(gadget_param_loud);
NAME_OF(gadget_param_share);
NAME_OF(gadget_mapiter_totals___counts);

static __u32 share_bits(void)
{
    return *(const volatile __u32 *)&share;
}

static int count(enum which which)
{
    struct counted_key key = {.which = which};
    struct counted first = {.times = 1 + loud + (kinds[0] == 'a') + (share_bits() != 0)};
    struct counted *known = look_up(&counts, &key);
    if (known)
        __sync_fetch_and_add(&known->times, 1);
    else
        update(&counts, &key, &first, 0);
    return 0;
}

SEC("uprobe/libc:setlocale")
int enter(void *ctx)
{
    tail_call(ctx, &handlers, 0);
    return 0;
}

SEC("uretprobe/libc:setlocale")
int leave(void *ctx)
{
    tail_call(ctx, &handlers, 1);
    return 0;
}

SEC("uprobe/libc:handler_of_calls")
int on_call(void *ctx)
{
    return count(which_calls);
}

SEC("uretprobe/libc:handler_of_returns")
int on_return(void *ctx)
{
    return count(which_calls);
}

SEC("perf_event/beat")
int on_beat(void *ctx)
{
    return count(which_ticks);
}

char kind_of_license[] SEC("license") = "Dual BSD/GPL";

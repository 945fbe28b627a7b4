// SPDX-License-Identifier: Apache-2.0
// A gadget for the tests that needs no header but the compiler's own: it counts
// openat calls by process, with one of each thing that a gadget may have.
typedef unsigned char __u8;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef __u64 gadget_mntns_id;
typedef __u64 gadget_timestamp;
typedef __u64 gadget_bytes;
typedef __u32 gadget_uid;
typedef char gadget_comm;

#ifdef __TARGET_ARCH_arm64
#define MACHINE 2
#else
#define MACHINE 1
#endif

#define SEC(name) __attribute__((section(name), used))
#define NAME_OF(what) const void *what __attribute__((unused))

static void *(*look_up)(void *, const void *) = (void *)1;
static long (*update)(void *, const void *, const void *, __u64) = (void *)2;
static __u64 (*pid_tgid)(void) = (void *)14;
static long (*command)(void *, __u32) = (void *)16;
static long (*send)(void *, void *, __u64, __u64) = (void *)130;
static __u64 (*boot_time)(void) = (void *)125;

enum how { how_open = 0, how_create = 1 };

struct place {
    __u32 line;
    __u8 depth;
    __u8 pad[3];
};

struct opened {
    gadget_timestamp time_raw;
    gadget_mntns_id mntns_id;
    __u32 thread;
    gadget_uid uid;
    gadget_comm comm[16];
    enum how how_raw;
    struct place at;
    __u32 numbers[3];
};

struct counted_key {
    __u32 process;
    __u32 flags;
};

struct counted {
    __u64 calls;
    gadget_bytes bytes_raw;
};

struct {
    int (*type)[27];
    int (*max_entries)[262144];
} events __attribute__((section(".maps"), used));

struct {
    int (*type)[6];
    int (*max_entries)[1];
    __u32 *key;
    __u64 *value;
} events_lost_samples __attribute__((section(".maps"), used));

struct {
    int (*type)[1];
    int (*max_entries)[1024];
    struct counted_key *key;
    struct counted *value;
} counts __attribute__((section(".maps"), used));

struct {
    int (*type)[1];
    int (*max_entries)[1024];
    gadget_mntns_id *key;
    __u32 *value;
} gadget_mntns_filter_map __attribute__((section(".maps"), used));

const volatile _Bool gadget_filter_by_mntns = 0;
const volatile __u32 smallest = 7;
NAME_OF(gadget_param_smallest);
NAME_OF(gadget_map_tracer_events);
NAME_OF(gadget_tracer_opens___events___opened);
const struct opened *keep_opened __attribute__((unused));
NAME_OF(gadget_mapiter_totals___counts);

SEC("tracepoint/syscalls/sys_enter_openat")
int on_open(void *ctx)
{
    __u64 id = pid_tgid();
    struct counted_key key = {.process = id >> 32, .flags = MACHINE};
    struct counted first = {.calls = 1, .bytes_raw = 64}, *known = look_up(&counts, &key);
    struct opened row = {.thread = (__u32)id, .time_raw = boot_time()};
    if (row.thread < smallest)
        return 0;
    if (known)
        __sync_fetch_and_add(&known->calls, 1);
    else
        update(&counts, &key, &first, 0);
    command(row.comm, sizeof(row.comm));
    send(&events, &row, sizeof(row), 0);
    return 0;
}

char kind_of_license[] SEC("license") = "Dual BSD/GPL";

// SPDX-License-Identifier: Apache-2.0
// A gadget for the tests with user stacks, processes and container names: rows of a
// map whose fields Inspektor Gadget's own reader has been seen to make.
typedef unsigned char __u8;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef __u64 gadget_mntns_id;
typedef __u32 gadget_pid;
typedef __u32 gadget_tid;
typedef __u32 gadget_ppid;
typedef __u32 gadget_uid;
typedef __u32 gadget_gid;
typedef char gadget_comm;
typedef char gadget_pcomm;

#define IN(name) __attribute__((section(name), used))
#define NAME_OF(what) const void *what __attribute__((unused))

static void *(*look_up)(void *, const void *) = (void *)1;
static long (*update)(void *, const void *, const void *, __u64) = (void *)2;

struct gadget_creds {
    gadget_uid uid;
    gadget_gid gid;
};

struct gadget_parent {
    gadget_pcomm comm[16];
    gadget_ppid pid;
    __u32 tid;
};

struct gadget_process {
    gadget_comm comm[16];
    gadget_pid pid;
    gadget_tid tid;
    gadget_mntns_id mntns_id;
    struct gadget_creds creds;
    struct gadget_parent parent;
};

struct gadget_user_stack {
    __u32 major;
    __u32 minor;
    __u64 inode;
    __u64 mtime_sec;
    __u32 mtime_nsec;
    __u32 base_addr_hash;
    __u32 stack_id;
    __u32 tgid_level0;
    __u32 pid_level0;
    __u32 pidns_level0;
    __u32 pid_level1;
    __u32 pidns_level1;
    __u64 otel_correlation_id;
    __u64 boot_timestamp;
};

enum where : __u8 { where_device, where_host };

struct asked_key {
    __u32 stack_id_key;
};

struct asked {
    __u64 count;
    struct gadget_process proc;
    struct gadget_user_stack ustack_raw;
    enum where host_raw;
    __u8 pad[7];
    __u64 slots[4];
    float f;
    __u32 __hidden;
};

struct {
    int (*type)[1];
    int (*max_entries)[1024];
    struct asked_key *key;
    struct asked *value;
} allocs IN(".maps");

struct {
    int (*type)[1];
    int (*max_entries)[1024];
    gadget_mntns_id *key;
    __u32 *value;
} gadget_mntns_filter_map IN(".maps");

struct {
    int (*type)[7];
    int (*max_entries)[10000];
    __u32 *key;
    int (*value_size)[127 * 8];
} ig_ustack IN(".maps");

struct {
    int (*type)[1];
    int (*key_size)[4];
    int (*value_size)[127 * 32];
} ig_build_id IN(".maps");

const volatile int ig_build_id_max_entries = 1024;
const volatile _Bool collect_ustack = 1;
const volatile gadget_pid targ_pid = 0;
const volatile gadget_comm targ_comm[16] = {};
NAME_OF(gadget_param_ig_build_id_max_entries);
NAME_OF(gadget_param_collect_ustack);
NAME_OF(gadget_param_targ_pid);
NAME_OF(gadget_param_targ_comm);
NAME_OF(gadget_mapiter_allocs___allocs);

IN("uprobe/libc:setlocale")
int on_call(void *ctx)
{
    struct asked_key key = {targ_pid};
    struct asked row = {.count = 1}, *known = look_up(&allocs, &key);
    if (known && collect_ustack)
        known->count++;
    else
        update(&allocs, &key, &row, 0);
    return 0;
}

char kind_of_license[] IN("license") = "GPL";

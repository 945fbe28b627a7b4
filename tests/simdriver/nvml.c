/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small libnvidia-ml.so.1: the devices of SIMCUDA_DEVICES, and who uses them according
 * to the books in SIMCUDA_BOOKS.
 */
#define _GNU_SOURCE
#include "books.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_DEVICES "8G,8G"
#define MAX_PROCESSES 1024

enum {
    SUCCESS = 0,
    UNINITIALISED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
};

typedef struct simulated_device *device_t; /* its index + 1 */

static int references;
static uint64_t sizes[BOOKS_DEVICES];
static int n_devices;

static void read_devices(void)
{
    const char *text = getenv("SIMCUDA_DEVICES"), *units = "KMGT";

    n_devices = 0;
    text = text && *text ? text : DEFAULT_DEVICES;
    while (*text && n_devices < BOOKS_DEVICES) {
        char *end;
        uint64_t size = strtoull(text, &end, 10);
        const char *unit = *end ? strchr(units, *end) : NULL;

        sizes[n_devices++] = unit ? size << 10 * (unit - units + 1) : size;
        text = end + (unit != NULL);
        text += *text == ',';
    }
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    read_devices();
    references++;
    return SUCCESS;
}

int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void)
{
    if (!references)
        return UNINITIALISED;
    references--;
    return SUCCESS;
}

const char *nvmlErrorString(int result)
{
    switch (result) {
    case SUCCESS:
        return "Success";
    case UNINITIALISED:
        return "Uninitialized";
    case INVALID_ARGUMENT:
        return "Invalid Argument";
    case NOT_SUPPORTED:
        return "Not Supported";
    case NOT_FOUND:
        return "Not Found";
    case INSUFFICIENT_SIZE:
        return "Insufficient Size";
    default:
        return "Unknown Error";
    }
}

static int copy_text(char *to, unsigned room, const char *text)
{
    if (!references)
        return UNINITIALISED;
    if (!to || strlen(text) >= room)
        return to ? INSUFFICIENT_SIZE : INVALID_ARGUMENT;
    strcpy(to, text);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned room)
{
    return copy_text(version, room, "simulated");
}

int nvmlSystemGetNVMLVersion(char *version, unsigned room)
{
    return copy_text(version, room, "simulated");
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 13000;
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned room)
{
    char path[64], text[256] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%u/comm", pid);
    if (!(file = fopen(path, "re")))
        return NOT_FOUND;
    if (!fgets(text, sizeof(text), file))
        text[0] = 0;
    fclose(file);
    text[strcspn(text, "\n")] = 0;
    return copy_text(name, room, text);
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    if (!references)
        return UNINITIALISED;
    *count = n_devices;
    return SUCCESS;
}

static int index_of(device_t device)
{
    return (int)(uintptr_t)device - 1;
}

static int give_device(device_t *device, int index)
{
    if (!references)
        return UNINITIALISED;
    if (index < 0 || index >= n_devices)
        return INVALID_ARGUMENT;
    *device = (device_t)(uintptr_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
    return give_device(device, index);
}

/* The bytes that cuDeviceGetUuid gives, printed. */
static void print_uuid(char *text, size_t room, int index)
{
    unsigned char b[17] = "simulated device";

    b[15] = index;
    snprintf(text, room, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
}

int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned room)
{
    char text[64];

    print_uuid(text, sizeof(text), index_of(device));
    return copy_text(uuid, room, text);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device)
{
    char text[64];

    for (int index = 0; index < n_devices; index++) {
        print_uuid(text, sizeof(text), index);
        if (!strcmp(text, uuid))
            return give_device(device, index);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *name, device_t *device)
{
    unsigned domain, bus;

    if (!name || sscanf(name, "%x:%x", &domain, &bus) != 2)
        return INVALID_ARGUMENT;
    return give_device(device, (int)bus - 1);
}

int nvmlDeviceGetName(device_t device, char *name, unsigned room)
{
    (void)device;
    return copy_text(name, room, "Simulated device");
}

int nvmlDeviceGetIndex(device_t device, unsigned *index)
{
    *index = index_of(device);
    return SUCCESS;
}

int nvmlDeviceGetMinorNumber(device_t device, unsigned *minor)
{
    *minor = index_of(device);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending)
{
    (void)device;
    (void)current;
    (void)pending;
    return NOT_SUPPORTED;
}

struct pci_info {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

int nvmlDeviceGetPciInfo_v3(device_t device, struct pci_info *info)
{
    memset(info, 0, sizeof(*info));
    info->bus = index_of(device) + 1;
    snprintf(info->legacy_id, sizeof(info->legacy_id), "0000:%02x:00.0", info->bus);
    snprintf(info->id, sizeof(info->id), "00000000:%02x:00.0", info->bus);
    return SUCCESS;
}

struct process {
    unsigned pid;
    uint64_t used;
};

static uint64_t start_ticks(int pid)
{
    char path[64], text[1024] = "", state = 0, *after_name;
    unsigned long long ticks = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (!(file = fopen(path, "re")))
        return 0;
    if (fgets(text, sizeof(text), file) && (after_name = strrchr(text, ')')))
        sscanf(after_name + 1,
               " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &state, &ticks);
    fclose(file);
    return state == 'Z' || state == 'X' ? 0 : ticks;
}

static uint64_t own_namespace(void)
{
    struct stat status;

    return stat("/proc/self/ns/pid", &status) ? 0 : status.st_ino;
}

static bool is_alive(const struct books *books)
{
    return books->pid_namespace == own_namespace() && start_ticks(books->pid) == books->start_ticks;
}

/* Bytes of the device's own memory, and whether the process ever used it. */
static bool usage(const struct books *books, int index, uint64_t *used)
{
    bool seen = false;

    *used = 0;
    for (unsigned device = 0; device < books->n_devices; device++) {
        if (books->physical[device] != index)
            continue;
        for (unsigned kind = 0; kind < BOOKS_KINDS; kind++) {
            const struct books_row *row =
                &books->rows[books_row_number(kind, HOST_OWN, (int)device)];

            *used += row->in_use;
            seen = seen || row->alloc_calls;
        }
    }
    return seen;
}

static bool read_books(const char *folder, const char *name, struct books *books)
{
    char path[4096];
    ssize_t got;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return false;
    got = read(fd, books, sizeof(*books));
    close(fd);
    return got == (ssize_t)sizeof(*books) && books->magic == BOOKS_MAGIC;
}

/* A process that has called exec has several books; the last made are its present ones. */
struct found {
    unsigned pid;
    uint64_t created, used;
    bool seen;
};

static void keep_latest(struct found *found, unsigned *count, struct found fresh)
{
    unsigned i = 0;

    while (i < *count && found[i].pid != fresh.pid)
        i++;
    if (i == MAX_PROCESSES || (i < *count && found[i].created > fresh.created))
        return;
    found[i] = fresh;
    if (i == *count)
        ++*count;
}

static unsigned find_processes(int index, struct process *processes)
{
    static struct found found[MAX_PROCESSES];
    static struct books books;
    const char *folder = getenv("SIMCUDA_BOOKS");
    DIR *listing = folder ? opendir(folder) : NULL;
    unsigned count = 0, kept = 0;
    struct dirent *entry;

    while (listing && (entry = readdir(listing))) {
        struct found fresh;

        if (!read_books(folder, entry->d_name, &books) || !is_alive(&books))
            continue;
        fresh = (struct found){books.pid, books.created_ns, 0, false};
        fresh.seen = usage(&books, index, &fresh.used);
        keep_latest(found, &count, fresh);
    }
    if (listing)
        closedir(listing);
    for (unsigned i = 0; i < count; i++)
        if (found[i].seen)
            processes[kept++] = (struct process){found[i].pid, found[i].used};
    return kept;
}

static uint64_t used_bytes(device_t device)
{
    static struct process processes[MAX_PROCESSES];
    unsigned count = find_processes(index_of(device), processes);
    uint64_t used = 0;

    for (unsigned i = 0; i < count; i++)
        used += processes[i].used;
    return used;
}

struct memory {
    uint64_t total, unused, used;
};

int nvmlDeviceGetMemoryInfo(device_t device, struct memory *memory)
{
    uint64_t total = sizes[index_of(device)], used = used_bytes(device);

    *memory = (struct memory){total, used < total ? total - used : 0, used};
    return SUCCESS;
}

struct memory_v2 {
    unsigned version;
    uint64_t total, reserved, unused, used;
};

int nvmlDeviceGetMemoryInfo_v2(device_t device, struct memory_v2 *memory)
{
    struct memory plain;

    nvmlDeviceGetMemoryInfo(device, &plain);
    memory->total = plain.total;
    memory->reserved = 0;
    memory->unused = plain.unused;
    memory->used = plain.used;
    return SUCCESS;
}

/* Versions 2 and 3 have the instances of a split device too. */
struct process_v3 {
    unsigned pid;
    uint64_t used;
    unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count,
                                            struct process_v3 *infos)
{
    static struct process processes[MAX_PROCESSES];
    unsigned found = find_processes(index_of(device), processes), room = *count;

    *count = found;
    if (found > room)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++)
        infos[i] = (struct process_v3){processes[i].pid, processes[i].used, ~0U, ~0U};
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(device_t device, unsigned *count,
                                            struct process_v3 *infos)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

int nvmlDeviceGetComputeRunningProcesses(device_t device, unsigned *count, struct process *infos)
{
    static struct process processes[MAX_PROCESSES];
    unsigned found = find_processes(index_of(device), processes), room = *count;

    *count = found;
    if (found > room)
        return INSUFFICIENT_SIZE;
    memcpy(infos, processes, found * sizeof(*infos));
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t device, unsigned *count, void *infos)
{
    (void)device;
    (void)infos;
    *count = 0;
    return SUCCESS;
}

/* No links between devices, no fabric: asked for by clients that must find the functions. */
int nvmlDeviceGetNvLinkRemoteDeviceType(device_t device)
{
    (void)device;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t device)
{
    (void)device;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetGpuFabricInfoV(device_t device)
{
    (void)device;
    return NOT_SUPPORTED;
}

// SPDX-License-Identifier: Apache-2.0
#include "recycle.h"

#include <bpf/bpf.h>
#include <chrono>
#include <unordered_set>

namespace igsdk {
namespace {

constexpr uint32_t step = 4096; // entries a system call
constexpr auto pause = std::chrono::milliseconds(1);

// Layouts of bpf/maps.h.
struct LiveKey {
    uint64_t address;
    uint32_t process;
    uint32_t space;
};

struct Live {
    uint64_t bytes;
    uint64_t references;
    uint32_t account;
    uint32_t generation;
};

struct Handle {
    uint64_t bytes[4];
};

void give_back(int free_slots, uint32_t slot) {
    bpf_map_update_elem(free_slots, nullptr, &slot, BPF_ANY);
}

std::unordered_set<uint32_t> living(const Program &program) {
    std::unordered_set<uint32_t> numbers;
    for (uint32_t slot = 0; slot < program.processes.size(); slot++) {
        const igsdk_process &row = program.processes[slot];
        if (row.generation % 2 && !row.ended)
            numbers.insert(row.number);
    }
    return numbers;
}

bool account_is_over(const Program &program, const Live &entry) {
    if (entry.account >= program.accounts.size())
        return false;
    const igsdk_account &account = program.accounts[entry.account];
    return account.generation != entry.generation || program.usages[account.usage].ended;
}

// Walks a hash in steps, deleting what `is_over` says.
template <typename Value, typename IsOver>
uint64_t sweep(int map, const std::atomic<bool> &stopping, IsOver is_over) {
    std::vector<LiveKey> keys(step), over;
    std::vector<Value> values(step);
    uint64_t position = 0, swept = 0;
    bool first = true;
    LIBBPF_OPTS(bpf_map_batch_opts, options);
    while (!stopping) {
        uint32_t count = step;
        int error = bpf_map_lookup_batch(map, first ? nullptr : &position, &position, keys.data(),
                                         values.data(), &count, &options);
        first = false;
        if (error && errno != ENOENT)
            break;
        over.clear();
        for (uint32_t i = 0; i < count; i++)
            if (is_over(keys[i], values[i]))
                over.push_back(keys[i]);
        auto gone = static_cast<uint32_t>(over.size());
        if (gone)
            bpf_map_delete_batch(map, over.data(), &gone, &options);
        swept += over.size();
        if (error)
            break;
        std::this_thread::sleep_for(pause);
    }
    return swept;
}

} // namespace

std::vector<igsdk_device> read_devices(const Program &program) {
    std::vector<igsdk_device> devices;
    int map = program.map_fd("device_uuids");
    LiveKey key, *previous = nullptr;
    while (devices.size() < step && bpf_map_get_next_key(map, previous, &key) == 0) {
        igsdk_device device{key.address, key.process, 0, {}};
        if (bpf_map_lookup_elem(map, &key, device.uuid) == 0)
            devices.push_back(device);
        previous = &key;
    }
    return devices;
}

uint32_t recycle_process(const Program &program, uint32_t slot) {
    igsdk_process &process = program.processes[slot];
    if (!slot || !process.ended || process.generation % 2 == 0)
        return 0;
    uint32_t accounts = 0;
    for (uint32_t i = 1; i < program.accounts.size(); i++) {
        igsdk_account &row = program.accounts[i];
        if (row.generation % 2 == 0 || row.key.process != process.instance)
            continue;
        if (!row.overflow)
            bpf_map_delete_elem(program.map_fd("account_slots"), &row.key);
        row.generation++;
        give_back(program.map_fd("free_accounts"), i);
        accounts++;
    }
    for (uint32_t i = 1; i < program.usages.size(); i++) {
        igsdk_usage &row = program.usages[i];
        if (row.generation % 2 == 0 || row.key.process != process.instance)
            continue;
        bpf_map_delete_elem(program.map_fd("usage_slots"), &row.key);
        row.generation++;
        give_back(program.map_fd("free_usages"), i);
    }
    process.generation++;
    process.ended = 0;
    give_back(program.map_fd("free_processes"), slot);
    return accounts;
}

uint64_t sweep_live(const Program &program, const std::atomic<bool> &stopping) {
    // in this order: who begins in between has a number of at least `fresh`
    auto fresh = static_cast<uint32_t>(program.global("next_number"));
    std::unordered_set<uint32_t> numbers = living(program);
    auto dead = [&](const LiveKey &key) {
        return key.process < fresh && numbers.count(key.process) == 0;
    };
    uint64_t swept = sweep<Live>(program.map_fd("live_table"), stopping,
                                 [&](const LiveKey &key, const Live &entry) {
                                     return dead(key) || account_is_over(program, entry);
                                 });
    sweep<Handle>(program.map_fd("handles"), stopping,
                  [&](const LiveKey &key, const Handle &) { return dead(key); });
    return swept;
}

} // namespace igsdk

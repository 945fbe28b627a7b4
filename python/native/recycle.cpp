// SPDX-License-Identifier: Apache-2.0
#include "recycle.h"

#include <bpf/bpf.h>
#include <chrono>
#include <unordered_set>

namespace igsdk {
namespace {

constexpr uint32_t step = 4096; // entries a system call
constexpr auto pause = std::chrono::milliseconds(1);
constexpr auto settled = std::chrono::milliseconds(10);

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

template <typename Row> bool in_use(const Row &row) { return row.generation % 2; }

// Gives back the rows of some processes; `forget` takes a row out of its hash before.
template <typename Row, typename Forget>
void recycle_rows(const Rows<Row> &rows, const std::vector<bool> &processes, int free_slots,
                  Forget forget) {
    for (uint32_t slot = 1; slot < rows.size(); slot++) {
        Row &row = rows[slot];
        if (!in_use(row) || !processes[row.process])
            continue;
        forget(row);
        row.generation++;
        give_back(free_slots, slot);
    }
}

std::unordered_set<uint32_t> living(const Program &program) {
    std::unordered_set<uint32_t> numbers;
    for (uint32_t slot = 0; slot < program.processes.size(); slot++) {
        const igsdk_process &row = program.processes[slot];
        if (in_use(row) && !row.ended)
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

bool is_settled(const Program &program, const igsdk_account &row) {
    if (!in_use(row) || row.overflow || !(row.key.stack & IGSDK_KEY_FRESH))
        return false;
    const igsdk_totals &totals = row.totals;
    bool told = totals.alloc_calls + totals.fail_calls > 0;
    bool freed = totals.alloc_calls == totals.free_calls && totals.alloc_bytes == totals.free_bytes;
    return told && (freed || program.usages[row.usage].ended);
}

// The workload may have put a fresh entry in the place of an old one since that was
// read: look again, and where even that was too early, put back what was taken out.
template <typename Value, typename IsOver>
void take_out(int map, const std::vector<LiveKey> &over, IsOver is_over) {
    for (const LiveKey &key : over) {
        Value value;
        if (bpf_map_lookup_elem(map, &key, &value) || !is_over(key, value))
            continue;
        if (bpf_map_lookup_and_delete_elem(map, &key, &value) == 0 && !is_over(key, value))
            bpf_map_update_elem(map, &key, &value, BPF_NOEXIST);
    }
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
        take_out<Value>(map, over, is_over);
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

void recycle_processes(const Program &program, const std::vector<uint32_t> &slots) {
    std::vector<bool> going(program.processes.size());
    for (uint32_t slot : slots)
        going.at(slot) = slot && program.processes[slot].ended && in_use(program.processes[slot]);
    recycle_rows(program.accounts, going, program.map_fd("free_accounts"), [&](igsdk_account &row) {
        if (!row.overflow)
            bpf_map_delete_elem(program.map_fd("account_slots"), &row.key);
    });
    recycle_rows(program.usages, going, program.map_fd("free_usages"), [&](igsdk_usage &row) {
        bpf_map_delete_elem(program.map_fd("usage_slots"), &row.key);
    });
    for (uint32_t slot = 0; slot < going.size(); slot++) {
        if (!going[slot])
            continue;
        program.processes[slot].generation++;
        program.processes[slot].ended = 0;
        give_back(program.map_fd("free_processes"), slot);
    }
}

std::vector<bool> recycle_accounts(const Program &program, const std::vector<AccountSlot> &slots) {
    std::vector<bool> gone(slots.size());
    for (size_t i = 0; i < slots.size(); i++) {
        if (!slots[i].slot || slots[i].slot >= program.accounts.size())
            continue;
        igsdk_account &row = program.accounts[slots[i].slot];
        if (row.generation != slots[i].generation || !is_settled(program, row))
            continue;
        bpf_map_delete_elem(program.map_fd("account_slots"), &row.key);
        row.generation++;
        give_back(program.map_fd("free_accounts"), slots[i].slot);
        gone[i] = true;
    }
    return gone;
}

uint64_t sweep_live(const Program &program, const std::atomic<bool> &stopping) {
    // in this order: who begins in between has a number of at least `fresh`
    auto fresh = static_cast<uint32_t>(program.global("next_number"));
    std::this_thread::sleep_for(settled); // who has a number is in its row by then
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

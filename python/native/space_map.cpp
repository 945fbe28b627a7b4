// SPDX-License-Identifier: Apache-2.0
#include "space_map.h"

#include <bpf/bpf.h>

namespace igsdk {
namespace {

constexpr size_t max_told = 65536;

} // namespace

std::optional<igsdk_space> SpaceMap::at(uint32_t pid) const {
    igsdk_space space;
    if (bpf_map_lookup_elem(map_, &pid, &space))
        return std::nullopt;
    return space;
}

bool SpaceMap::set_python(uint32_t pid, const igsdk_python &python) {
    std::lock_guard<std::mutex> lock(lock_);
    igsdk_space space = at(pid).value_or(igsdk_space{});
    space.python = python;
    if (told_.size() >= max_told)
        told_.clear();
    told_[pid] = python;
    newest_ = python;
    return bpf_map_update_elem(map_, &pid, &space, BPF_ANY) == 0;
}

void SpaceMap::bump(uint32_t pid) {
    std::lock_guard<std::mutex> lock(lock_);
    std::optional<igsdk_space> space = at(pid);
    // an exec may take the entry out in between: what it knew must not come back
    uint64_t flags = space ? BPF_EXIST : BPF_NOEXIST;
    igsdk_space fresh = space.value_or(igsdk_space{});
    fresh.generation++;
    bpf_map_update_elem(map_, &pid, &fresh, flags);
}

std::optional<igsdk_python> SpaceMap::python(uint32_t pid) {
    if (std::optional<igsdk_space> space = at(pid); space && space->python.flavour)
        return space->python;
    std::lock_guard<std::mutex> lock(lock_);
    auto found = told_.find(pid);
    // a child that was forked and has ended was never told of: most have one Python
    return found != told_.end() ? found->second : newest_;
}

} // namespace igsdk

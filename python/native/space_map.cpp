// SPDX-License-Identifier: Apache-2.0
#include "space_map.h"

#include <bpf/bpf.h>

namespace igsdk {

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

std::optional<igsdk_python> SpaceMap::python(uint32_t pid) const {
    std::optional<igsdk_space> space = at(pid);
    return space && space->python.flavour ? std::optional(space->python) : std::nullopt;
}

} // namespace igsdk

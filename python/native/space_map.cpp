// SPDX-License-Identifier: Apache-2.0
#include "space_map.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace igsdk {
namespace {

// Whether it has memory still. The kernel takes out what is said of a process after that
// is gone: who had it after the entry was written is taken out in time.
bool has_memory(uint32_t pid) {
    std::string path = "/proc/" + std::to_string(pid) + "/statm";
    int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    char size = '0';
    ssize_t n = ::read(fd, &size, 1);
    ::close(fd);
    return n == 1 && size != '0';
}

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
    return write(pid, space);
}

// What is said of a process that is gone would stay for ever, and be said of the next one
// that has its number.
bool SpaceMap::write(uint32_t pid, const igsdk_space &space) {
    if (bpf_map_update_elem(map_, &pid, &space, BPF_ANY))
        return false;
    if (!has_memory(pid))
        bpf_map_delete_elem(map_, &pid);
    return true;
}

void SpaceMap::clear_python(uint32_t pid) {
    std::lock_guard<std::mutex> lock(lock_);
    std::optional<igsdk_space> space = at(pid);
    if (!space || space->python.flavour == IGSDK_PYTHON_NONE)
        return;
    space->python = {};
    bpf_map_update_elem(map_, &pid, &*space, BPF_EXIST);
}

void SpaceMap::bump(uint32_t pid) {
    std::lock_guard<std::mutex> lock(lock_);
    std::optional<igsdk_space> space = at(pid);
    igsdk_space fresh = space.value_or(igsdk_space{});
    fresh.generation++;
    if (space) // an exec may take the entry out in between: what it knew must not come back
        bpf_map_update_elem(map_, &pid, &fresh, BPF_EXIST);
    else
        write(pid, fresh);
}

std::optional<igsdk_python> SpaceMap::python(uint32_t pid) const {
    std::optional<igsdk_space> space = at(pid);
    return space && space->python.flavour ? std::optional(space->python) : std::nullopt;
}

} // namespace igsdk

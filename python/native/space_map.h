// SPDX-License-Identifier: Apache-2.0
// What the kernel is told of each process's address space: the map `spaces`.
//
// The kernel takes entries out when a process ends or executes, and copies them when it
// forks; so the map itself is what holds.
#pragma once

#include "abi.h"

#include <cstddef>
#include <mutex>
#include <optional>

namespace igsdk {

class SpaceMap {
  public:
    explicit SpaceMap(int map) : map_(map) {}

    // False with errno where the kernel refuses it.
    bool set_python(uint32_t pid, const igsdk_python &python);
    // No interpreter is there, as far as can be told; no matter what was said before.
    void clear_python(uint32_t pid);
    // Code lies where other code lay: templates of the old one must fit no more.
    void bump(uint32_t pid);
    std::optional<igsdk_space> at(uint32_t pid) const;
    // Of a process that lives; of another there is nothing to read by it.
    std::optional<igsdk_python> python(uint32_t pid) const;

  private:
    bool write(uint32_t pid, const igsdk_space &space);

    const int map_;
    std::mutex lock_; // one change at a time
};

} // namespace igsdk

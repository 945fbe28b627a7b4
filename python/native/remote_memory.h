// SPDX-License-Identifier: Apache-2.0
// Memory of another process, which may have made it so that whoever reads it waits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace igsdk {

// All of it or false. A process that is gone has nothing.
//
// A page that is not there is brought in by whom the process says: a file system or a
// handler (userfaultfd) of its own, which may never answer. Such pages are read by a
// thread that is left behind when it takes longer than 0.1 s; where many are stuck,
// false at once.
bool read_process(uint32_t pid, uint64_t address, void *into, size_t size);

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// Leaves slow closes to a process that nobody waits for.
#pragma once

#include "support.h"

#include <vector>

namespace igsdk {

// Closes descriptors whose last close takes the kernel long: a process of its own keeps
// copies until ours are closed, and then ends. Nobody's child, in a session of its own,
// with nothing else open, it neither meets a signal nor holds a terminal or a pipe.
// Returns a pidfd that is readable once all is done. Without a process to be had,
// returns none and leaves the descriptors open.
Fd close_elsewhere(std::vector<Fd> &descriptors);

} // namespace igsdk

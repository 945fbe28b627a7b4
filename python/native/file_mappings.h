// SPDX-License-Identifier: Apache-2.0
// Asks the kernel which real files a process has mapped as code: overlayfs hides them
// from /proc. A program of its own, beside whichever one traces.
#pragma once

#include "object.h"

#include <cstdint>

namespace igsdk {

class FileMappings {
  public:
    explicit FileMappings(const std::string &object);
    // Rows of igsdk_mapping.
    std::string of(uint32_t pid) const;
    void close() { object_.reset(); }

  private:
    Object object_;
    const bpf_program *lister_;
};

} // namespace igsdk

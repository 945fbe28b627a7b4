// SPDX-License-Identifier: Apache-2.0
#include "file_mappings.h"

#include "abi.h"
#include "support.h"

#include <bpf/bpf.h>

namespace igsdk {

FileMappings::FileMappings(const std::string &object)
    : object_(open_object(object)),
      lister_(bpf_object__find_program_by_name(object_.get(), "list_mappings")) {
    if (!lister_)
        fail("finding list_mappings", ENOENT);
    load_object(object_);
}

// Runs the task_vma iterator over one process.
std::string FileMappings::of(uint32_t pid) const {
    if (!object_)
        throw ProgramError("listing mappings after the end", EBADF);
    bpf_iter_link_info target{};
    target.task.pid = pid;
    LIBBPF_OPTS(bpf_iter_attach_opts, options);
    options.link_info = &target;
    options.link_info_len = sizeof(target);
    forget_messages();
    Link link(bpf_program__attach_iter(lister_, &options));
    if (!link)
        fail("listing mappings", errno);
    Fd reader(bpf_iter_create(bpf_link__fd(link.get())));
    std::string rows;
    char buffer[sizeof(igsdk_mapping) * 256];
    ssize_t n;
    while (reader && (n = read(reader.get(), buffer, sizeof(buffer))) > 0)
        rows.append(buffer, static_cast<size_t>(n));
    return rows;
}

} // namespace igsdk

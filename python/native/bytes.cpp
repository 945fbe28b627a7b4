// SPDX-License-Identifier: Apache-2.0
#include "bytes.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <sys/stat.h>

namespace igsdk {
namespace {

constexpr size_t kMaxText = 8 * 1024;
// Most names are shorter: one small read has them.
constexpr size_t kTextAtOnce = 256;

} // namespace

std::string Bytes::text(uint64_t offset) const {
    std::string text;
    for (size_t piece = kTextAtOnce; text.size() < kMaxText; piece *= 2) {
        size_t before = text.size();
        text.resize(std::min(before + piece, kMaxText));
        text.resize(before + read(offset + before, text.data() + before, text.size() - before));
        size_t end = text.find('\0', before);
        if (end != std::string::npos)
            text.resize(end);
        if (end != std::string::npos || text.size() - before < piece)
            break;
    }
    return text;
}

size_t read_file(int fd, uint64_t offset, void *into, size_t size) {
    size_t done = 0;
    while (done < size && offset + done <= INT64_MAX) {
        ssize_t n = ::pread(fd, static_cast<char *>(into) + done, size - done,
                            static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += static_cast<size_t>(n);
    }
    return done;
}

std::shared_ptr<const FileBytes> FileBytes::duplicate(int fd) {
    Fd own(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!own)
        throw_errno("cannot read the file");
    auto bytes = of(std::move(own));
    if (!bytes && errno == EINVAL)
        throw std::invalid_argument("it is not a regular file");
    if (!bytes)
        throw_errno("cannot read the file");
    return bytes;
}

std::shared_ptr<const FileBytes> FileBytes::of(Fd fd) {
    struct stat status;
    if (!fd || ::fstat(fd.get(), &status) != 0)
        return nullptr;
    if (!S_ISREG(status.st_mode)) {
        errno = EINVAL;
        return nullptr;
    }
    return std::shared_ptr<const FileBytes>(
        new FileBytes(std::move(fd), static_cast<uint64_t>(status.st_size)));
}

size_t FileBytes::read(uint64_t offset, void *into, size_t size) const {
    if (offset > size_)
        return 0;
    return read_file(fd_.get(), offset, into, std::min<uint64_t>(size, size_ - offset));
}

size_t MemoryBytes::read(uint64_t offset, void *into, size_t size) const {
    if (offset > content_.size())
        return 0;
    size = std::min<uint64_t>(size, content_.size() - offset);
    std::memcpy(into, content_.data() + offset, size);
    return size;
}

} // namespace igsdk

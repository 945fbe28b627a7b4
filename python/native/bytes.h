// SPDX-License-Identifier: Apache-2.0
// Something to read from at an offset: a file, or memory that came out of one.
//
// Files are read with pread, never mapped: they may be truncated while we read
// them, and a mapping of one that was kills the reader (SIGBUS).
#pragma once

#include "support.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace igsdk {

class Bytes {
  public:
    virtual ~Bytes() = default;
    // As it was when it was opened; less may be there now.
    virtual uint64_t size() const = 0;
    // Reads up to `size` bytes; returns how many there were.
    virtual size_t read(uint64_t offset, void *into, size_t size) const = 0;

    // `count` entries of a table, fewer where there are fewer.
    template <typename T> std::vector<T> table(uint64_t offset, size_t count) const {
        std::vector<T> entries(count);
        entries.resize(read(offset, entries.data(), count * sizeof(T)) / sizeof(T));
        return entries;
    }

    // The zero-terminated string there, cut at 8 KiB.
    std::string text(uint64_t offset) const;
};

// Reads up to `size` bytes of a file; returns how many there were.
size_t read_file(int fd, uint64_t offset, void *into, size_t size);

class FileBytes : public Bytes {
  public:
    // With a descriptor of its own. Throws std::invalid_argument where it is no regular
    // file, and std::system_error where it can't be looked at.
    static std::shared_ptr<const FileBytes> duplicate(int fd);
    // Null with errno where it is no regular file (EINVAL) or can't be looked at.
    static std::shared_ptr<const FileBytes> of(Fd fd);
    uint64_t size() const override { return size_; }
    size_t read(uint64_t offset, void *into, size_t size) const override;
    const Fd &fd() const { return fd_; }

  private:
    FileBytes(Fd fd, uint64_t size) : fd_(std::move(fd)), size_(size) {}

    Fd fd_;
    uint64_t size_;
};

class MemoryBytes : public Bytes {
  public:
    explicit MemoryBytes(std::vector<char> content) : content_(std::move(content)) {}
    uint64_t size() const override { return content_.size(); }
    size_t read(uint64_t offset, void *into, size_t size) const override;

  private:
    std::vector<char> content_;
};

} // namespace igsdk

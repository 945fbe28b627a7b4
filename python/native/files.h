// SPDX-License-Identifier: Apache-2.0
// The files that processes have mapped as code, each opened once and kept open: a
// process may be gone, its file deleted, before anybody asks what a function is called.
//
// Bounded by the number of open files that the system allows; files that no address
// space uses any more go first. Those go some time later anyway: an open file keeps the
// file system below it, a container's or a volume's, from going away.
#pragma once

#include "support.h"

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace igsdk {

class CallFrames;

struct File {
    uint32_t id = 0; // from 1 on, never reused
    Fd fd;
    std::string path; // as the process sees it, without the mark of a deleted file
    uint32_t major = 0, minor = 0;
    uint64_t inode = 0; // these three as stat tells them of `fd`
    uint64_t size = 0, modified_ns = 0;
    std::unique_ptr<CallFrames> frames; // how to unwind through it; loads itself when asked

    File();
    ~File();
};

class FileStore {
  public:
    // Tries to have room for `wanted` open files: raises the soft limit when needed.
    explicit FileStore(size_t wanted = 16384);
    ~FileStore();

    // nullptr once it was dropped.
    std::shared_ptr<const File> at(uint32_t id);
    // The file that was added with this identity and has not been written to since.
    std::shared_ptr<const File> known(uint32_t major, uint32_t minor, uint64_t inode);
    // Takes an open file; gives the one that is known already where it is the same.
    // nullptr: it is no regular file, or too many are in use.
    std::shared_ptr<const File> add(Fd fd, const std::string &path);
    // The vdso, a copy of our own in a file without a name; nullptr where there is none.
    std::shared_ptr<const File> vdso();
    // Closes what nobody else has used for so long, as far as calls of this can tell; gives
    // how many it were.
    size_t close_unused(uint64_t keep_ns);

    size_t size();
    uint64_t refused(); // for want of room

  private:
    struct Identity {
        uint64_t device, inode;
        bool operator==(const Identity &other) const {
            return device == other.device && inode == other.inode;
        }
    };
    struct Hash {
        size_t operator()(const Identity &identity) const {
            return identity.inode * 0x9e3779b97f4a7c15u ^ identity.device;
        }
    };
    struct Entry {
        Identity identity;
        std::shared_ptr<const File> file;
        uint64_t unused_ns = 0; // since when; 0: it was in use
    };
    using Order = std::list<Entry>;

    std::shared_ptr<const File> keep(std::shared_ptr<File> file, const Identity &identity);
    bool make_room();
    void take_out(Order::iterator place, Order &into);

    std::mutex lock_;
    const size_t wanted_;
    uint32_t next_ = 1;
    uint64_t refused_ = 0;
    Order files_; // least recently added or found again first
    std::unordered_map<Identity, Order::iterator, Hash> by_identity_;
    std::unordered_map<uint32_t, Order::iterator> by_id_;
    std::shared_ptr<const File> vdso_;
};

} // namespace igsdk

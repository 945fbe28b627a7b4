// SPDX-License-Identifier: Apache-2.0
#include "files.h"
#include "cfi.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace igsdk {
namespace {

constexpr size_t kMinRoom = 64;

std::string without_mark(std::string path) {
    static const std::string deleted = " (deleted)";
    if (path.size() > deleted.size() &&
        path.compare(path.size() - deleted.size(), deleted.size(), deleted) == 0)
        path.resize(path.size() - deleted.size());
    return path;
}

// Half of the descriptors that we may have: other parts need some too. More are asked
// for only when they are needed, since programs that we start inherit the limit.
size_t room_for(size_t wanted, size_t kept) {
    rlimit limit;
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return kMinRoom;
    if (kept >= limit.rlim_cur / 2 && limit.rlim_cur < limit.rlim_max) {
        rlimit raised = limit;
        raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, 2 * wanted);
        if (raised.rlim_cur > limit.rlim_cur && ::setrlimit(RLIMIT_NOFILE, &raised) == 0)
            limit = raised;
    }
    return std::min<size_t>(wanted, limit.rlim_cur / 2);
}

// Our own vdso is everybody's: the kernel has one for each kind of process.
std::string read_vdso() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long start = 0, end = 0;
        if (line.find("[vdso]") != std::string::npos &&
            std::sscanf(line.c_str(), "%lx-%lx", &start, &end) == 2)
            return std::string(reinterpret_cast<const char *>(start), end - start);
    }
    return {};
}

uint64_t ns(const timespec &time) {
    return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_nsec);
}

} // namespace

File::File() = default;
File::~File() = default;

FileStore::FileStore(size_t wanted) : wanted_(wanted) {}
FileStore::~FileStore() = default;

std::shared_ptr<const File> FileStore::at(uint32_t id) {
    std::lock_guard<std::mutex> guard(lock_);
    if (vdso_ && vdso_->id == id)
        return vdso_;
    auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second->file;
}

std::shared_ptr<const File> FileStore::known(uint32_t major, uint32_t minor, uint64_t inode) {
    std::lock_guard<std::mutex> guard(lock_);
    auto found = by_identity_.find({makedev(major, minor), inode});
    if (found == by_identity_.end())
        return nullptr;
    const auto &file = found->second->file;
    struct stat status;
    if (::fstat(file->fd.get(), &status) != 0 || ns(status.st_mtim) != file->modified_ns)
        return nullptr;
    found->second->unused_ns = 0;
    files_.splice(files_.end(), files_, found->second);
    return file;
}

std::shared_ptr<const File> FileStore::add(Fd fd, const std::string &path) {
    struct stat status;
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode))
        return nullptr;
    uint32_t device_major = major(status.st_dev), device_minor = minor(status.st_dev);
    if (auto same = known(device_major, device_minor, status.st_ino))
        return same;
    auto file = std::make_shared<File>();
    file->fd = std::move(fd);
    file->path = without_mark(path);
    file->major = device_major;
    file->minor = device_minor;
    file->inode = status.st_ino;
    file->size = static_cast<uint64_t>(status.st_size);
    file->modified_ns = ns(status.st_mtim);
    file->frames = std::make_unique<CallFrames>(file->fd.get());
    std::lock_guard<std::mutex> guard(lock_);
    return keep(std::move(file), {status.st_dev, status.st_ino});
}

std::shared_ptr<const File> FileStore::keep(std::shared_ptr<File> file, const Identity &identity) {
    if (!make_room()) {
        refused_++;
        return nullptr;
    }
    file->id = next_++;
    auto place = files_.insert(files_.end(), {identity, file});
    by_identity_[identity] = place;
    by_id_[file->id] = place;
    return file;
}

// Drops a few files at once that no address space uses, the longest unheard of first.
bool FileStore::make_room() {
    size_t limit = room_for(wanted_, files_.size());
    if (files_.size() < limit)
        return true;
    Order dropped;
    for (auto next = files_.begin(); next != files_.end() && dropped.size() < kMinRoom;) {
        auto place = next++;
        if (place->file.use_count() == 1)
            take_out(place, dropped);
    }
    return !dropped.empty();
}

void FileStore::take_out(Order::iterator place, Order &into) {
    auto current = by_identity_.find(place->identity);
    if (current != by_identity_.end() && current->second == place)
        by_identity_.erase(current);
    by_id_.erase(place->file->id);
    into.splice(into.end(), files_, place);
}

size_t FileStore::close_unused(uint64_t keep_ns) {
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    Order closed; // when the lock is free again
    std::lock_guard<std::mutex> guard(lock_);
    for (auto next = files_.begin(); next != files_.end();) {
        auto place = next++;
        if (place->file.use_count() > 1)
            place->unused_ns = 0;
        else if (!place->unused_ns)
            place->unused_ns = now;
        if (place->unused_ns && place->unused_ns + keep_ns <= now)
            take_out(place, closed);
    }
    return closed.size();
}

std::shared_ptr<const File> FileStore::vdso() {
    std::lock_guard<std::mutex> guard(lock_);
    if (vdso_)
        return vdso_;
    std::string image = read_vdso();
    Fd fd(::memfd_create("vdso", MFD_CLOEXEC));
    if (image.empty() || !fd ||
        ::write(fd.get(), image.data(), image.size()) != static_cast<ssize_t>(image.size()))
        return nullptr;
    auto file = std::make_shared<File>();
    file->id = next_++;
    file->size = image.size();
    file->path = "[vdso]";
    file->fd = std::move(fd);
    file->frames = std::make_unique<CallFrames>(file->fd.get());
    return vdso_ = file;
}

size_t FileStore::size() {
    std::lock_guard<std::mutex> guard(lock_);
    return files_.size();
}

uint64_t FileStore::refused() {
    std::lock_guard<std::mutex> guard(lock_);
    return refused_;
}

} // namespace igsdk

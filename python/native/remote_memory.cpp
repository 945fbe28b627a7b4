// SPDX-License-Identifier: Apache-2.0
#include "remote_memory.h"
#include "support.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <sys/uio.h>
#include <system_error>
#include <vector>

namespace igsdk {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(100);
constexpr int kMaxStuck = 16;
constexpr uint64_t kInMemory = 3ULL << 62; // of a word of pagemap: present, or in swap

bool read_at_once(uint32_t pid, uint64_t address, void *into, size_t size) {
    iovec local{into, size}, remote{reinterpret_cast<void *>(address), size};
    return process_vm_readv(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0) ==
           static_cast<ssize_t>(size);
}

enum class Pages { in_memory, elsewhere, none };

// The page map of the process that was asked for last: most often it is asked for again.
class PageMap {
  public:
    // None: there is no such process, or no such memory.
    Pages look(uint32_t pid, uint64_t address, size_t size) {
        static const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
        uint64_t first = address / page, last = (address + size - 1) / page;
        if (size == 0 || last < first || last - first > 1024)
            return Pages::none;
        std::vector<uint64_t> words(last - first + 1);
        // an exec leaves the old memory's map empty
        if (!(pid == pid_ && read(first, words)) && !(open(pid) && read(first, words)))
            return Pages::none;
        for (uint64_t word : words)
            if (!(word & kInMemory))
                return Pages::elsewhere;
        return Pages::in_memory;
    }

  private:
    bool open(uint32_t pid) {
        std::string path = "/proc/" + std::to_string(pid) + "/pagemap";
        fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        pid_ = pid;
        return static_cast<bool>(fd_);
    }
    bool read(uint64_t first, std::vector<uint64_t> &words) const {
        auto size = static_cast<ssize_t>(words.size() * sizeof(uint64_t));
        return fd_ && ::pread(fd_.get(), words.data(), static_cast<size_t>(size),
                              static_cast<off_t>(first * sizeof(uint64_t))) == size;
    }

    uint32_t pid_ = 0;
    Fd fd_;
};

struct Read {
    std::mutex lock;
    std::condition_variable ended;
    std::vector<char> bytes;
    bool over = false, good = false;
};

std::atomic<int> stuck{0};

bool read_with_patience(uint32_t pid, uint64_t address, void *into, size_t size) {
    if (stuck >= kMaxStuck)
        return false;
    auto read = std::make_shared<Read>();
    read->bytes.resize(size);
    stuck++;
    try {
        start_quiet_thread([read, pid, address] {
            bool good = read_at_once(pid, address, read->bytes.data(), read->bytes.size());
            std::lock_guard<std::mutex> guard(read->lock);
            read->good = good;
            read->over = true;
            read->ended.notify_one();
            stuck--;
        }).detach();
    } catch (const std::system_error &) {
        stuck--;
        return false;
    }
    std::unique_lock<std::mutex> guard(read->lock);
    if (!read->ended.wait_for(guard, kPatience, [&read] { return read->over; }) || !read->good)
        return false;
    std::memcpy(into, read->bytes.data(), size);
    return true;
}

} // namespace

bool read_process(uint32_t pid, uint64_t address, void *into, size_t size) {
    thread_local PageMap pages;
    switch (pages.look(pid, address, size)) {
    case Pages::in_memory:
        return read_at_once(pid, address, into, size);
    case Pages::elsewhere:
        return read_with_patience(pid, address, into, size);
    case Pages::none:
        return false;
    }
    return false;
}

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// Sees every file that is mapped as code on the machine, the moment that it is.
//
// The kernel's perf side band (MMAP2, COMM, FORK, EXIT of a dummy event on each CPU)
// needs no tracefs and no polling: a thread of our own, which never takes the GIL,
// sleeps until the kernel wakes it.
#pragma once

#include "mapping_table.h"
#include "support.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace igsdk {

class SideBandRing;
struct SideBandRecord;

// A mapping as Python sees it.
struct Seen {
    int32_t pid, tid;
    Mapping mapping;
};

// Hears of all that happens to address spaces, in order of time, from the thread that
// drains the rings. It may ask the watch for known(), for nothing else.
class MapListener {
  public:
    virtual ~MapListener() = default;
    // `wanted`: the file's name begins with one of the watch's prefixes.
    virtual void mapped(int32_t pid, const Mapping &mapping, bool wanted) = 0;
    virtual void forked(int32_t parent, int32_t child) = 0;
    virtual void executed(int32_t pid) = 0;
    virtual void ended(int32_t pid) = 0;
    // Records were lost: whatever is known may be old.
    virtual void lost() = 0;
};

class MapWatch {
  public:
    MapWatch(std::vector<std::string> prefixes, size_t processes, double keep_ended);
    MapWatch(const MapWatch &) = delete;
    MapWatch &operator=(const MapWatch &) = delete;
    ~MapWatch();

    // Readable while there is a library to take.
    int fileno() const { return ready_.get(); }
    std::vector<Seen> take_libraries();
    // All that was mapped before this call.
    std::vector<Seen> mappings(int32_t pid);
    // The same without a look into the rings.
    std::vector<Mapping> known(int32_t pid);
    bool complete(int32_t pid);
    std::vector<std::pair<std::string, uint64_t>> counts();
    // Records that the kernel had no room for, and libraries that we had none for.
    uint64_t lost();
    void close();

    // nullptr: nobody listens any more, and none is being called.
    void listen(MapListener *listener);
    // Tells the listener of all that happened before this call.
    void catch_up();
    // The same, then runs `body`, while nothing new is told.
    void settled(const std::function<void()> &body);

  private:
    void run();
    void drain(); // drain_lock_ is held
    void book(SideBandRecord &record);
    void book_mapping(SideBandRecord &record);
    void keep_fresh(const SideBandRecord &record);
    void tell(const SideBandRecord &record);

    const std::vector<std::string> prefixes_;
    Fd ready_, wake_;
    std::mutex drain_lock_; // of the rings and the listener; taken before lock_
    std::vector<std::unique_ptr<SideBandRing>> rings_;
    MapListener *listener_ = nullptr;
    std::mutex lock_;
    MappingTable table_;
    std::vector<Seen> fresh_;
    uint64_t lost_ = 0, untaken_ = 0;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

} // namespace igsdk

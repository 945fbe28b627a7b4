// SPDX-License-Identifier: Apache-2.0
// Address spaces: what code each process has mapped where, with its files open.
//
// Kept up to date by the watch's events, begun from /proc/PID/maps. Whoever unwinds
// takes a snapshot: it does not change and costs a lock and a reference.
#pragma once

#include "files.h"
#include "watch.h"

#include <deque>
#include <list>

namespace igsdk {

struct Region {
    uint64_t start, end;
    uint64_t offset;                  // in the file
    std::shared_ptr<const File> file; // nullptr: no file, or it could not be opened
    std::string name;                 // as /proc/PID/maps tells it: a path, "[vdso]", ""
};

// The code of one process at one time: sorted, disjoint.
class Space {
  public:
    // nullptr: no code was ever seen there.
    const Region *find(uint64_t address) const;
    const std::vector<Region> &regions() const { return regions_; }
    uint32_t pid() const { return pid_; }
    // Goes up when code was mapped over other code, and at exec.
    uint32_t generation() const { return generation_; }

  private:
    friend class Spaces;
    void put(Region region); // sets generation_ where it replaces other code
    std::vector<Region> regions_;
    uint32_t pid_ = 0, generation_ = 0;
};

class Spaces : private MapListener {
  public:
    struct Limits {
        size_t processes = 4096;
        size_t regions = 8192;        // of each process
        size_t all_regions = 1 << 20; // of all, some 200 bytes each
        uint64_t keep_ended_ns = 60'000'000'000;
        uint64_t keep_files_ns = 60'000'000'000; // open, when no process has them any more
        uint64_t reread_ns = 20'000'000;         // at least that long between two looks into /proc,
        uint64_t reread_share = 3;               // and so many times as long as a look took
    };

    // The watch may be null, then /proc alone tells; it must outlive this.
    explicit Spaces(MapWatch *watch) : Spaces(watch, Limits{}) {}
    Spaces(MapWatch *watch, Limits limits);
    ~Spaces() override;

    // From now on all code of that process is known, and opened when it appears. A
    // process that maps one of the watch's libraries is admitted by itself, and so are
    // children of those that are.
    void admit(uint32_t pid);
    // Admits where needed. Holds all that was mapped before this call. Never nullptr.
    std::shared_ptr<const Space> snapshot(uint32_t pid);
    // Reads /proc/PID/maps again, for somebody found an address that no region holds;
    // false: not now, or nothing new was there.
    bool reread(uint32_t pid);
    uint32_t generation(uint32_t pid);

    FileStore &files() { return files_; }
    // Closes files that no process has had for a while; to be called now and then.
    size_t close_unused_files();

  private:
    struct Process {
        std::shared_ptr<Space> space;
        uint64_t next_read_ns = 0; // from when on /proc may be looked into again
        uint64_t ended_ns = 0;     // 0: it lives, as far as we know
        bool stale = false;        // events were lost
        std::list<uint32_t>::iterator age;
    };

    void mapped(int32_t pid, const Mapping &mapping, bool wanted) override;
    void forked(int32_t parent, int32_t child) override;
    void executed(int32_t pid) override;
    void ended(int32_t pid) override;
    void lost() override;

    void settled(const std::function<void()> &body);
    bool is_known(uint32_t pid);
    void load(uint32_t pid);
    Region open_region(uint32_t pid, const Mapping &mapping);
    // With lock_ held:
    Process &touch(uint32_t pid);
    void replace(Process &process, std::vector<Region> regions);
    void set_space(Process &process, std::shared_ptr<Space> space);
    void put(Process &process, Region region);
    void forget(uint32_t pid);
    void forget_some();
    void note_ends();
    void make_room();

    MapWatch *const watch_;
    const Limits limits_;
    FileStore files_;
    std::mutex settle_lock_; // where there is no watch
    std::mutex lock_;        // all below; never held while a file is opened
    std::unordered_map<uint32_t, Process> processes_;
    std::list<uint32_t> ages_; // least recently used first
    size_t all_regions_ = 0;
    std::deque<std::pair<uint64_t, uint32_t>> ended_;
};

} // namespace igsdk

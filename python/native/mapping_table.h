// SPDX-License-Identifier: Apache-2.0
// The code that each process has mapped, as the kernel's side-band events tell it.
//
// Bounded: so many processes, so many mappings each and in all; the process that was
// heard of longest ago goes first. A process that ended stays for a while, so that
// its last stacks still find their files.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace igsdk {

struct MappedFile {
    uint32_t major = 0, minor = 0;
    uint64_t inode = 0, generation = 0;
    std::string path;
};

struct Mapping {
    uint64_t start, end, offset, time_ns;
    uint32_t protection;
    std::shared_ptr<const MappedFile> file;
};

struct TableLimits {
    size_t processes = 8192;
    size_t mappings_each = 4096;
    size_t mappings = 500'000;
    uint64_t keep_ended_ns = 30'000'000'000;
};

class MappingTable {
  public:
    explicit MappingTable(TableLimits limits = {}) : limits_(limits) {}

    void map(int32_t pid, Mapping mapping);
    void fork(int32_t parent, int32_t child, uint64_t time_ns);
    // What was mapped before the exec is gone; from here on everything is known.
    void exec(int32_t pid, uint64_t time_ns);
    void end(int32_t pid, uint64_t time_ns);
    void sweep(uint64_t now_ns);

    std::vector<Mapping> mappings(int32_t pid) const;
    // Whether all mappings of the process were seen, since its exec or fork.
    bool complete(int32_t pid) const;

    std::shared_ptr<const MappedFile> intern(MappedFile file);

    size_t processes() const { return processes_.size(); }
    size_t total() const { return total_; }
    uint64_t forgotten() const { return forgotten_; }

  private:
    using Mappings = std::vector<Mapping>; // sorted by start, disjoint
    struct Process {
        std::shared_ptr<Mappings> mappings = std::make_shared<Mappings>();
        std::list<int32_t>::iterator age;
        uint64_t exec_ns = 0, ended_ns = 0;
        bool complete = false;
    };

    Process &touch(int32_t pid);
    Mappings &own(Process &process);
    void replace(Process &process, std::shared_ptr<Mappings> mappings);
    void forget(int32_t pid);
    void shrink();
    void drop_unused_files();

    TableLimits limits_;
    std::unordered_map<int32_t, Process> processes_;
    std::list<int32_t> ages_; // least recently heard of first
    std::deque<std::pair<uint64_t, int32_t>> ended_;
    std::unordered_map<std::string, std::weak_ptr<const MappedFile>> files_;
    size_t total_ = 0, files_limit_ = 4096;
    uint64_t forgotten_ = 0;
};

} // namespace igsdk

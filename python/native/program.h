// SPDX-License-Identifier: Apache-2.0
// The loaded BPF program: its settings, its rows, and its links to libraries.
#pragma once

#include "abi.h"
#include "support.h"

#include <atomic>
#include <bpf/libbpf.h>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace igsdk {

// A call of the kernel or of libbpf that failed, with what libbpf had to say.
struct ProgramError : std::runtime_error {
    ProgramError(const std::string &what, int error) : std::runtime_error(what), error(error) {}
    int error;
};

using Settings = std::map<std::string, int64_t>;
using Texts = std::map<std::string, std::string>;

// How entry and return of a function are caught, best first.
enum class LinkMode { automatic, session, multi, single };

const char *name_of(LinkMode mode);

struct Site {
    uint64_t cookie;
    uint64_t offset;
};

// An array map, mapped into this process: reading a row is a plain load.
template <typename Row> class Rows {
  public:
    Rows() = default;
    Rows(const Rows &) = delete;
    Rows &operator=(const Rows &) = delete;
    ~Rows();
    void map(const bpf_map *map);
    Row *begin() const { return rows_; }
    Row &operator[](uint32_t slot) const { return rows_[slot]; }
    uint32_t size() const { return size_; }

  private:
    Row *rows_ = nullptr;
    size_t bytes_ = 0;
    uint32_t size_ = 0;
};

// The descriptors that hold the probes of one library; when the last copy of them
// is closed, the kernel removes the probes.
using Links = std::vector<Fd>;

class Program {
  public:
    Program(const std::string &object, const Settings &settings, const Texts &texts);
    ~Program();
    Program(const Program &) = delete;

    LinkMode mode() const { return mode_; }
    // Adds to `links`, also what there is when it throws. One by one takes its time: it
    // gives up with ECANCELED once `ended`.
    void attach(const std::string &path, const std::vector<Site> &sites, Links &links,
                const std::atomic<bool> &ended) const;
    int map_fd(const char *name) const;
    uint64_t global(const char *name) const;
    void stop_booking() const;
    std::string mappings(uint32_t pid) const;

    Rows<igsdk_account> accounts;
    Rows<igsdk_usage> usages;
    Rows<igsdk_process> processes;
    Rows<uint64_t> losses;
    Rows<uint32_t> reader_sleeps; // one

  private:
    struct Variable {
        void *address; // of the initial value
        size_t offset;
        size_t size;
    };

    void choose_programs(bool floor);
    void apply(const Settings &settings, const Texts &texts);
    void load();
    void prepare_rows();
    void attach_tracepoints(bool floor);
    Variable variable(const char *section, const std::string &name) const;
    const bpf_program *find(const char *name) const;
    void link_multi(Links &links, const char *program, const std::string &path,
                    const std::vector<Site> &sites, bool at_return) const;
    void link_single(Links &links, const char *program, const std::string &path,
                     const std::vector<Site> &sites, bool at_return,
                     const std::atomic<bool> &ended) const;

    bpf_object *object_ = nullptr;
    LinkMode mode_ = LinkMode::automatic;
    std::string prefix_ = "call";
    std::vector<bpf_link *> tracepoints_;
};

extern template class Rows<igsdk_account>;
extern template class Rows<igsdk_usage>;
extern template class Rows<igsdk_process>;
extern template class Rows<uint64_t>;
extern template class Rows<uint32_t>;

} // namespace igsdk

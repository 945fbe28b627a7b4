// SPDX-License-Identifier: Apache-2.0
// The loaded BPF program: its settings, its rows, and its links to libraries.
#pragma once

#include "abi.h"
#include "object.h"
#include "support.h"

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

namespace igsdk {

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

// The package's own object or a gadget image's: of all programs in it only those are loaded
// that this runtime attaches. `idle`: maps that it has no use for, which stay empty.
class Program {
  public:
    Program(const std::string &object, const Settings &settings, const Texts &texts,
            const std::vector<std::string> &idle);
    Program(const Program &) = delete;

    LinkMode mode() const { return mode_; }
    // Adds to `links`, also what there is when it throws. One by one takes its time: it
    // gives up with ECANCELED once `ended`.
    void attach(const std::string &path, const std::vector<Site> &sites, Links &links,
                const std::atomic<bool> &ended) const;
    int map_fd(const char *name) const;
    uint64_t global(const char *name) const;
    void stop_booking() const;

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

    LinkMode best_mode() const;
    void choose_programs(bool floor);
    void shrink(const std::vector<std::string> &idle);
    void apply(const Settings &settings, const Texts &texts);
    void prepare_rows();
    void attach_tracepoints(bool floor);
    Variable variable(const char *section, const std::string &name) const;
    bpf_program *program(const std::string &name) const;
    bpf_map *map(const char *name) const;
    int call_fd(const char *part) const;
    void link_multi(Links &links, const char *part, const std::string &path,
                    const std::vector<Site> &sites, bool at_return) const;
    void link_single(Links &links, const char *part, const std::string &path,
                     const std::vector<Site> &sites, bool at_return,
                     const std::atomic<bool> &ended) const;

    Object object_;
    LinkMode mode_ = LinkMode::automatic;
    std::string prefix_ = "call";
    std::vector<Link> tracepoints_;
};

extern template class Rows<igsdk_account>;
extern template class Rows<igsdk_usage>;
extern template class Rows<igsdk_process>;
extern template class Rows<uint64_t>;
extern template class Rows<uint32_t>;

} // namespace igsdk

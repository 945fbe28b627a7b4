// SPDX-License-Identifier: Apache-2.0
// What Python sees of the program, its reader and its links.
#include "captures.h"
#include "parts.h"
#include "reader.h"
#include "recycle.h"
#include "remover.h"
#include "stack_bindings.h"

#include <algorithm>
#include <bpf/bpf.h>
#include <iterator>
#include <poll.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace igsdk {
namespace {

template <typename Row> std::string copy_rows(const Rows<Row> &rows, uint64_t used) {
    auto count = std::min<uint64_t>(used, rows.size());
    return std::string(reinterpret_cast<const char *>(rows.begin()), count * sizeof(Row));
}

template <typename Item> py::bytes pack(const std::vector<Item> &items) {
    return py::bytes(reinterpret_cast<const char *>(items.data()), items.size() * sizeof(Item));
}

// One byte each, 0 or 1.
std::string flags_of(const std::vector<bool> &flags) {
    return std::string(flags.begin(), flags.end());
}

int64_t take(Settings &settings, const char *name, int64_t otherwise) {
    auto found = settings.find(name);
    return found == settings.end() ? otherwise : found->second;
}

class Tracer {
  public:
    Tracer(const std::string &object, Settings settings, const Texts &texts, MapWatch *watch,
           const std::vector<std::string> &idle)
        : program_(std::make_unique<Program>(object, settings, texts, idle)),
          mode_(program_->mode()) {
        Reader::Limits limits;
        limits.keep = static_cast<uint32_t>(take(settings, "keep_events", limits.keep));
        limits.events = static_cast<size_t>(take(settings, "kept_events", 1 << 20));
        limits.interval_ms = static_cast<int>(take(settings, "interval_ms", 20));
        reader_ = std::make_unique<Reader>(*program_, limits);
        captures_ =
            std::make_unique<Captures>(*program_, watch, reader_->ready(), limits.interval_ms);
    }
    ~Tracer() { close(); }

    std::string mode() const { return name_of(mode_); }

    uint32_t attach(const std::string &path,
                    const std::vector<std::pair<uint64_t, uint64_t>> &pairs) {
        std::vector<Site> sites;
        for (const auto &[cookie, offset] : pairs)
            sites.push_back({cookie, offset});
        Links links;
        try {
            program_->attach(path, sites, links, ended_);
            return keep(links);
        } catch (...) {
            if (mode_ == LinkMode::single)
                leave_behind(links);
            throw;
        }
    }

    // The kernel takes its time to remove probes: that happens in the background; where it
    // takes seconds, in a process of its own, so that not even our exit waits.
    void detach_all() {
        Links going;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            ended_ = true;
            going.swap(links_);
        }
        if (program_)
            program_->stop_booking();
        if (going.empty() || (mode_ == LinkMode::single && leave_behind(going)))
            return;
        join_detach();
        detaching_ = true;
        detacher_ = start_quiet_thread([this, links = std::move(going)]() mutable {
            links.clear();
            detaching_ = false;
        });
    }

    bool detaching() const {
        std::lock_guard<std::mutex> lock(mutex_);
        return detaching_ || std::any_of(removers_.begin(), removers_.end(), is_alive);
    }

    // Ends the run; returns once no probe is left that goes quickly.
    void close() {
        detach_all();
        stop_sweep();
        join_detach();
        captures_.reset();
        reader_.reset();
        program_.reset();
    }

    // Adds to what is said of a process; a fork or an earlier call may have said something.
    void set_pid(uint32_t pid, uint32_t flags) {
        uint32_t before = 0;
        if (bpf_map_lookup_elem(open_program().map_fd("pids"), &pid, &before) == 0)
            flags |= before;
        if (bpf_map_update_elem(open_program().map_fd("pids"), &pid, &flags, BPF_ANY))
            throw ProgramError("noting a process", errno);
    }

    void keep_mount_namespace(uint64_t inode) {
        uint32_t one = 1;
        int map = open_program().map_fd("gadget_mntns_filter_map");
        if (bpf_map_update_elem(map, &inode, &one, BPF_ANY))
            throw ProgramError("noting a mount namespace", errno);
    }

    void recycle(const std::vector<uint32_t> &slots) {
        Captures &captures = open_captures();
        for (uint32_t slot : slots)
            if (slot < program_->processes.size() && program_->processes[slot].ended)
                captures.table().forget_process(program_->processes[slot].instance);
        recycle_processes(*program_, slots);
    }

    std::string recycle_accounts(const std::string &accounts) const {
        std::vector<AccountSlot> slots;
        for (uint64_t account : words_of(accounts))
            slots.push_back({static_cast<uint32_t>(account >> 32), static_cast<uint32_t>(account)});
        return flags_of(igsdk::recycle_accounts(open_program(), slots));
    }
    std::string remembers(const std::string &accounts) const {
        return flags_of(open_reader().remembers(words_of(accounts)));
    }

    // First the events, so that their stacks are in by then.
    void flush() {
        open_reader().flush();
        open_captures().drain();
    }

    // Starts a sweep of what ended processes and contexts left, unless one runs.
    void sweep() {
        if (sweeping_)
            return;
        stop_sweep();
        sweeping_ = true;
        sweep_stop_ = false;
        sweeper_ = start_quiet_thread([this] {
            swept_ += sweep_live(*program_, sweep_stop_);
            sweeping_ = false;
        });
    }

    Program &open_program() const {
        if (!program_)
            throw ProgramError("using a tracer that is closed", EBADF);
        return *program_;
    }
    Reader &open_reader() const {
        open_program();
        return *reader_;
    }
    Captures &open_captures() const {
        open_program();
        return *captures_;
    }
    uint64_t swept() const { return swept_; }

  private:
    bool leave_behind(Links &links) {
        Fd remover = links.empty() ? Fd() : close_elsewhere(links);
        if (!remover)
            return false;
        std::lock_guard<std::mutex> lock(mutex_);
        removers_.push_back(std::move(remover));
        return true;
    }
    static bool is_alive(const Fd &process) {
        pollfd ended{process.get(), POLLIN, 0};
        return poll(&ended, 1, 0) == 0;
    }
    uint32_t keep(Links &links) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (ended_)
            throw ProgramError("attaching after the end", ECANCELED);
        std::move(links.begin(), links.end(), std::back_inserter(links_));
        return ++last_library_;
    }
    void join_detach() {
        if (detacher_.joinable())
            detacher_.join();
    }
    void stop_sweep() {
        sweep_stop_ = true;
        if (sweeper_.joinable())
            sweeper_.join();
    }

    std::unique_ptr<Program> program_;
    LinkMode mode_; // known after the end too
    std::unique_ptr<Reader> reader_;
    std::unique_ptr<Captures> captures_;
    mutable std::mutex mutex_;
    Links links_;
    std::vector<Fd> removers_; // processes that remove probes
    std::atomic<bool> ended_{false};
    uint32_t last_library_ = 0;
    std::thread detacher_, sweeper_;
    std::atomic<bool> detaching_{false}, sweeping_{false};
    std::atomic<bool> sweep_stop_{false};
    std::atomic<uint64_t> swept_{0};
};

// What a function of the tracer gives, as bytes; others may use Python while it waits.
template <typename Give> auto giving(Give give) {
    return [give](const Tracer &tracer) {
        std::string given;
        {
            py::gil_scoped_release unlocked;
            given = give(tracer);
        }
        return py::bytes(given);
    };
}

py::dict peak_dict(const Tracer &tracer) {
    Reader::Peak peak;
    {
        py::gil_scoped_release unlocked;
        peak = tracer.open_reader().peak();
    }
    py::dict result;
    result["bytes"] = peak.bytes;
    result["time"] = peak.time;
    result["held"] = pack(peak.held);
    result["groups"] = pack(peak.groups);
    return result;
}

py::object state_at(const Tracer &tracer, uint64_t time, uint32_t tid) {
    bool known = false;
    std::vector<Held> held;
    {
        py::gil_scoped_release unlocked;
        held = tracer.open_reader().state_at(time, tid, known);
    }
    return known ? py::object(pack(held)) : py::object(py::none());
}

// Sizes and offsets as this extension was compiled with, for the test of _abi.py.
py::dict layouts() {
    py::dict sizes;
    sizes["account"] = sizeof(igsdk_account);
    sizes["usage"] = sizeof(igsdk_usage);
    sizes["process"] = sizeof(igsdk_process);
    sizes["event"] = sizeof(igsdk_event);
    sizes["capture"] = sizeof(igsdk_capture);
    sizes["python_frame"] = sizeof(igsdk_python_frame);
    sizes["code"] = sizeof(igsdk_code);
    sizes["class"] = sizeof(igsdk_class);
    sizes["python"] = sizeof(igsdk_python);
    sizes["space"] = sizeof(igsdk_space);
    sizes["template_key"] = sizeof(igsdk_template_key);
    sizes["template"] = sizeof(igsdk_template);
    sizes["device"] = sizeof(igsdk_device);
    sizes["mapping"] = sizeof(igsdk_mapping);
    sizes["kept_event"] = sizeof(KeptEvent);
    sizes["held"] = sizeof(Held);
    sizes["group_peak"] = sizeof(GroupPeak);
    sizes["calls"] = static_cast<size_t>(IGSDK_CALL_COUNT);
    sizes["losses"] = static_cast<size_t>(IGSDK_LOSS_COUNT);
    return sizes;
}

} // namespace
} // namespace igsdk

void register_tracer(py::module_ &m) {
    using namespace igsdk;
    static py::exception<ProgramError> error(m, "ProgramError", PyExc_OSError);
    py::register_exception_translator([](std::exception_ptr pointer) {
        try {
            if (pointer)
                std::rethrow_exception(pointer);
        } catch (const ProgramError &e) {
            py::tuple arguments = py::make_tuple(e.error, e.what());
            PyErr_SetObject(error.ptr(), arguments.ptr());
        }
    });
    using Unlocked = py::call_guard<py::gil_scoped_release>;
    py::class_<Tracer> tracer(m, "Tracer");
    define_stack_methods(
        tracer, [](Tracer &t) -> StackTable & { return t.open_captures().table(); },
        [](Tracer &t) { t.open_captures().drain(); });
    tracer
        .def(py::init([](const py::bytes &object, Settings settings, const Texts &texts,
                         MapWatch *watch, const std::vector<std::string> &idle) {
                 std::string bytes = object;
                 py::gil_scoped_release unlocked;
                 return std::make_unique<Tracer>(bytes, std::move(settings), texts, watch, idle);
             }),
             py::arg("object"), py::arg("settings"), py::arg("texts") = Texts{},
             py::arg("watch") = nullptr, py::arg("idle") = std::vector<std::string>{},
             py::keep_alive<1, 5>())
        .def_property_readonly("mode", &Tracer::mode)
        .def_property_readonly("detaching", &Tracer::detaching)
        .def_property_readonly("swept", &Tracer::swept)
        .def_property_readonly("account_slots",
                               [](const Tracer &t) { return t.open_program().accounts.size(); })
        .def_property_readonly("boot",
                               [](const Tracer &t) { return t.open_program().global("boot"); })
        .def_property_readonly(
            "fresh_stacks",
            [](const Tracer &t) { return t.open_program().global("next_stack") - 1; })
        .def_property_readonly("epoch",
                               [](const Tracer &t) { return t.open_program().global("epoch"); })
        .def("attach", &Tracer::attach, py::arg("path"), py::arg("sites"), Unlocked())
        .def("detach_all", &Tracer::detach_all, Unlocked())
        .def("close", &Tracer::close, Unlocked())
        .def("set_pid", &Tracer::set_pid)
        .def("keep_mount_namespace", &Tracer::keep_mount_namespace)
        .def("recycle", &Tracer::recycle, Unlocked())
        .def("recycle_accounts",
             [](const Tracer &t, const py::bytes &accounts) {
                 std::string given = accounts;
                 return giving([&](const Tracer &o) { return o.recycle_accounts(given); })(t);
             })
        .def("remembers",
             [](const Tracer &t, const py::bytes &accounts) {
                 std::string given = accounts;
                 return giving([&](const Tracer &o) { return o.remembers(given); })(t);
             })
        .def("sweep", &Tracer::sweep, Unlocked())
        .def("fileno", [](const Tracer &t) { return t.open_reader().fileno(); })
        .def("flush", &Tracer::flush, Unlocked())
        .def("take_events", giving([](const Tracer &t) { return t.open_reader().take_events(); }))
        .def("accounts", giving([](const Tracer &t) {
                 const Program &p = t.open_program();
                 return copy_rows(p.accounts, p.global("next_account"));
             }))
        .def("usages", giving([](const Tracer &t) {
                 const Program &p = t.open_program();
                 return copy_rows(p.usages, p.global("next_usage"));
             }))
        .def("processes", giving([](const Tracer &t) {
                 const Program &p = t.open_program();
                 return copy_rows(p.processes, p.global("next_process"));
             }))
        .def("losses",
             [](const Tracer &t) {
                 const Program &p = t.open_program();
                 return std::vector<uint64_t>(p.losses.begin(),
                                              p.losses.begin() + IGSDK_LOSS_COUNT);
             })
        .def("reader_losses",
             [](const Tracer &t) {
                 return std::make_pair(t.open_reader().lost_events(),
                                       t.open_captures().table().lost());
             })
        .def("peak", &peak_dict)
        .def("state_at", &state_at, py::arg("time"), py::arg("tid"))
        .def("devices", [](const Tracer &t) { return pack(read_devices(t.open_program())); });
    m.def("layouts", &layouts);
}

// SPDX-License-Identifier: Apache-2.0
#include "watch.h"
#include "parts.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <linux/perf_event.h>
#include <poll.h>
#include <pybind11/stl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

namespace py = pybind11;

namespace igsdk {
namespace {

constexpr size_t kDataPages = 32; // of each CPU; a power of two
constexpr size_t kMaxFresh = 4096;

} // namespace

// One side-band record, parsed.
struct SideBandRecord {
    uint32_t type;
    bool exec;
    bool wanted;
    int32_t pid, tid, parent;
    uint64_t time_ns, lost;
    Mapping mapping;
    MappedFile file;
};

class SideBandRing {
  public:
    explicit SideBandRing(int cpu) {
        perf_event_attr attr{};
        attr.size = sizeof(attr);
        attr.type = PERF_TYPE_SOFTWARE;
        attr.config = PERF_COUNT_SW_DUMMY;
        attr.sample_type = PERF_SAMPLE_TIME;
        attr.mmap = attr.mmap2 = 1;
        attr.comm = attr.comm_exec = 1;
        attr.task = 1;
        attr.sample_id_all = 1;
        attr.use_clockid = 1;
        attr.clockid = CLOCK_BOOTTIME;
        attr.watermark = 1;
        attr.wakeup_watermark = 1;
        fd_.reset(static_cast<int>(
            ::syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)));
        if (!fd_)
            throw_errno("perf_event_open");
        page_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
        void *area = ::mmap(nullptr, (1 + kDataPages) * page_, PROT_READ | PROT_WRITE, MAP_SHARED,
                            fd_.get(), 0);
        if (area == MAP_FAILED)
            throw_errno("mmap of a perf ring");
        control_ = static_cast<perf_event_mmap_page *>(area);
    }
    SideBandRing(const SideBandRing &) = delete;
    SideBandRing &operator=(const SideBandRing &) = delete;
    ~SideBandRing() {
        if (control_)
            ::munmap(control_, (1 + kDataPages) * page_);
    }

    int fd() const { return fd_.get(); }

    template <typename Visit> void drain(Visit visit) {
        uint64_t head = __atomic_load_n(&control_->data_head, __ATOMIC_ACQUIRE);
        uint64_t tail = control_->data_tail;
        while (tail < head) {
            perf_event_header header;
            copy(tail, &header, sizeof(header));
            if (header.size < sizeof(header))
                break;
            record_.resize(header.size);
            copy(tail, record_.data(), header.size);
            visit(header, record_);
            tail += header.size;
        }
        __atomic_store_n(&control_->data_tail, head, __ATOMIC_RELEASE);
    }

  private:
    void copy(uint64_t from, void *into, size_t size) const {
        const char *data = reinterpret_cast<const char *>(control_) + page_;
        size_t ring = kDataPages * page_, at = from % ring, first = std::min(size, ring - at);
        std::memcpy(into, data + at, first);
        std::memcpy(static_cast<char *>(into) + first, data, size - first);
    }

    Fd fd_;
    size_t page_ = 0;
    perf_event_mmap_page *control_ = nullptr;
    std::string record_;
};

namespace {

using Record = SideBandRecord;

template <typename T> T field(const std::string &record, size_t at) {
    T value{};
    if (at + sizeof(T) <= record.size())
        std::memcpy(&value, record.data() + at, sizeof(T));
    return value;
}

// Offsets are those of struct perf_event_header and the record bodies in perf_event.h.
void parse_mapping(const std::string &bytes, Record &record) {
    uint64_t start = field<uint64_t>(bytes, 16);
    record.mapping.start = start;
    record.mapping.end = start + field<uint64_t>(bytes, 24);
    record.mapping.offset = field<uint64_t>(bytes, 32);
    record.mapping.time_ns = record.time_ns;
    record.mapping.protection = field<uint32_t>(bytes, 64);
    record.file.major = field<uint32_t>(bytes, 40);
    record.file.minor = field<uint32_t>(bytes, 44);
    record.file.inode = field<uint64_t>(bytes, 48);
    record.file.generation = field<uint64_t>(bytes, 56);
    if (bytes.size() > 72)
        record.file.path.assign(bytes.data() + 72, ::strnlen(bytes.data() + 72, bytes.size() - 72));
}

Record parse(const perf_event_header &header, const std::string &bytes) {
    Record record{};
    record.type = header.type;
    record.exec = header.misc & PERF_RECORD_MISC_COMM_EXEC;
    record.pid = field<int32_t>(bytes, 8);
    // Every record ends with its sample id, of which we asked for the time.
    record.time_ns = field<uint64_t>(bytes, bytes.size() - sizeof(uint64_t));
    if (header.type == PERF_RECORD_FORK || header.type == PERF_RECORD_EXIT) {
        record.parent = field<int32_t>(bytes, 12);
        record.tid = field<int32_t>(bytes, 16);
    } else if (header.type == PERF_RECORD_LOST) {
        record.lost = field<uint64_t>(bytes, 16);
    } else {
        record.tid = field<int32_t>(bytes, 12);
    }
    if (header.type == PERF_RECORD_MMAP2)
        parse_mapping(bytes, record);
    return record;
}

std::vector<int> online_cpus() {
    std::vector<int> cpus;
    std::ifstream file("/sys/devices/system/cpu/online");
    for (std::string range; std::getline(file, range, ',');) {
        int first = std::stoi(range), last = first;
        size_t dash = range.find('-');
        if (dash != std::string::npos)
            last = std::stoi(range.substr(dash + 1));
        for (int cpu = first; cpu <= last; cpu++)
            cpus.push_back(cpu);
    }
    return cpus;
}

} // namespace

MapWatch::MapWatch(std::vector<std::string> prefixes, size_t processes, double keep_ended)
    : prefixes_(std::move(prefixes)), ready_(make_eventfd()), wake_(make_eventfd()) {
    TableLimits limits;
    limits.processes = processes;
    limits.keep_ended_ns = static_cast<uint64_t>(keep_ended * 1e9);
    table_ = MappingTable(limits);
    for (int cpu : online_cpus())
        rings_.push_back(std::make_unique<SideBandRing>(cpu));
    if (rings_.empty())
        throw_errno("no CPU is online in /sys", ENODEV);
    thread_ = start_quiet_thread([this] { run(); });
}

MapWatch::~MapWatch() { close(); }

std::vector<Seen> MapWatch::take_libraries() {
    std::lock_guard<std::mutex> guard(lock_);
    clear_eventfd(ready_);
    return std::exchange(fresh_, {});
}

std::vector<Seen> MapWatch::mappings(int32_t pid) {
    // What the rings hold already was mapped before this call.
    catch_up();
    std::vector<Seen> result;
    for (Mapping &mapping : known(pid))
        result.push_back({pid, pid, std::move(mapping)});
    return result;
}

std::vector<Mapping> MapWatch::known(int32_t pid) {
    std::lock_guard<std::mutex> guard(lock_);
    return table_.mappings(pid);
}

bool MapWatch::complete(int32_t pid) {
    std::lock_guard<std::mutex> guard(lock_);
    return table_.complete(pid);
}

std::vector<std::pair<std::string, uint64_t>> MapWatch::counts() {
    std::lock_guard<std::mutex> guard(lock_);
    return {{"lost", lost_},
            {"untaken", untaken_},
            {"forgotten", table_.forgotten()},
            {"processes", table_.processes()},
            {"mappings", table_.total()}};
}

uint64_t MapWatch::lost() {
    std::lock_guard<std::mutex> guard(lock_);
    return lost_ + untaken_;
}

void MapWatch::close() {
    stopping_ = true;
    signal_eventfd(wake_);
    if (thread_.joinable())
        thread_.join();
    std::lock_guard<std::mutex> guard(drain_lock_);
    rings_.clear();
}

void MapWatch::listen(MapListener *listener) {
    std::lock_guard<std::mutex> draining(drain_lock_);
    listener_ = listener;
}

void MapWatch::catch_up() {
    std::lock_guard<std::mutex> draining(drain_lock_);
    drain();
}

void MapWatch::settled(const std::function<void()> &body) {
    std::lock_guard<std::mutex> draining(drain_lock_);
    drain();
    body();
}

void MapWatch::run() {
    std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
    for (const auto &ring : rings_)
        polled.push_back({ring->fd(), POLLIN, 0});
    while (!stopping_) {
        ::poll(polled.data(), polled.size(), -1);
        // A CPU that went away says POLLHUP for ever.
        for (pollfd &entry : polled)
            if (entry.revents & (POLLHUP | POLLERR))
                entry.fd = -1;
        catch_up();
    }
}

// A process moves between CPUs, so its records lie in several rings: in order of time
// they make sense. The table is locked only while parsed records are booked.
void MapWatch::drain() {
    std::vector<Record> records;
    auto keep = [&records](const perf_event_header &header, const std::string &bytes) {
        records.push_back(parse(header, bytes));
    };
    for (const auto &ring : rings_)
        ring->drain(keep);
    std::stable_sort(records.begin(), records.end(),
                     [](const Record &a, const Record &b) { return a.time_ns < b.time_ns; });
    {
        std::lock_guard<std::mutex> guard(lock_);
        for (Record &record : records)
            book(record);
        table_.sweep(clock_ns(CLOCK_BOOTTIME));
    }
    if (listener_)
        for (const Record &record : records)
            tell(record);
}

void MapWatch::book(Record &record) {
    switch (record.type) {
    case PERF_RECORD_MMAP2:
        return book_mapping(record);
    case PERF_RECORD_COMM:
        if (record.exec)
            table_.exec(record.pid, record.time_ns);
        return;
    case PERF_RECORD_FORK:
        // A new thread is a fork of its own process.
        if (record.pid != record.parent)
            table_.fork(record.parent, record.pid, record.time_ns);
        return;
    case PERF_RECORD_EXIT:
        if (record.pid == record.tid)
            table_.end(record.pid, record.time_ns);
        return;
    case PERF_RECORD_LOST:
        lost_ += record.lost;
        return;
    }
}

void MapWatch::book_mapping(Record &record) {
    // A task that our PID namespace doesn't know is 0 or -1.
    if (record.pid <= 0)
        return;
    record.wanted = has_prefix(plain_basename(record.file.path), prefixes_);
    record.mapping.file = table_.intern(std::move(record.file));
    if (record.wanted)
        keep_fresh(record);
    table_.map(record.pid, record.mapping);
}

void MapWatch::keep_fresh(const Record &record) {
    if (fresh_.size() >= kMaxFresh) {
        untaken_++;
        return;
    }
    fresh_.push_back({record.pid, record.tid, record.mapping});
    signal_eventfd(ready_);
}

void MapWatch::tell(const Record &record) {
    switch (record.type) {
    case PERF_RECORD_MMAP2:
        if (record.mapping.file)
            listener_->mapped(record.pid, record.mapping, record.wanted);
        return;
    case PERF_RECORD_COMM:
        if (record.exec)
            listener_->executed(record.pid);
        return;
    case PERF_RECORD_FORK:
        if (record.pid != record.parent)
            listener_->forked(record.parent, record.pid);
        return;
    case PERF_RECORD_EXIT:
        if (record.pid == record.tid)
            listener_->ended(record.pid);
        return;
    case PERF_RECORD_LOST:
        listener_->lost();
        return;
    }
}

namespace {

template <typename T, T Mapping::*member> T of_mapping(const Seen &seen) {
    return seen.mapping.*member;
}

template <typename T, T MappedFile::*member> T of_file(const Seen &seen) {
    return (*seen.mapping.file).*member;
}

} // namespace
} // namespace igsdk

void register_watch(py::module_ &m) {
    using namespace igsdk;
    using Released = py::call_guard<py::gil_scoped_release>;
    py::class_<Seen>(m, "Mapping")
        .def_readonly("pid", &Seen::pid)
        .def_readonly("tid", &Seen::tid)
        .def_property_readonly("time_ns", &of_mapping<uint64_t, &Mapping::time_ns>)
        .def_property_readonly("start", &of_mapping<uint64_t, &Mapping::start>)
        .def_property_readonly("end", &of_mapping<uint64_t, &Mapping::end>)
        .def_property_readonly("offset", &of_mapping<uint64_t, &Mapping::offset>)
        .def_property_readonly("protection", &of_mapping<uint32_t, &Mapping::protection>)
        .def_property_readonly("major", &of_file<uint32_t, &MappedFile::major>)
        .def_property_readonly("minor", &of_file<uint32_t, &MappedFile::minor>)
        .def_property_readonly("inode", &of_file<uint64_t, &MappedFile::inode>)
        .def_property_readonly("generation", &of_file<uint64_t, &MappedFile::generation>)
        .def_property_readonly("path",
                               [](const Seen &seen) { return file_text(seen.mapping.file->path); });
    py::class_<MapWatch>(m, "MapWatch")
        .def(py::init<std::vector<std::string>, size_t, double>(),
             py::arg("prefixes") = std::vector<std::string>{"libcuda.so"},
             py::arg("processes") = 8192, py::arg("keep_ended") = 30.0)
        .def("fileno", &MapWatch::fileno)
        .def("take_libraries", &MapWatch::take_libraries)
        .def("mappings", &MapWatch::mappings, py::arg("pid"), Released())
        .def("complete", &MapWatch::complete, py::arg("pid"))
        .def("counts",
             [](MapWatch &watch) {
                 py::dict result;
                 for (const auto &[name, value] : watch.counts())
                     result[name.c_str()] = value;
                 return result;
             })
        .def_property_readonly("lost", &MapWatch::lost)
        .def("close", &MapWatch::close, Released());
}

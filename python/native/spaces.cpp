// SPDX-License-Identifier: Apache-2.0
#include "spaces.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

namespace igsdk {
namespace {

constexpr uint32_t kExecutable = 4; // PROT_EXEC

// Of memory without a file nobody can tell: compilers at run time change it all the time.
bool same_code(const Region &a, const Region &b) {
    return a.file == b.file && (!a.file || a.start - a.offset == b.start - b.offset);
}

// Opens without side effects: a device's driver is never asked.
Fd open_regular(const std::string &path) {
    Fd place(::open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat status;
    if (!place || ::fstat(place.get(), &status) != 0 || !S_ISREG(status.st_mode))
        return Fd();
    std::string again = "/proc/self/fd/" + std::to_string(place.get());
    return Fd(::open(again.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

// File systems whose files have another device number in a mapping than in stat.
bool hides_devices(int fd) {
    struct statfs status;
    return ::fstatfs(fd, &status) == 0 &&
           (status.f_type == OVERLAYFS_SUPER_MAGIC || status.f_type == BTRFS_SUPER_MAGIC);
}

bool is_mapped_file(int fd, const MappedFile &file) {
    struct stat status;
    if (::fstat(fd, &status) != 0 || status.st_ino != file.inode)
        return false;
    return status.st_dev == makedev(file.major, file.minor) || hides_devices(fd);
}

// What the mapping itself refers to, whatever has become of its path; else by path, as
// the process sees it and as we do, if that is the same file.
Fd open_mapped(uint32_t pid, const Mapping &mapping) {
    char range[64];
    std::snprintf(range, sizeof(range), "/map_files/%" PRIx64 "-%" PRIx64, mapping.start,
                  mapping.end);
    std::string process = "/proc/" + std::to_string(pid);
    if (Fd fd = open_regular(process + range))
        return fd;
    const std::string &path = mapping.file->path;
    for (const std::string &candidate : {process + "/root" + path, path})
        if (Fd fd = open_regular(candidate); fd && is_mapped_file(fd.get(), *mapping.file))
            return fd;
    return Fd();
}

// One line of /proc/PID/maps: range, rights, offset, device, inode, name.
bool parse_line(const std::string &line, Mapping &mapping) {
    char rights[5] = {};
    unsigned major = 0, minor = 0;
    int name = 0;
    MappedFile file;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n",
                    &mapping.start, &mapping.end, rights, &mapping.offset, &major, &minor,
                    &file.inode, &name) < 7)
        return false;
    mapping.protection = rights[2] == 'x' ? kExecutable : 0;
    file.major = major;
    file.minor = minor;
    file.path = line.substr(std::min(static_cast<size_t>(name), line.size()));
    mapping.file = std::make_shared<const MappedFile>(std::move(file));
    return true;
}

std::vector<Mapping> read_maps(uint32_t pid) {
    std::vector<Mapping> mappings;
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);) {
        Mapping mapping{};
        if (parse_line(line, mapping) && (mapping.protection & kExecutable))
            mappings.push_back(std::move(mapping));
    }
    return mappings;
}

} // namespace

const Region *Space::find(uint64_t address) const {
    auto above =
        std::upper_bound(regions_.begin(), regions_.end(), address,
                         [](uint64_t value, const Region &region) { return value < region.start; });
    if (above == regions_.begin() || (--above)->end <= address)
        return nullptr;
    return &*above;
}

void Space::put(Region region) {
    auto first = std::find_if(regions_.begin(), regions_.end(),
                              [&](const Region &r) { return r.end > region.start; });
    auto last =
        std::find_if(first, regions_.end(), [&](const Region &r) { return r.start >= region.end; });
    std::vector<Region> kept;
    for (auto old = first; old != last; ++old) {
        if (!same_code(*old, region))
            generation_++;
        if (old->start < region.start) {
            kept.push_back(*old);
            kept.back().end = region.start;
        }
        if (old == last - 1) // and what is put stands before what sticks out above
            kept.push_back(region);
        if (old->end > region.end) {
            kept.push_back(*old);
            kept.back().offset += region.end - old->start;
            kept.back().start = region.end;
        }
    }
    if (first == last)
        kept.push_back(std::move(region));
    auto at = regions_.erase(first, last);
    regions_.insert(at, std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
}

Spaces::Spaces(MapWatch *watch, Limits limits) : watch_(watch), limits_(limits) {
    if (watch_)
        watch_->listen(this);
}

Spaces::~Spaces() {
    if (watch_)
        watch_->listen(nullptr);
}

void Spaces::settled(const std::function<void()> &body) {
    if (watch_)
        return watch_->settled(body);
    std::lock_guard<std::mutex> guard(settle_lock_);
    body();
}

void Spaces::admit(uint32_t pid) {
    settled([this, pid] {
        if (!is_known(pid))
            load(pid);
    });
}

bool Spaces::is_known(uint32_t pid) {
    std::lock_guard<std::mutex> guard(lock_);
    auto found = processes_.find(pid);
    if (found == processes_.end())
        return false;
    // who maps without end makes events get lost: not each of them is worth a look
    const Process &process = found->second;
    return !process.stale || process.next_read_ns > clock_ns(CLOCK_MONOTONIC);
}

std::shared_ptr<const Space> Spaces::snapshot(uint32_t pid) {
    if (watch_)
        watch_->catch_up();
    if (!is_known(pid))
        admit(pid);
    std::lock_guard<std::mutex> guard(lock_);
    return touch(pid).space;
}

uint32_t Spaces::generation(uint32_t pid) {
    std::lock_guard<std::mutex> guard(lock_);
    auto found = processes_.find(pid);
    return found == processes_.end() ? 0 : found->second.space->generation();
}

bool Spaces::reread(uint32_t pid) {
    std::shared_ptr<const Space> before = snapshot(pid);
    {
        std::lock_guard<std::mutex> guard(lock_);
        Process &process = touch(pid);
        if (process.ended_ns || process.next_read_ns > clock_ns(CLOCK_MONOTONIC))
            return false;
    }
    settled([this, pid] { load(pid); });
    std::shared_ptr<const Space> after = snapshot(pid);
    auto same = [](const Region &a, const Region &b) {
        return a.start == b.start && a.end == b.end && same_code(a, b);
    };
    return !std::equal(before->regions().begin(), before->regions().end(), after->regions().begin(),
                       after->regions().end(), same);
}

// Reads all that the process has mapped; of one that has ended, what the watch saw.
void Spaces::load(uint32_t pid) {
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    std::vector<Mapping> mappings = read_maps(pid);
    bool gone = mappings.empty();
    if (gone && watch_)
        mappings = watch_->known(static_cast<int32_t>(pid));
    std::vector<Region> regions;
    for (const Mapping &mapping : mappings)
        if (regions.size() < limits_.regions)
            regions.push_back(open_region(pid, mapping));
    std::lock_guard<std::mutex> guard(lock_);
    Process &process = touch(pid);
    uint64_t end = clock_ns(CLOCK_MONOTONIC);
    process.next_read_ns =
        std::max(begin + limits_.reread_ns, end + limits_.reread_share * (end - begin));
    process.stale = false;
    // what is known of a process that is gone has files that can't be opened any more
    if (!regions.empty() && (!gone || process.space->regions().empty()))
        replace(process, std::move(regions));
}

void Spaces::replace(Process &process, std::vector<Region> regions) {
    auto fresh = std::make_shared<Space>();
    fresh->pid_ = process.space->pid_;
    fresh->generation_ = process.space->generation_;
    bool other = false;
    for (const Region &region : regions) {
        const Region *old = process.space->find(region.start);
        other |= old && !same_code(*old, region);
    }
    fresh->generation_ += other;
    fresh->regions_ = std::move(regions);
    set_space(process, std::move(fresh));
}

// The number of all regions is bounded: a process that has thousands may have thousands of
// children.
void Spaces::set_space(Process &process, std::shared_ptr<Space> space) {
    all_regions_ += space->regions_.size();
    all_regions_ -= process.space->regions_.size();
    process.space = std::move(space);
    make_room();
}

void Spaces::put(Process &process, Region region) {
    // Whoever holds a snapshot keeps it as it is.
    if (process.space.use_count() > 1)
        process.space = std::make_shared<Space>(*process.space);
    all_regions_ -= process.space->regions_.size();
    process.space->put(std::move(region));
    all_regions_ += process.space->regions_.size();
    make_room();
}

// Takes out those longest unheard of; who was touched last stays.
void Spaces::make_room() {
    while (processes_.size() > limits_.processes ||
           (all_regions_ > limits_.all_regions && processes_.size() > 1))
        forget(ages_.front());
}

Region Spaces::open_region(uint32_t pid, const Mapping &mapping) {
    Region region{mapping.start, mapping.end, mapping.offset, nullptr, mapping.file->path};
    const MappedFile &file = *mapping.file;
    if (region.name == "[vdso]") {
        region.file = files_.vdso();
    } else if (file.inode != 0) {
        region.file = files_.known(file.major, file.minor, file.inode);
        if (!region.file)
            region.file = files_.add(open_mapped(pid, mapping), file.path);
    }
    if (region.name == "//anon") // as perf's events call it
        region.name.clear();
    return region;
}

Spaces::Process &Spaces::touch(uint32_t pid) {
    auto [found, fresh] = processes_.try_emplace(pid);
    Process &process = found->second;
    if (fresh) {
        process.age = ages_.insert(ages_.end(), pid);
        process.space = std::make_shared<Space>();
        process.space->pid_ = pid;
        forget_some();
    } else {
        ages_.splice(ages_.end(), ages_, process.age);
    }
    return process;
}

// Those that ended a while ago; if there are too many, those longest unheard of.
void Spaces::forget_some() {
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    while (!ended_.empty() && ended_.front().first + limits_.keep_ended_ns < now) {
        auto [time, pid] = ended_.front();
        ended_.pop_front();
        auto found = processes_.find(pid);
        if (found != processes_.end() && found->second.ended_ns == time)
            forget(pid);
    }
    make_room();
}

void Spaces::mapped(int32_t pid, const Mapping &mapping, bool wanted) {
    auto number = static_cast<uint32_t>(pid);
    if (!(mapping.protection & kExecutable))
        return;
    bool known = is_known(number);
    if (!known && !wanted)
        return;
    if (!known)
        load(number);
    Region region = open_region(number, mapping);
    std::lock_guard<std::mutex> guard(lock_);
    Process &process = touch(number);
    if (process.space->regions_.size() >= limits_.regions)
        return;
    put(process, std::move(region));
}

// A child has what its parent had, until it says otherwise.
void Spaces::forked(int32_t parent, int32_t child) {
    std::lock_guard<std::mutex> guard(lock_);
    auto inherited = processes_.find(static_cast<uint32_t>(parent));
    auto number = static_cast<uint32_t>(child);
    if (inherited == processes_.end()) {
        forget(number); // a process of that number has ended before
        return;
    }
    auto space = std::make_shared<Space>(*inherited->second.space);
    bool stale = inherited->second.stale;
    space->pid_ = number;
    space->generation_++;
    Process &process = touch(number);
    process.stale = stale;
    process.ended_ns = 0;
    set_space(process, std::move(space));
}

void Spaces::executed(int32_t pid) {
    std::lock_guard<std::mutex> guard(lock_);
    auto found = processes_.find(static_cast<uint32_t>(pid));
    if (found == processes_.end())
        return;
    auto empty = std::make_shared<Space>();
    empty->pid_ = static_cast<uint32_t>(pid);
    empty->generation_ = found->second.space->generation_ + 1;
    touch(found->first);
    set_space(found->second, std::move(empty));
}

void Spaces::ended(int32_t pid) {
    std::lock_guard<std::mutex> guard(lock_);
    auto found = processes_.find(static_cast<uint32_t>(pid));
    if (found == processes_.end())
        return;
    found->second.ended_ns = clock_ns(CLOCK_MONOTONIC);
    ended_.emplace_back(found->second.ended_ns, found->first);
    forget_some();
}

// Of those whose end nobody told: without a watch, or when events were lost.
void Spaces::note_ends() {
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    for (auto &[pid, process] : processes_)
        if (!process.ended_ns && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) {
            process.ended_ns = now;
            ended_.emplace_back(now, pid);
        }
}

size_t Spaces::close_unused_files() {
    if (watch_)
        watch_->catch_up();
    {
        std::lock_guard<std::mutex> guard(lock_);
        note_ends();
        forget_some();
    }
    return files_.close_unused(limits_.keep_files_ns);
}

void Spaces::lost() {
    std::lock_guard<std::mutex> guard(lock_);
    for (auto &[pid, process] : processes_)
        process.stale = process.ended_ns == 0;
}

void Spaces::forget(uint32_t pid) {
    auto found = processes_.find(pid);
    if (found == processes_.end())
        return;
    all_regions_ -= found->second.space->regions_.size();
    ages_.erase(found->second.age);
    processes_.erase(found);
}

} // namespace igsdk

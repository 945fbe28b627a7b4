// SPDX-License-Identifier: Apache-2.0
#include "mapping_table.h"

#include <algorithm>
#include <utility>

namespace igsdk {
namespace {

// Takes [start, end) out of a sorted list; what sticks out on either side stays.
void cut(std::vector<Mapping> &list, uint64_t start, uint64_t end) {
    std::vector<Mapping> kept;
    auto first =
        std::find_if(list.begin(), list.end(), [start](const Mapping &m) { return m.end > start; });
    auto last = std::find_if(first, list.end(), [end](const Mapping &m) { return m.start >= end; });
    for (auto old = first; old != last; ++old) {
        if (old->start < start) {
            kept.push_back(*old);
            kept.back().end = start;
        }
        if (old->end > end) {
            kept.push_back(*old);
            kept.back().offset += end - old->start;
            kept.back().start = end;
        }
    }
    auto at = list.erase(first, last);
    list.insert(at, kept.begin(), kept.end());
}

} // namespace

MappingTable::Process &MappingTable::touch(int32_t pid) {
    auto [found, fresh] = processes_.try_emplace(pid);
    if (fresh)
        found->second.age = ages_.insert(ages_.end(), pid);
    else
        ages_.splice(ages_.end(), ages_, found->second.age);
    return found->second;
}

// A child shares its parent's list until one of them maps something.
MappingTable::Mappings &MappingTable::own(Process &process) {
    if (process.mappings.use_count() > 1) {
        process.mappings = std::make_shared<Mappings>(*process.mappings);
        total_ += process.mappings->size();
    }
    return *process.mappings;
}

void MappingTable::replace(Process &process, std::shared_ptr<Mappings> mappings) {
    if (process.mappings.use_count() == 1)
        total_ -= process.mappings->size();
    process.mappings = std::move(mappings);
}

void MappingTable::map(int32_t pid, Mapping mapping) {
    Process &process = touch(pid);
    if (mapping.time_ns < process.exec_ns || mapping.start >= mapping.end)
        return;
    Mappings &list = own(process);
    size_t before = list.size();
    cut(list, mapping.start, mapping.end);
    if (list.size() < limits_.mappings_each) {
        auto at = std::upper_bound(
            list.begin(), list.end(), mapping.start,
            [](uint64_t start, const Mapping &other) { return start < other.start; });
        list.insert(at, std::move(mapping));
    } else {
        forgotten_++;
    }
    total_ += list.size() - before;
    shrink();
}

void MappingTable::fork(int32_t parent, int32_t child, uint64_t time_ns) {
    auto found = processes_.find(parent);
    auto inherited = found == processes_.end() ? nullptr : found->second.mappings;
    bool complete = inherited && found->second.complete;
    Process &process = touch(child);
    replace(process, inherited ? inherited : std::make_shared<Mappings>());
    process.exec_ns = time_ns;
    process.ended_ns = 0;
    process.complete = complete;
    shrink();
}

void MappingTable::exec(int32_t pid, uint64_t time_ns) {
    Process &process = touch(pid);
    auto kept = std::make_shared<Mappings>();
    for (const Mapping &mapping : *process.mappings)
        if (mapping.time_ns >= time_ns)
            kept->push_back(mapping);
    replace(process, kept);
    total_ += kept->size();
    process.exec_ns = time_ns;
    process.ended_ns = 0;
    process.complete = true;
}

void MappingTable::end(int32_t pid, uint64_t time_ns) {
    auto found = processes_.find(pid);
    if (found == processes_.end())
        return;
    found->second.ended_ns = time_ns;
    ended_.emplace_back(time_ns, pid);
}

void MappingTable::sweep(uint64_t now_ns) {
    while (!ended_.empty() && ended_.front().first + limits_.keep_ended_ns < now_ns) {
        auto [time_ns, pid] = ended_.front();
        ended_.pop_front();
        auto found = processes_.find(pid);
        if (found != processes_.end() && found->second.ended_ns == time_ns)
            forget(pid);
    }
}

void MappingTable::forget(int32_t pid) {
    auto found = processes_.find(pid);
    replace(found->second, nullptr);
    ages_.erase(found->second.age);
    processes_.erase(found);
}

void MappingTable::shrink() {
    while (processes_.size() > 1 &&
           (processes_.size() > limits_.processes || total_ > limits_.mappings)) {
        forget(ages_.front());
        forgotten_++;
    }
}

std::vector<Mapping> MappingTable::mappings(int32_t pid) const {
    auto found = processes_.find(pid);
    return found == processes_.end() ? Mappings() : *found->second.mappings;
}

bool MappingTable::complete(int32_t pid) const {
    auto found = processes_.find(pid);
    return found != processes_.end() && found->second.complete;
}

// A thousand processes map the same few hundred files: each is kept once.
std::shared_ptr<const MappedFile> MappingTable::intern(MappedFile file) {
    std::string key = std::to_string(file.major) + ':' + std::to_string(file.minor) + ':' +
                      std::to_string(file.inode) + ':' + std::to_string(file.generation) + ':' +
                      file.path;
    auto known = files_.find(key);
    if (known != files_.end())
        if (auto same = known->second.lock())
            return same;
    if (files_.size() >= files_limit_)
        drop_unused_files();
    auto fresh = std::make_shared<const MappedFile>(std::move(file));
    files_[key] = fresh;
    return fresh;
}

void MappingTable::drop_unused_files() {
    for (auto next = files_.begin(); next != files_.end();)
        next = next->second.expired() ? files_.erase(next) : std::next(next);
    files_limit_ = std::max<size_t>(4096, files_.size() * 2);
}

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
#include "code_book.h"

namespace igsdk {

uint32_t CodeBook::number(uint64_t process, uint64_t code, uint64_t check) {
    auto &known = processes_[process].codes;
    auto found = known.find({code, check});
    if (found != known.end())
        return found->second;
    if (full())
        return 0;
    codes_.try_emplace(next_code_);
    known[{code, check}] = next_code_;
    return next_code_++;
}

uint32_t CodeBook::add_class(Process &process, uint64_t type) {
    if (full())
        return 0;
    classes_.try_emplace(next_class_);
    process.classes[type] = next_class_;
    return next_class_++;
}

uint32_t CodeBook::class_number(uint64_t process, uint64_t type) {
    if (!type)
        return 0;
    Process &owner = processes_[process];
    auto found = owner.classes.find(type);
    return found != owner.classes.end() ? found->second : add_class(owner, type);
}

bool CodeBook::has_room(size_t bytes) {
    if (text_bytes_ + bytes > limits_.text_bytes) {
        lost_++;
        return false;
    }
    text_bytes_ += bytes;
    return true;
}

size_t CodeBook::bytes_of(const Code &code) {
    return code.name.size() + code.file.size() + code.table.size();
}

namespace {

// Who reads a text that is not whole shall see it.
std::string marked(Taken taken) { return taken.complete ? taken.value : taken.value + "\u2026"; }

} // namespace

template <typename Record>
void CodeBook::tell(const Record &record, const std::optional<igsdk_python> &layout) {
    const igsdk_code_head &head = record.head;
    auto found = codes_.find(number(head.process, head.code, head.check));
    if (found == codes_.end() || found->second.complete)
        return; // two threads may have told of it
    Taken name = take_text(head.pid, layout, head.name, record.name, sizeof(record.name));
    Taken file = take_text(head.pid, layout, head.file, record.file, sizeof(record.file));
    Taken table = take_bytes(head.pid, layout, head.table, head.table_length, record.table,
                             head.table_taken, sizeof(record.table));
    Code told;
    told.told = true;
    told.first_line = head.first_line;
    told.version = static_cast<uint16_t>(head.version);
    told.complete = name.complete && file.complete && table.complete;
    told.name = marked(std::move(name));
    told.file = marked(std::move(file));
    told.table = std::move(table.value);
    text_bytes_ -= bytes_of(found->second);
    if (!has_room(bytes_of(told))) {
        told.name.clear();
        told.file.clear();
        told.table.clear();
        told.complete = false;
    }
    found->second = std::move(told);
}

template void CodeBook::tell(const igsdk_code &, const std::optional<igsdk_python> &);
template void CodeBook::tell(const igsdk_long_code &, const std::optional<igsdk_python> &);

void CodeBook::tell(const igsdk_class &record) {
    if (!record.type)
        return;
    // an interpreter keeps class names as UTF-8; who reads them replaces what is none
    std::string name =
        take_c_string(record.pid, record.name_address, record.name, record.taken, IGSDK_NAME_BYTES);
    auto found = classes_.find(class_number(record.process, record.type));
    if (found != classes_.end() && found->second.told && found->second.name != name) {
        Process &owner = processes_[record.process];
        owner.gone.push_back(found->first);
        found = classes_.find(add_class(owner, record.type));
    }
    if (found == classes_.end() || found->second.told || !has_room(name.size()))
        return;
    found->second = {std::move(name), true};
}

const Code *CodeBook::code(uint32_t number) const {
    auto found = codes_.find(number);
    return found == codes_.end() || !found->second.told ? nullptr : &found->second;
}

const std::string *CodeBook::class_name(uint32_t number) const {
    auto found = classes_.find(number);
    return found == classes_.end() || !found->second.told ? nullptr : &found->second.name;
}

void CodeBook::forget(uint64_t process) {
    auto found = processes_.find(process);
    if (found == processes_.end())
        return;
    for (const auto &[key, number] : found->second.codes) {
        text_bytes_ -= bytes_of(codes_[number]);
        codes_.erase(number);
    }
    std::vector<uint32_t> classes = std::move(found->second.gone);
    for (const auto &[type, number] : found->second.classes)
        classes.push_back(number);
    for (uint32_t number : classes) {
        text_bytes_ -= classes_[number].name.size();
        classes_.erase(number);
    }
    processes_.erase(found);
}

} // namespace igsdk

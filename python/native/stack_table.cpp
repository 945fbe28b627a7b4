// SPDX-License-Identifier: Apache-2.0
#include "stack_table.h"

#include <algorithm>
#include <bpf/bpf.h>
#include <cstring>
#include <unordered_set>

namespace igsdk {
namespace {

// What a reader should know of a stack; how it came here is not part of it.
constexpr uint32_t told_flags = IGSDK_CAPTURE_PYTHON | IGSDK_CAPTURE_PYTHON_CUT |
                                IGSDK_CAPTURE_PYTHON_FAULT | IGSDK_CAPTURE_NO_ROOM;

const char *end_of(Unwound::End end, bool copied_all) {
    switch (end) {
    case Unwound::End::complete:
        return "";
    case Unwound::End::cut:
        return copied_all ? "unreadable" : "cut";
    case Unwound::End::no_rules:
        return "no rules";
    case Unwound::End::not_code:
        return "not code";
    case Unwound::End::loop:
        return "loop";
    case Unwound::End::too_long:
        return "too long";
    }
    return "no rules";
}

uint32_t boot_second() { return static_cast<uint32_t>(clock_ns(CLOCK_BOOTTIME) / 1000000000u); }

void mix_text(Content &content, const char *text) {
    for (; *text; text++)
        content.mix(static_cast<uint8_t>(*text));
}

// Two processes that run the same files have the same stack, wherever they are mapped;
// code without a file is each one's own.
Content content_of(const Native &native, uint64_t process) {
    Content content;
    for (const Unwound::Frame &frame : native.frames) {
        content.mix(frame.file);
        content.mix(frame.file ? frame.offset : frame.pc);
        if (!frame.file)
            content.mix(process);
    }
    mix_text(content, native.end);
    return content;
}

Content content_of(const RawStack &stack) {
    Content content = stack.native ? stack.native->content : Content{};
    content.mix(stack.native != nullptr);
    content.mix(stack.flags);
    for (const RawStack::Python &frame : stack.python) {
        content.mix(frame.code);
        content.mix(static_cast<uint64_t>(frame.type) << 32 | static_cast<uint32_t>(frame.lasti));
        content.mix(frame.entry);
    }
    // a frame without a number may be of any process
    if (!stack.python.empty())
        content.mix(stack.process);
    return content;
}

// Native frames of a template that was dropped before its last record came.
NativeRef dropped() {
    static const NativeRef native = [] {
        auto made = std::make_shared<Native>();
        made->end = "lost";
        made->content = content_of(*made, 0);
        return made;
    }();
    return native;
}

} // namespace

const char *RawStack::how() const {
    if (native)
        return "unwind tables";
    return python.empty() ? "not taken" : "Python frames only";
}

const char *RawStack::end() const {
    if (native)
        return native->end;
    return flags & IGSDK_CAPTURE_NO_ROOM ? "no room" : "busy";
}

StackTable::StackTable(Maps maps, MapWatch *watch, Limits limits)
    : limits_(limits), spaces_(watch, limits.spaces), space_map_(maps.spaces),
      sent_stacks_(maps.sent_stacks), templates_(maps.templates, limits.places),
      codes_(limits.codes) {}

bool StackTable::take(const void *record, size_t size) {
    struct Start {
        uint32_t size, record;
    } start{};
    if (size >= sizeof(start))
        std::memcpy(&start, record, sizeof(start));
    size = std::min<size_t>(size, start.size);
    auto bytes = static_cast<const uint8_t *>(record);
    if (start.record == IGSDK_CAPTURE_STACK && size >= sizeof(igsdk_capture)) {
        const auto &head = *static_cast<const igsdk_capture *>(record);
        uint64_t frames = head.n_python * sizeof(igsdk_python_frame);
        if (sizeof(head) + frames + head.stack_bytes <= size)
            return take_stack(head, bytes + sizeof(head));
    }
    std::lock_guard<std::mutex> lock(lock_);
    if (start.record == IGSDK_CAPTURE_CODE && size >= sizeof(igsdk_code)) {
        take_code(*static_cast<const igsdk_code *>(record));
        return false;
    } else if (start.record == IGSDK_CAPTURE_LONG_CODE && size >= sizeof(igsdk_long_code)) {
        take_code(*static_cast<const igsdk_long_code *>(record));
        return false;
    } else if (start.record == IGSDK_CAPTURE_CLASS && size >= sizeof(igsdk_class)) {
        counts_.classes++;
        codes_.tell(*static_cast<const igsdk_class *>(record));
        return false;
    }
    counts_.damaged++;
    return false;
}

template <typename Record> void StackTable::take_code(const Record &record) {
    counts_.codes++;
    codes_.tell(record, space_map_.python(record.head.pid));
}

// Nobody waits while files are opened and tables are read.
bool StackTable::take_stack(const igsdk_capture &head, const uint8_t *rest) {
    const uint8_t *bytes = rest + head.n_python * sizeof(igsdk_python_frame);
    constexpr uint32_t kinds = IGSDK_CAPTURE_NATIVE | IGSDK_CAPTURE_TEMPLATE;
    Unwound unwound;
    if ((head.flags & kinds) == IGSDK_CAPTURE_NATIVE) {
        prepare(head); // before a template of the new code is written
        unwound = unwind(head, bytes, spaces_);
    }
    std::lock_guard<std::mutex> lock(lock_);
    Process &process = processes_[head.process];
    process.pid = head.pid;
    RawStack stack;
    stack.pid = head.pid;
    stack.process = head.process;
    stack.flags = head.flags & told_flags;
    stack.native = native_of(head, bytes, unwound);
    stack.python = python_of(head, rest);
    size_t before = pending_.size();
    if (!keep_key(process, head.key, intern(process, std::move(stack))))
        ask_again(head);
    return pending_.size() > before;
}

void StackTable::prepare(const igsdk_capture &head) {
    std::lock_guard<std::mutex> lock(lock_);
    Process &process = processes_[head.process];
    process.pid = head.pid;
    tell_generation(process);
    process.unwound = true;
}

NativeRef StackTable::native_of(const igsdk_capture &head, const uint8_t *stack, Unwound &unwound) {
    if (head.flags & IGSDK_CAPTURE_TEMPLATE) {
        counts_.templates++;
        NativeRef known = templates_.find(head.template_id);
        counts_.unknown_templates += !known;
        return known ? known : dropped();
    }
    if (!(head.flags & IGSDK_CAPTURE_NATIVE)) {
        counts_.python_only++;
        return nullptr;
    }
    counts_.native++;
    NativeRef native = share(unwound, head);
    templates_.learn(head, stack, unwound, native);
    return native;
}

NativeRef StackTable::share(Unwound &unwound, const igsdk_capture &head) {
    auto made = std::make_shared<Native>();
    made->frames = unwound.frames;
    made->end = end_of(unwound.end, head.flags & IGSDK_CAPTURE_STACK_END);
    made->content = content_of(*made, head.process);
    if (natives_.size() >= natives_limit_)
        drop_unused_natives();
    return natives_.try_emplace(made->content, made).first->second;
}

void StackTable::drop_unused_natives() {
    for (auto next = natives_.begin(); next != natives_.end();)
        next = next->second.use_count() == 1 ? natives_.erase(next) : std::next(next);
    natives_limit_ = std::max<size_t>(4096, natives_.size() * 2);
}

std::vector<RawStack::Python> StackTable::python_of(const igsdk_capture &head,
                                                    const uint8_t *frames) {
    std::vector<RawStack::Python> python(head.n_python);
    for (size_t i = 0; i < python.size(); i++) {
        igsdk_python_frame frame;
        std::memcpy(&frame, frames + i * sizeof(frame), sizeof(frame));
        python[i] = {codes_.number(head.process, frame.code, frame.check),
                     codes_.class_number(head.process, frame.type), frame.lasti,
                     (frame.flags & IGSDK_PYTHON_ENTRY) != 0};
    }
    return python;
}

// The number of a stack; 0 where there is no room for another one.
uint32_t StackTable::intern(Process &process, RawStack stack) {
    Content content = content_of(stack);
    auto found = stacks_.find(content);
    if (found != stacks_.end())
        return found->second;
    if (stacks_.size() >= limits_.stacks) {
        counts_.stacks++;
        return 0;
    }
    if (pending_.size() >= limits_.pending) {
        counts_.pending++;
        return 0;
    }
    stack.number = next_++;
    stacks_[content] = stack.number;
    if (!stack.python.empty())
        process.own.push_back(content);
    pending_.push_back(std::move(stack));
    return next_ - 1;
}

bool StackTable::keep_key(Process &process, uint64_t key, uint32_t number) {
    if (!number)
        return false;
    auto found = process.keys.find(key);
    if (found == process.keys.end() && keys_ >= limits_.keys) {
        counts_.keys++;
        return false;
    }
    keys_ += found == process.keys.end();
    process.keys[key] = {number, boot_second()};
    return true;
}

// What found no room is sent once more when it is used again, in a while there may be some.
// Not all of it where room stays short: the workload has to pay for each.
void StackTable::ask_again(const igsdk_capture &head) {
    uint32_t now = boot_second();
    if (now != asked_second_)
        asked_ = 0;
    asked_second_ = now;
    if (head.key & IGSDK_KEY_FRESH || asked_++ >= limits_.again)
        return;
    uint64_t mark = igsdk_sent_mark(head.process, head.key);
    bpf_map_delete_elem(sent_stacks_, &mark);
}

void StackTable::tell_generation(Process &process) {
    uint32_t now = spaces_.generation(process.pid);
    if (process.unwound && now > process.generation)
        space_map_.bump(process.pid);
    process.generation = now;
}

void StackTable::check_spaces() {
    std::lock_guard<std::mutex> lock(lock_);
    for (auto &[instance, process] : processes_)
        if (process.unwound)
            tell_generation(process);
}

std::vector<RawStack> StackTable::take_stacks() {
    std::lock_guard<std::mutex> lock(lock_);
    for (uint64_t process : gone_)
        codes_.forget(process);
    gone_ = std::exchange(leaving_, {});
    return std::exchange(pending_, {});
}

void StackTable::numbers(const uint64_t *processes, const uint64_t *keys, uint32_t *into,
                         size_t count) {
    std::lock_guard<std::mutex> lock(lock_);
    for (size_t i = 0; i < count; i++) {
        into[i] = 0;
        auto process = processes_.find(processes[i]);
        if (process == processes_.end())
            continue;
        auto key = process->second.keys.find(keys[i]);
        if (key != process->second.keys.end())
            into[i] = key->second.number;
    }
}

std::optional<Code> StackTable::code(uint32_t number) {
    std::lock_guard<std::mutex> lock(lock_);
    const Code *code = codes_.code(number);
    return code ? std::optional<Code>(*code) : std::nullopt;
}

std::optional<std::string> StackTable::class_name(uint32_t number) {
    std::lock_guard<std::mutex> lock(lock_);
    const std::string *name = codes_.class_name(number);
    return name ? std::optional<std::string>(*name) : std::nullopt;
}

void StackTable::forget_keys(const uint64_t *processes, const uint64_t *keys, size_t count) {
    std::lock_guard<std::mutex> lock(lock_);
    for (size_t i = 0; i < count; i++)
        if (auto process = processes_.find(processes[i]); process != processes_.end())
            keys_ -= process->second.keys.erase(keys[i]);
}

void StackTable::keep_fresh_keys(const std::vector<uint64_t> &live) {
    std::lock_guard<std::mutex> lock(lock_);
    if (keys_ < limits_.keys / 2)
        return;
    std::unordered_set<uint64_t> kept(live.begin(), live.end());
    uint32_t now = boot_second();
    for (auto &[instance, process] : processes_)
        for (auto next = process.keys.begin(); next != process.keys.end();) {
            bool over = next->first & IGSDK_KEY_FRESH && !kept.count(next->first) &&
                        now - next->second.second >= limits_.key_seconds;
            keys_ -= over;
            next = over ? process.keys.erase(next) : std::next(next);
        }
}

void StackTable::forget_process(uint64_t instance) {
    std::lock_guard<std::mutex> lock(lock_);
    leaving_.push_back(instance);
    templates_.forget(instance);
    auto process = processes_.find(instance);
    if (process == processes_.end())
        return;
    keys_ -= process->second.keys.size();
    for (const Content &content : process->second.own)
        stacks_.erase(content);
    processes_.erase(process);
}

std::map<std::string, uint64_t> StackTable::counts() {
    std::lock_guard<std::mutex> lock(lock_);
    return {{"native", counts_.native},
            {"templates", counts_.templates},
            {"python_only", counts_.python_only},
            {"codes", counts_.codes},
            {"classes", counts_.classes},
            {"kept_stacks", stacks_.size()},
            {"kept_keys", keys_},
            {"kept_natives", natives_.size()},
            {"kept_templates", templates_.size()},
            {"kept_codes", codes_.size()},
            {"kept_text_bytes", codes_.text_bytes()},
            {"kept_files", spaces_.files().size()},
            {"written_templates", templates_.written()},
            {"lost_templates", templates_.refused()},
            {"lost_template_stacks", counts_.unknown_templates},
            {"lost_damaged", counts_.damaged},
            {"lost_stacks", counts_.stacks},
            {"lost_keys", counts_.keys},
            {"lost_pending", counts_.pending},
            {"lost_codes", codes_.lost()},
            {"lost_files", spaces_.files().refused()}};
}

// Stacks that will be missing in the result.
uint64_t StackTable::lost() {
    std::lock_guard<std::mutex> lock(lock_);
    return counts_.damaged + counts_.stacks + counts_.keys + counts_.pending;
}

} // namespace igsdk

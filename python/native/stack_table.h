// SPDX-License-Identifier: Apache-2.0
// From records of the captures ring to distinct stacks without names.
//
// Python names each of them once; from then on only the hash of its content stays here,
// of stacks that no other process can have until their process is forgotten.
// Bounded, by default: 2^18 raw stacks (some 60 bytes each), 2^18 capture keys (40 bytes),
// 2^15 stacks that Python has not taken yet (some 1 KiB each, 2 KiB of Python frames
// more where 64 are deep), 2^14 places of templates (some 250 bytes each, and the native
// stacks of their ways, 40 bytes a frame, shared), 2^18 code objects (200 bytes) with 64
// MiB of text: some 20 MiB in a usual run, 300 MiB with all of it full. What finds no room
// is counted, and its number is 0.
#pragma once

#include "code_book.h"
#include "space_map.h"
#include "templates.h"

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace igsdk {

struct RawStack {
    struct Python {
        uint32_t code, type; // numbers
        int32_t lasti;
        bool entry;
    };
    uint32_t number = 0, pid = 0, flags = 0;
    uint64_t process = 0;
    NativeRef native; // nullptr: none were taken
    std::vector<Python> python;
    const char *how() const;
    const char *end() const;
};

class StackTable {
  public:
    struct Limits {
        size_t stacks = 1 << 18;
        size_t keys = 1 << 18;
        size_t key_seconds = 60; // a call may take that long until it has its account
        size_t pending = 1 << 15;
        size_t again = 1 << 13; // stacks that the kernel is asked for again, each second
        size_t places = 1 << 14;
        CodeBook::Limits codes;
        Spaces::Limits spaces;
    };
    struct Maps {
        int templates, spaces, sent_stacks;
    };

    StackTable(Maps maps, MapWatch *watch, Limits limits);
    StackTable(Maps maps, MapWatch *watch) : StackTable(maps, watch, Limits{}) {}

    // One record of the captures ring; true where there is a new stack to take.
    bool take(const void *record, size_t size);
    // Tells the kernel whose code was mapped over since the last time.
    void check_spaces();

    std::vector<RawStack> take_stacks();
    void numbers(const uint64_t *processes, const uint64_t *keys, uint32_t *into, size_t count);
    std::optional<Code> code(uint32_t number);
    std::optional<std::string> class_name(uint32_t number);
    void forget_keys(const uint64_t *processes, const uint64_t *keys, size_t count);
    // All IGSDK_KEY_FRESH keys that accounts have now. Others that are old were of calls
    // that have no account of their own: they go where keys are many.
    void keep_fresh_keys(const std::vector<uint64_t> &live);
    // Its rows were recycled: nobody asks for its keys any more. Its code objects stay for
    // as long as stacks may be on their way to their names: until the second next take.
    void forget_process(uint64_t process);
    std::map<std::string, uint64_t> counts();
    uint64_t lost();

    void admit(uint32_t pid) { spaces_.admit(pid); }
    SpaceMap &space_map() { return space_map_; }
    FileStore &files() { return spaces_.files(); }
    size_t close_unused_files() { return spaces_.close_unused_files(); }

  private:
    struct Key {
        uint32_t number, second; // of the boot clock, when it came
    };
    struct Process {
        std::unordered_map<uint64_t, Key> keys;
        std::vector<Content> own; // stacks that no other process can have
        uint32_t pid = 0;
        uint32_t generation = 0; // of its code, when the kernel was last told
        bool unwound = false;    // so it may have templates
    };
    struct Counts {
        uint64_t native = 0, templates = 0, python_only = 0, codes = 0, classes = 0;
        uint64_t damaged = 0, stacks = 0, keys = 0, pending = 0, unknown_templates = 0;
    };

    template <typename Record> void take_code(const Record &record);
    bool take_stack(const igsdk_capture &head, const uint8_t *rest);
    void prepare(const igsdk_capture &head);
    NativeRef native_of(const igsdk_capture &head, const uint8_t *stack, Unwound &unwound);
    NativeRef share(Unwound &unwound, const igsdk_capture &head);
    void drop_unused_natives();
    std::vector<RawStack::Python> python_of(const igsdk_capture &head, const uint8_t *frames);
    uint32_t intern(Process &process, RawStack stack);
    bool keep_key(Process &process, uint64_t key, uint32_t number);
    void ask_again(const igsdk_capture &head);
    void tell_generation(Process &process);

    const Limits limits_;
    Spaces spaces_;
    SpaceMap space_map_;
    const int sent_stacks_;
    std::mutex lock_; // all below
    Templates templates_;
    CodeBook codes_;
    std::unordered_map<Content, NativeRef, ContentHash> natives_;
    std::unordered_map<Content, uint32_t, ContentHash> stacks_;
    std::unordered_map<uint64_t, Process> processes_;
    std::vector<RawStack> pending_;
    std::vector<uint64_t> leaving_, gone_; // processes; forgotten before one take, before two
    size_t keys_ = 0, natives_limit_ = 4096;
    uint32_t next_ = 1;
    uint32_t asked_second_ = 0;
    size_t asked_ = 0; // in that second
    Counts counts_;
};

} // namespace igsdk

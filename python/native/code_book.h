// SPDX-License-Identifier: Apache-2.0
// The code objects and classes that Python frames name, by numbers of our own.
//
// A frame may come before what names it: it gets its number then, and the name later.
// Bounded by number and by bytes of text; at the limit, number 0 and a count.
#pragma once

#include "python_text.h"

#include <unordered_map>
#include <vector>

namespace igsdk {

struct Code {
    std::string name, file, table;
    int32_t first_line = 0;
    uint16_t version = 0;
    bool told = false;
    bool complete = false;
};

class CodeBook {
  public:
    struct Limits {
        size_t codes = 1 << 18; // classes too; some 200 bytes each beside their text
        size_t text_bytes = 64 << 20;
    };
    explicit CodeBook(Limits limits) : limits_(limits) {}

    uint32_t number(uint64_t process, uint64_t code, uint64_t check);
    uint32_t class_number(uint64_t process, uint64_t type);
    // `layout`: of the record's process, as far as it is known.
    // igsdk_code or igsdk_long_code
    template <typename Record>
    void tell(const Record &record, const std::optional<igsdk_python> &layout);
    void tell(const igsdk_class &record);

    // nullptr: never told, or forgotten.
    const Code *code(uint32_t number) const;
    const std::string *class_name(uint32_t number) const;
    void forget(uint64_t process);

    size_t size() const { return codes_.size() + classes_.size(); }
    size_t text_bytes() const { return text_bytes_; }
    uint64_t lost() const { return lost_; }

  private:
    struct Key {
        uint64_t address, check;
        bool operator==(const Key &other) const {
            return address == other.address && check == other.check;
        }
    };
    struct Hash {
        size_t operator()(const Key &key) const { return igsdk_mix(key.address, key.check); }
    };
    struct Class {
        std::string name;
        bool told = false;
    };
    struct Process {
        std::unordered_map<Key, uint32_t, Hash> codes;
        std::unordered_map<uint64_t, uint32_t> classes;
        std::vector<uint32_t> gone; // classes whose address has another one now
    };

    uint32_t add_class(Process &process, uint64_t type);

    bool full() { return size() >= limits_.codes && ++lost_; }
    bool has_room(size_t bytes);
    static size_t bytes_of(const Code &code);

    Limits limits_;
    std::unordered_map<uint64_t, Process> processes_;
    std::unordered_map<uint32_t, Code> codes_;
    std::unordered_map<uint32_t, Class> classes_;
    uint32_t next_code_ = 1, next_class_ = 1;
    size_t text_bytes_ = 0;
    uint64_t lost_ = 0;
};

} // namespace igsdk

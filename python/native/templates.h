// SPDX-License-Identifier: Apache-2.0
// Native stacks that were unwound once, and how the kernel recognises them again.
//
// Bounded: so many places of at most IGSDK_TEMPLATE_WAYS stacks each, the oldest place
// goes first. What the kernel's map, which forgets by itself, has lost is written again
// when its stack is unwound again.
#pragma once

#include "unwind.h"

#include <array>
#include <deque>
#include <unordered_map>

namespace igsdk {

// 128 bits that stand for what they were made of.
struct Content {
    uint64_t first = IGSDK_TEMPLATE_SEED, second = 0x51afd7ed558ccd6dULL;
    void mix(uint64_t value) {
        first = igsdk_mix(first, value);
        second = igsdk_mix(second, value + 0x2545f4914f6cdd1dULL);
    }
    bool operator==(const Content &other) const {
        return first == other.first && second == other.second;
    }
};

struct ContentHash {
    size_t operator()(const Content &content) const { return content.first; }
};

// A native stack by itself, shared by all raw stacks and templates that have it.
struct Native {
    std::vector<Unwound::Frame> frames;
    const char *end = ""; // as RawStack.end
    Content content;
};

using NativeRef = std::shared_ptr<const Native>;

class Templates {
  public:
    Templates(int map, size_t places) : map_(map), limit_(places) {}

    // Writes a template for a stack that was just unwound, where one can be verified.
    void learn(const igsdk_capture &head, const uint8_t *stack, const Unwound &unwound,
               NativeRef native);
    // nullptr: no such template, or dropped long ago.
    NativeRef find(uint64_t id) const;
    void forget(uint64_t process);

    size_t size() const { return natives_.size(); }
    uint64_t written() const { return written_; }
    uint64_t refused() const { return refused_; } // by the kernel's map

  private:
    struct Place {
        uint64_t process, place;
        uint32_t space;
        bool operator==(const Place &other) const {
            return process == other.process && place == other.place && space == other.space;
        }
    };
    struct PlaceHash {
        size_t operator()(const Place &place) const {
            return igsdk_mix(igsdk_mix(place.process, place.place), place.space);
        }
    };
    struct Way {
        uint64_t id = 0; // 0: free
        Content content; // of slots and words
    };
    struct Ways {
        std::array<Way, IGSDK_TEMPLATE_WAYS> ways;
        uint32_t next = 0; // to be replaced
    };

    uint32_t choose(Ways &ways, const Content &content);
    bool is_written(const igsdk_template_key &key, uint64_t id) const;
    void retire(uint64_t id);
    void drop(const Place &place);
    void make_room();

    int map_;
    size_t limit_;
    std::unordered_map<Place, Ways, PlaceHash> places_;
    std::deque<Place> ages_; // oldest first; may name places that are gone
    std::unordered_map<uint64_t, NativeRef> natives_;
    std::deque<uint64_t> retired_; // ids whose last records may be in the ring
    uint64_t next_id_ = 1, written_ = 0, refused_ = 0;
};

} // namespace igsdk

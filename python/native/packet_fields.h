// SPDX-License-Identifier: Apache-2.0
// Where the values of a data source's fields lie in the slots of a row, and what they are.
#pragma once

#include "packets.h"

#include <cstring>

namespace igsdk {

enum class ValueSort : char {
    boolean = '?', // true where the byte is 1
    integer = 'i',
    natural = 'u',
    real = 'f',
    text = 's',
    c_text = 'c', // up to the first zero byte
    bytes = 'b',
};

struct PacketField {
    size_t need;     // which of the needs has the slot
    uint64_t offset; // in the slot
    uint64_t size;   // 0: all of the slot
    uint32_t width;  // of a number or of each one in an array; 0: no numbers
    ValueSort sort;
    bool array;

    // The bytes of the value, in a row that fits.
    Slice part_of(const Slice *slots) const {
        const Slice &slot = slots[need];
        Slice part = size ? Slice{slot.data + offset, static_cast<size_t>(size)} : slot;
        if (sort == ValueSort::c_text && part.size) {
            if (const void *zero = std::memchr(part.data, 0, part.size))
                part.size = static_cast<size_t>(static_cast<const uint8_t *>(zero) - part.data);
        }
        return part;
    }

    // Bytes that every value has; 0: each has a length of its own.
    size_t stride() const {
        if (!width || (array && !size))
            return 0;
        return array ? static_cast<size_t>(size) : width;
    }
};

// All that is needed to read a data source's packets.
struct PacketLayout {
    bool array;   // a packet has an array of rows
    bool swapped; // its numbers have the byte order that is not this machine's
    SlotNeeds needs;
    std::vector<PacketField> fields;

    // nullptr where it is consistent, else what is wrong with it.
    const char *fault() const;
};

} // namespace igsdk

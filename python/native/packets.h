// SPDX-License-Identifier: Apache-2.0
// Finds the rows in packets of the gadget service (GadgetData, GadgetDataArray), in place.
//
// It reads only what every reader of this encoding understands alike: shortest numbers,
// nothing twice, no groups, plain text where text has to be. Whatever else makes a packet odd:
// then protobuf has to say whether it is one at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace igsdk {

struct Slice {
    const uint8_t *data = nullptr;
    size_t size = 0;
};

// What a slot has to be for its fields to have values.
struct SlotNeed {
    uint32_t number; // which of the row's slots
    uint64_t least;  // bytes, at least
    int64_t exact;   // bytes, exactly; 0 = any number, -1 = there is none that would do
    uint64_t unit;   // the bytes are a multiple of it; never 0

    bool met_by(const Slice &slot) const {
        if (exact && static_cast<int64_t>(slot.size) != exact)
            return false;
        return slot.size >= least && (unit == 1 || slot.size % unit == 0);
    }
};

// By number, each number once.
using SlotNeeds = std::vector<SlotNeed>;

class PacketRows {
  public:
    // Packet and needs have to outlive it. `array`: rows come as an array, not one alone.
    PacketRows(const SlotNeeds &needs, bool array, Slice packet);

    // Goes to the next row; false at the end, and where the packet turns out to be odd.
    bool next();
    // Whether the row has all slots that are needed, as they are needed.
    bool fits() const { return fits_; }
    // One slice for each need, where the row fits.
    const Slice *slots() const { return slots_.data(); }
    // Whether it has to be left to protobuf; rows that were given do not count then.
    bool odd() const { return odd_; }

  private:
    bool next_in_array();
    bool only_one();
    bool find_element(Slice &element, bool &found);
    void read_row(Slice element);

    const SlotNeeds &needs_;
    const uint8_t *at_, *end_;
    bool array_, odd_, fits_ = false, started_ = false;
    std::vector<Slice> slots_;
};

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
#include "packets.h"

#include <climits>

namespace igsdk {
namespace {

// Numbers of fields: of a packet, and of a row in it.
constexpr uint32_t node = 1, seq = 2, rows = 3, slot_bytes = 1;

enum Wire : uint32_t { varint = 0, eight_bytes = 1, sized = 2, four_bytes = 5 };

// Reads fields one by one. Each function returns false where the bytes are odd.
class Fields {
  public:
    Fields(const uint8_t *at, const uint8_t *end) : at_(at), end_(end) {}

    bool done() const { return at_ == end_; }
    const uint8_t *here() const { return at_; }

    bool tag(uint32_t &number, uint32_t &wire) {
        uint64_t value;
        if (!read_number(value) || value > UINT32_MAX || value < 8)
            return false;
        number = static_cast<uint32_t>(value >> 3);
        wire = static_cast<uint32_t>(value & 7);
        return true;
    }

    bool bytes(Slice &slice) {
        uint64_t size;
        if (!read_number(size) || size > static_cast<size_t>(end_ - at_))
            return false;
        slice = {at_, static_cast<size_t>(size)};
        at_ += size;
        return true;
    }

    bool skip(uint32_t wire) {
        uint64_t value;
        Slice slice;
        switch (wire) {
        case varint:
            return read_number(value);
        case sized:
            return bytes(slice);
        case eight_bytes:
            return pass(8);
        case four_bytes:
            return pass(4);
        default:
            return false;
        }
    }

  private:
    bool pass(ptrdiff_t size) {
        if (end_ - at_ < size)
            return false;
        at_ += size;
        return true;
    }

    // Nine bytes at most, since readers differ in what they make of a tenth.
    bool read_number(uint64_t &value) {
        if (at_ != end_ && *at_ < 0x80) {
            value = *at_++;
            return true;
        }
        value = 0;
        for (unsigned shift = 0; shift < 63 && at_ != end_; shift += 7) {
            uint8_t byte = *at_++;
            value |= static_cast<uint64_t>(byte & 0x7f) << shift;
            if (byte < 0x80)
                return byte != 0;
        }
        return false;
    }

    const uint8_t *at_, *end_;
};

bool is_ascii(const Slice &text) {
    for (size_t place = 0; place < text.size; ++place)
        if (text.data[place] >= 0x80)
            return false;
    return true;
}

// Passes over a field of a packet that is no row.
bool pass_over(Fields &fields, uint32_t number, uint32_t wire) {
    Slice text;
    if (number == node)
        return wire == sized && fields.bytes(text) && is_ascii(text);
    if (number == seq && wire != varint)
        return false;
    return fields.skip(wire);
}

} // namespace

PacketRows::PacketRows(const SlotNeeds &needs, bool array, Slice packet)
    : needs_(needs), at_(packet.data), end_(packet.data + packet.size), array_(array),
      odd_(packet.size > INT_MAX), slots_(needs.size()) {}

bool PacketRows::next() {
    if (odd_)
        return false;
    return array_ ? next_in_array() : only_one();
}

bool PacketRows::next_in_array() {
    Slice element;
    bool found = false;
    if (!find_element(element, found) || !found)
        return false;
    read_row(element);
    return !odd_;
}

bool PacketRows::only_one() {
    if (started_)
        return false;
    started_ = true;
    Slice element, second;
    bool found = false, again = false;
    if (!find_element(element, found) || (found && !find_element(second, again)))
        return false;
    // Two are one row, of the slots of both.
    odd_ = again;
    read_row(element);
    return !odd_;
}

bool PacketRows::find_element(Slice &element, bool &found) {
    Fields fields(at_, end_);
    while (!found && !fields.done()) {
        uint32_t number, wire;
        odd_ = !fields.tag(number, wire);
        if (!odd_ && number == rows) {
            odd_ = wire != sized || !fields.bytes(element);
            found = !odd_;
        } else if (!odd_) {
            odd_ = !pass_over(fields, number, wire);
        }
        if (odd_)
            return false;
    }
    at_ = fields.here();
    return true;
}

void PacketRows::read_row(Slice element) {
    Fields fields(element.data, element.data + element.size);
    size_t known = 0;
    uint32_t place = 0;
    fits_ = true;
    while (!fields.done()) {
        uint32_t number, wire;
        Slice slot;
        if (!fields.tag(number, wire) || (number == slot_bytes && wire != sized) ||
            !(number == slot_bytes ? fields.bytes(slot) : fields.skip(wire))) {
            odd_ = true;
            return;
        }
        if (number != slot_bytes)
            continue;
        if (known < needs_.size() && needs_[known].number == place) {
            fits_ = fits_ && needs_[known].met_by(slot);
            slots_[known++] = slot;
        }
        ++place;
    }
    fits_ = fits_ && known == needs_.size();
}

} // namespace igsdk

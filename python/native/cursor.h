// SPDX-License-Identifier: Apache-2.0
// Reads numbers out of bytes that may be hostile: past their end it reads zeros and
// says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace igsdk {

class Cursor {
  public:
    Cursor(const uint8_t *bytes, size_t size) : at_(bytes), end_(bytes + size) {}

    bool ok() const { return ok_; }
    bool done() const { return !ok_ || at_ == end_; }
    size_t left() const { return static_cast<size_t>(end_ - at_); }
    const uint8_t *here() const { return at_; }

    template <typename T> T fixed() {
        T value{};
        if (const uint8_t *bytes = take(sizeof(T)))
            std::memcpy(&value, bytes, sizeof(T));
        return value;
    }

    // nullptr when fewer are left.
    const uint8_t *take(uint64_t size) {
        if (!ok_ || size > left()) {
            ok_ = false;
            return nullptr;
        }
        const uint8_t *bytes = at_;
        at_ += size;
        return bytes;
    }

    uint64_t uleb() {
        unsigned shift = 0;
        uint8_t last = 0;
        return leb(shift, last);
    }

    int64_t sleb() {
        unsigned shift = 0;
        uint8_t last = 0;
        uint64_t value = leb(shift, last);
        if (shift < 64 && (last & 0x40))
            value |= ~uint64_t{0} << shift;
        return static_cast<int64_t>(value);
    }

  private:
    uint64_t leb(unsigned &shift, uint8_t &last) {
        uint64_t value = 0;
        do {
            if (shift >= 70) {
                ok_ = false;
                return 0;
            }
            last = fixed<uint8_t>();
            if (shift < 64)
                value |= static_cast<uint64_t>(last & 0x7f) << shift;
            shift += 7;
        } while (last & 0x80);
        return value;
    }

    const uint8_t *at_, *end_;
    bool ok_ = true;
};

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// Rows of packets as columns: for each field one run of memory, which Python takes as it is.
#pragma once

#include "packet_fields.h"

#include <memory>

namespace igsdk {

// Bytes that grow; realloc moves large ones without a copy.
class GrowingBytes {
  public:
    GrowingBytes() = default;
    GrowingBytes(GrowingBytes &&other) noexcept;
    GrowingBytes &operator=(GrowingBytes &&other) noexcept;
    GrowingBytes(const GrowingBytes &) = delete;
    ~GrowingBytes();

    uint8_t *data() { return data_; }
    size_t size() const { return size_; }
    // Room for so many bytes more; what is in them is anybody's guess.
    uint8_t *more(size_t bytes) {
        if (bytes > room_ - size_)
            grow(bytes);
        uint8_t *place = data_ + size_;
        size_ += bytes;
        return place;
    }
    void cut(size_t size) { size_ = size; }
    // Gives back what it has no use for.
    void fit();

  private:
    void grow(size_t bytes);
    void resize(size_t room);

    uint8_t *data_ = nullptr;
    size_t size_ = 0, room_ = 0;
};

class PacketColumn {
  public:
    explicit PacketColumn(const PacketField &field, bool swapped);

    void append(const Slice *slots);
    // Takes rows off the end again.
    void cut(size_t rows);
    void fit();

    // The values: numbers in this machine's byte order, or bytes one after the other.
    GrowingBytes data;
    // int64, where each value begins, in elements, and where the last one ends; empty where
    // all values are as long as each other.
    GrowingBytes starts;

  private:
    void append_start();

    PacketField field_;
    size_t stride_, unit_;
    bool swaps_;
};

class PacketColumns {
  public:
    explicit PacketColumns(const PacketLayout &layout);

    // False, and nothing is taken, where the packet is odd.
    bool append(Slice packet);
    void fit();

    std::vector<PacketColumn> columns;
    size_t rows = 0;
    size_t unreadable = 0; // rows that did not fit

  private:
    const PacketLayout &layout_;
};

} // namespace igsdk

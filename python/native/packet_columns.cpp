// SPDX-License-Identifier: Apache-2.0
#include "packet_columns.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace igsdk {

GrowingBytes::GrowingBytes(GrowingBytes &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
      room_(std::exchange(other.room_, 0)) {}

GrowingBytes &GrowingBytes::operator=(GrowingBytes &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(room_, other.room_);
    return *this;
}

GrowingBytes::~GrowingBytes() { std::free(data_); }

void GrowingBytes::grow(size_t bytes) { resize(std::max({2 * room_, size_ + bytes, size_t{64}})); }

void GrowingBytes::fit() {
    if (size_ < room_)
        resize(std::max(size_, size_t{1}));
}

void GrowingBytes::resize(size_t room) {
    void *moved = std::realloc(data_, room);
    if (!moved)
        throw std::bad_alloc();
    data_ = static_cast<uint8_t *>(moved);
    room_ = room;
}

namespace {

void copy_swapped(uint8_t *to, const uint8_t *from, size_t size, size_t width) {
    for (size_t at = 0; at < size; at += width)
        std::reverse_copy(from + at, from + at + width, to + at);
}

// By widths that the compiler knows, so that each is one load and one store.
void copy_bytes(uint8_t *to, const uint8_t *from, size_t size) {
    switch (size) {
    case 1:
        *to = *from;
        return;
    case 2:
        std::memcpy(to, from, 2);
        return;
    case 4:
        std::memcpy(to, from, 4);
        return;
    case 8:
        std::memcpy(to, from, 8);
        return;
    default:
        if (size)
            std::memcpy(to, from, size);
    }
}

} // namespace

PacketColumn::PacketColumn(const PacketField &field, bool swapped)
    : field_(field), stride_(field.stride()), unit_(field.width ? field.width : 1),
      swaps_(swapped && field.width > 1) {
    if (!stride_)
        append_start();
}

void PacketColumn::append(const Slice *slots) {
    Slice part = field_.part_of(slots);
    uint8_t *to = data.more(part.size);
    if (swaps_)
        copy_swapped(to, part.data, part.size, unit_);
    else
        copy_bytes(to, part.data, part.size);
    if (field_.sort == ValueSort::boolean)
        std::transform(to, to + part.size, to, [](uint8_t byte) { return byte == 1; });
    if (!stride_)
        append_start();
}

void PacketColumn::append_start() {
    int64_t start = static_cast<int64_t>(data.size() / unit_);
    std::memcpy(starts.more(sizeof(start)), &start, sizeof(start));
}

void PacketColumn::cut(size_t rows) {
    if (stride_) {
        data.cut(rows * stride_);
        return;
    }
    int64_t end;
    std::memcpy(&end, starts.data() + rows * sizeof(end), sizeof(end));
    starts.cut((rows + 1) * sizeof(end));
    data.cut(static_cast<size_t>(end) * unit_);
}

void PacketColumn::fit() {
    data.fit();
    starts.fit();
}

PacketColumns::PacketColumns(const PacketLayout &layout) : layout_(layout) {
    for (const PacketField &field : layout.fields)
        columns.emplace_back(field, layout.swapped);
}

bool PacketColumns::append(Slice packet) {
    PacketRows found(layout_.needs, layout_.array, packet);
    size_t good = 0, bad = 0;
    while (found.next()) {
        if (!found.fits()) {
            ++bad;
            continue;
        }
        for (PacketColumn &column : columns)
            column.append(found.slots());
        ++good;
    }
    if (found.odd()) {
        for (PacketColumn &column : columns)
            column.cut(rows);
        return false;
    }
    rows += good;
    unreadable += bad;
    return true;
}

void PacketColumns::fit() {
    for (PacketColumn &column : columns)
        column.fit();
}

} // namespace igsdk

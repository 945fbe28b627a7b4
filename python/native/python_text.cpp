// SPDX-License-Identifier: Apache-2.0
#include "python_text.h"
#include "remote_memory.h"

#include <algorithm>
#include <cstring>

namespace igsdk {
namespace {

constexpr uint32_t replacement = 0xfffd;
constexpr size_t max_c_string = 4096;

uint32_t point_at(const uint8_t *bytes, uint32_t kind) {
    uint32_t point = 0;
    std::memcpy(&point, bytes, kind); // little-endian, as all machines that we run on
    bool surrogate = point >= 0xd800 && point < 0xe000;
    bool escape = point >= 0xdc80 && point < 0xdd00;
    return point > 0x10ffff || (surrogate && !escape) ? replacement : point;
}

void append(std::string &text, uint32_t point) {
    auto tail = [&](int shift) { text += static_cast<char>(0x80 | (point >> shift & 0x3f)); };
    if (point < 0x80) {
        text += static_cast<char>(point);
    } else if (point < 0x800) {
        text += static_cast<char>(0xc0 | point >> 6);
        tail(0);
    } else if (point < 0x10000) {
        text += static_cast<char>(0xe0 | point >> 12);
        tail(6);
        tail(0);
    } else {
        text += static_cast<char>(0xf0 | point >> 18);
        tail(12);
        tail(6);
        tail(0);
    }
}

uint32_t word_at(uint32_t pid, uint64_t address, bool &known) {
    uint32_t word = 0;
    known = known && read_process(pid, address, &word, sizeof(word));
    return word;
}

// The same object is still there, and no other in its place.
bool has_length(uint32_t pid, uint64_t address, uint64_t length) {
    uint64_t now = 0;
    return read_process(pid, address, &now, sizeof(now)) && now == length;
}

// Where the characters of a string stand; 0 where it is not the one that was told of.
uint64_t find_points(uint32_t pid, const igsdk_python &layout, const igsdk_python_string &head) {
    bool known = has_length(pid, head.object + layout.string_length, head.length);
    uint32_t state = word_at(pid, head.object + layout.string_state, known);
    if (!known || (state >> (layout.string_kind_shift & 31) & 7) != head.kind)
        return 0;
    bool ascii = state >> (layout.string_ascii_bit & 31) & 1;
    return head.object + (ascii ? layout.string_ascii_data : layout.string_data);
}

// All bytes, "" where they are not what was seen of them.
std::string read_whole(uint32_t pid, uint64_t address, size_t size, const uint8_t *seen,
                       size_t n_seen) {
    std::string whole(size, '\0');
    if (!address || !read_process(pid, address, whole.data(), size) ||
        std::memcmp(whole.data(), seen, n_seen) != 0)
        return {};
    return whole;
}

} // namespace

std::string decode_points(const uint8_t *bytes, size_t size, uint32_t kind) {
    std::string text;
    if (kind != 1 && kind != 2 && kind != 4)
        return text;
    text.reserve(size / kind);
    for (size_t at = 0; at + kind <= size; at += kind)
        append(text, point_at(bytes + at, kind));
    return text;
}

Taken take_text(uint32_t pid, const std::optional<igsdk_python> &layout,
                const igsdk_python_string &head, const uint8_t *bytes, size_t room) {
    if (head.kind != 1 && head.kind != 2 && head.kind != 4)
        return {"", false};
    bool too_long = head.length > kMaxObjectBytes / head.kind;
    size_t size = too_long ? kMaxObjectBytes : head.length * head.kind;
    size_t taken = std::min<size_t>({head.taken, room, size});
    if (taken == size)
        return {decode_points(bytes, size, head.kind), !too_long};
    if (layout && !too_long) {
        uint64_t points = find_points(pid, *layout, head);
        std::string whole = read_whole(pid, points, size, bytes, taken);
        if (!whole.empty())
            return {decode_points(reinterpret_cast<const uint8_t *>(whole.data()), size, head.kind),
                    true};
    }
    return {decode_points(bytes, taken, head.kind), false};
}

Taken take_bytes(uint32_t pid, const std::optional<igsdk_python> &layout, uint64_t object,
                 uint64_t length, const uint8_t *bytes, size_t taken, size_t room) {
    taken = std::min<size_t>({taken, room, length});
    std::string start(reinterpret_cast<const char *>(bytes), taken);
    if (taken == length)
        return {std::move(start), true};
    if (!layout || length > kMaxObjectBytes ||
        !has_length(pid, object + layout->bytes_size, length))
        return {std::move(start), false};
    std::string whole = read_whole(pid, object + layout->bytes_data, length, bytes, taken);
    return whole.empty() ? Taken{std::move(start), false} : Taken{std::move(whole), true};
}

std::string take_c_string(uint32_t pid, uint64_t address, const char *bytes, size_t taken,
                          size_t room) {
    std::string start(bytes, ::strnlen(bytes, std::min(taken, room)));
    if (taken < room)
        return start;
    std::string whole;
    char piece[256];
    // pieces that end with their page: the next one may not be there
    for (uint64_t at = address; whole.size() < max_c_string;) {
        size_t size = sizeof(piece) - at % sizeof(piece), length;
        if (!read_process(pid, at, piece, size))
            return start;
        whole.append(piece, length = ::strnlen(piece, size));
        if (length < size)
            break;
        at += size;
    }
    return whole.compare(0, start.size(), start) == 0 ? whole : start;
}

} // namespace igsdk

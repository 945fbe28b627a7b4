// SPDX-License-Identifier: Apache-2.0
#include "punycode.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace igsdk {

void put_utf8(std::string &text, uint32_t code) {
    if (code < 0x80) {
        text += static_cast<char>(code);
        return;
    }
    if (code >= 0x10000)
        text += static_cast<char>(0xf0 | code >> 18);
    if (code >= 0x800)
        text += static_cast<char>((code >= 0x10000 ? 0x80 : 0xe0) | (code >> 12 & 0x3f));
    text += static_cast<char>((code >= 0x800 ? 0x80 : 0xc0) | (code >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (code & 0x3f));
}

bool is_character(uint64_t code) { return code < 0x110000 && !(code >= 0xd800 && code < 0xe000); }

namespace {

class Punycode {
  public:
    explicit Punycode(std::string_view text) {
        size_t end = text.rfind('_');
        if (end != std::string_view::npos) {
            out_.assign(text.begin(), text.begin() + static_cast<ptrdiff_t>(end));
            text.remove_prefix(end + 1);
        }
        rest_ = text;
    }

    std::string decode() {
        uint64_t code = 128, at = 0, bias = 72;
        for (bool first = true; !rest_.empty(); first = false) {
            uint64_t before = at;
            at += delta(bias);
            bias = adapt(at - before, out_.size() + 1, first);
            code += at / (out_.size() + 1);
            at %= out_.size() + 1;
            if (!is_character(code))
                throw Malformed();
            out_.insert(out_.begin() + static_cast<ptrdiff_t>(at), static_cast<uint32_t>(code));
            at++;
        }
        std::string text;
        for (uint32_t character : out_)
            put_utf8(text, character);
        return text;
    }

  private:
    uint64_t digit() {
        if (rest_.empty())
            throw Malformed();
        char c = rest_.front();
        rest_.remove_prefix(1);
        if (c >= 'a' && c <= 'z')
            return static_cast<uint64_t>(c - 'a');
        if (c >= '0' && c <= '9')
            return static_cast<uint64_t>(c - '0') + 26;
        throw Malformed();
    }

    uint64_t delta(uint64_t bias) {
        uint64_t sum = 0, weight = 1;
        for (uint64_t k = 36;; k += 36) {
            uint64_t d = digit();
            sum += d * weight;
            uint64_t threshold = k <= bias ? 1 : std::min<uint64_t>(k - bias, 26);
            if (d < threshold)
                return sum;
            weight *= 36 - threshold;
            if (weight > UINT32_MAX || sum > UINT32_MAX)
                throw Malformed();
        }
    }

    static uint64_t adapt(uint64_t delta, uint64_t count, bool first) {
        delta /= first ? 700 : 2;
        delta += delta / count;
        uint64_t k = 0;
        for (; delta > 455; k += 36)
            delta /= 35;
        return k + 36 * delta / (delta + 38);
    }

    std::vector<uint32_t> out_;
    std::string_view rest_;
};

} // namespace

std::string from_punycode(std::string_view text) { return Punycode(text).decode(); }

} // namespace igsdk

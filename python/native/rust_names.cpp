// SPDX-License-Identifier: Apache-2.0
#include "rust_names.h"

#include "punycode.h"

#include <algorithm>
#include <array>
#include <vector>

namespace igsdk {
namespace {

// What the compiler appended: ".cold", ".llvm.123", which says nothing.
std::string rust_suffix(std::string_view text) {
    if (text.substr(0, 6) != ".llvm.")
        return std::string(text);
    size_t end = text.find('.', 6);
    return end == std::string_view::npos ? std::string() : std::string(text.substr(end));
}

// The older form: pieces with their lengths, the last one "h" and sixteen digits.
class Legacy {
  public:
    explicit Legacy(std::string_view rest) : rest_(rest) {}

    std::optional<std::string> read() {
        std::vector<std::string_view> pieces;
        while (!rest_.empty() && rest_.front() != 'E') {
            auto piece = next();
            if (piece.empty())
                return std::nullopt;
            pieces.push_back(piece);
        }
        if (rest_.empty() || pieces.size() < 2 || !is_hash(pieces.back()))
            return std::nullopt;
        pieces.pop_back();
        std::string text;
        for (std::string_view piece : pieces)
            text += (text.empty() ? "" : "::") + plain(piece);
        return text + rust_suffix(rest_.substr(1));
    }

  private:
    std::string_view next() {
        size_t size = 0, n = 0;
        while (n < rest_.size() && n < 5 && rest_[n] >= '0' && rest_[n] <= '9')
            size = size * 10 + static_cast<size_t>(rest_[n++] - '0');
        if (size > rest_.size() - n)
            return {};
        std::string_view piece = rest_.substr(n, size);
        rest_.remove_prefix(n + size);
        return piece;
    }

    static bool is_hash(std::string_view text) {
        return text.size() == 17 && text[0] == 'h' &&
               text.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos;
    }

    static std::string plain(std::string_view piece) {
        if (piece.substr(0, 2) == "_$")
            piece.remove_prefix(1);
        std::string text;
        while (!piece.empty()) {
            size_t end = piece[0] == '$' ? piece.find('$', 1) : std::string_view::npos;
            if (end != std::string_view::npos && unescape(piece.substr(1, end - 1), text)) {
                piece.remove_prefix(end + 1);
            } else if (piece.substr(0, 2) == "..") {
                text += "::";
                piece.remove_prefix(2);
            } else {
                text += piece[0];
                piece.remove_prefix(1);
            }
        }
        return text;
    }

    static bool unescape(std::string_view code, std::string &text) {
        static constexpr std::array<std::pair<std::string_view, char>, 8> kNamed{{
            {"SP", '@'},
            {"BP", '*'},
            {"RF", '&'},
            {"LT", '<'},
            {"GT", '>'},
            {"LP", '('},
            {"RP", ')'},
            {"C", ','},
        }};
        for (auto [name, character] : kNamed)
            if (code == name) {
                text += character;
                return true;
            }
        if (code.size() < 2 || code.size() > 7 || code[0] != 'u' ||
            code.find_first_not_of("0123456789abcdef", 1) != std::string_view::npos)
            return false;
        auto value = std::stoul(std::string(code.substr(1)), nullptr, 16);
        if (!is_character(value) || value < 0x20)
            return false;
        put_utf8(text, static_cast<uint32_t>(value));
        return true;
    }

    std::string_view rest_;
};

} // namespace

std::optional<std::string> rust_name(const std::string &symbol) {
    std::string_view text(symbol);
    if (text.substr(0, 3) == "_ZN")
        return Legacy(text.substr(3)).read();
    if (text.substr(0, 2) != "_R")
        return std::nullopt;
    size_t end = std::min(text.find('.'), text.size());
    auto name = rust_v0_name(text.substr(2, end - 2));
    return name ? std::optional<std::string>(*name + rust_suffix(text.substr(end))) : std::nullopt;
}

} // namespace igsdk

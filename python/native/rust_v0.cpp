// SPDX-License-Identifier: Apache-2.0
// The present form of Rust's symbol names, RFC 2603.
#include "punycode.h"
#include "rust_names.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace igsdk {
namespace {

constexpr size_t kMaxOutput = 16 * 1024;
constexpr size_t kMaxDepth = 128;

const char *basic_type(char tag) {
    static constexpr std::array<const char *, 26> kNames{
        "i8",    "bool",  "char", "f64", "str",   "f32",  nullptr, "u8",    "isize",
        "usize", nullptr, "i32",  "u32", "i128",  "u128", "_",     nullptr, nullptr,
        "i16",   "u16",   "()",   "...", nullptr, "i64",  "u64",   "!",
    };
    return tag >= 'a' && tag <= 'z' ? kNames[static_cast<size_t>(tag - 'a')] : nullptr;
}

// Reads the name once, from left to right, and writes what it means.
class V0 {
  public:
    explicit V0(std::string_view name) : name_(name) {}

    std::string read() {
        path(true);
        // The crate that asked for this instance is not part of what a person reads.
        return std::move(out_);
    }

  private:
    struct Level {
        explicit Level(V0 &reader) : reader(reader) {
            if (++reader.depth_ > kMaxDepth || reader.out_.size() > kMaxOutput)
                throw Malformed();
        }
        ~Level() { reader.depth_--; }
        V0 &reader;
    };
    struct Identifier {
        std::string text;
        uint64_t disambiguator;
    };

    char next() {
        if (at_ >= name_.size())
            throw Malformed();
        return name_[at_++];
    }
    bool take(char wanted) {
        if (at_ >= name_.size() || name_[at_] != wanted)
            return false;
        at_++;
        return true;
    }
    void put(std::string_view text) {
        if (!quiet_)
            out_ += text;
    }

    uint64_t base62() {
        if (take('_'))
            return 0;
        uint64_t value = 0;
        for (char c; (c = next()) != '_';) {
            uint64_t digit = 0;
            if (c >= '0' && c <= '9')
                digit = static_cast<uint64_t>(c - '0');
            else if (c >= 'a' && c <= 'z')
                digit = static_cast<uint64_t>(c - 'a') + 10;
            else if (c >= 'A' && c <= 'Z')
                digit = static_cast<uint64_t>(c - 'A') + 36;
            else
                throw Malformed();
            if (value > (UINT64_MAX - 62) / 62)
                throw Malformed();
            value = value * 62 + digit;
        }
        return value + 1;
    }

    uint64_t optional62(char tag) { return take(tag) ? base62() + 1 : 0; }

    size_t decimal() {
        char first = next();
        if (first < '0' || first > '9')
            throw Malformed();
        auto value = static_cast<size_t>(first - '0');
        while (value && at_ < name_.size() && name_[at_] >= '0' && name_[at_] <= '9') {
            value = value * 10 + static_cast<size_t>(name_[at_++] - '0');
            if (value > name_.size())
                throw Malformed();
        }
        return value;
    }

    std::string plain_identifier() {
        bool punycode = take('u');
        size_t size = decimal();
        take('_');
        if (size > name_.size() - at_)
            throw Malformed();
        std::string_view text = name_.substr(at_, size);
        at_ += size;
        return punycode ? from_punycode(text) : std::string(text);
    }

    Identifier identifier() {
        uint64_t disambiguator = optional62('s');
        return {plain_identifier(), disambiguator};
    }

    // Goes on reading where the name has said the same before.
    template <typename Body> void again(Body body) {
        size_t start = at_ - 1;
        uint64_t to = base62();
        if (to >= start)
            throw Malformed();
        if (quiet_)
            return;
        size_t back = at_;
        at_ = to;
        body();
        at_ = back;
    }

    // `value`: arguments of generics stand behind "::<", as in an expression.
    void path(bool value) {
        Level level(*this);
        switch (next()) {
        case 'C':
            put(identifier().text);
            break;
        case 'M':
            implementation();
            put("<");
            type();
            put(">");
            break;
        case 'X':
            implementation();
            as_trait();
            break;
        case 'Y':
            as_trait();
            break;
        case 'N':
            nested(value);
            break;
        case 'I':
            path(value);
            put(value ? "::<" : "<");
            list([this] { argument(); });
            put(">");
            break;
        case 'B':
            again([&] { path(value); });
            break;
        default:
            throw Malformed();
        }
    }

    // Where an `impl` stands says less than what it is of.
    void implementation() {
        optional62('s');
        bool before = quiet_;
        quiet_ = true;
        path(false);
        quiet_ = before;
    }

    void as_trait() {
        put("<");
        type();
        put(" as ");
        path(false);
        put(">");
    }

    void nested(bool value) {
        char kind = next();
        if (!std::isalpha(static_cast<unsigned char>(kind)))
            throw Malformed();
        path(value);
        Identifier name = identifier();
        if (std::islower(static_cast<unsigned char>(kind))) {
            if (!name.text.empty())
                put("::" + name.text);
            return;
        }
        std::string what = kind == 'C' ? "closure" : kind == 'S' ? "shim" : std::string(1, kind);
        if (!name.text.empty())
            what += ":" + name.text;
        put("::{" + what + "#" + std::to_string(name.disambiguator) + "}");
    }

    template <typename Body> size_t list(Body body, std::string_view between = ", ") {
        size_t n = 0;
        for (; !take('E'); n++) {
            if (n)
                put(between);
            body();
        }
        return n;
    }

    void argument() {
        if (take('L'))
            lifetime(base62());
        else if (take('K'))
            constant();
        else
            type();
    }

    void lifetime(uint64_t index) {
        if (index == 0) {
            put("'_");
            return;
        }
        if (index > bound_)
            throw Malformed();
        uint64_t depth = bound_ - index;
        put("'" + (depth < 26 ? std::string(1, static_cast<char>('a' + depth))
                              : "_" + std::to_string(depth)));
    }

    // for<'a, 'b>, which hold until the body is over.
    template <typename Body> void binder(Body body) {
        uint64_t before = bound_, added = optional62('G');
        if (added > name_.size())
            throw Malformed();
        if (added)
            put("for<");
        for (uint64_t i = 0; i < added; i++) {
            put(i ? ", " : "");
            bound_++;
            lifetime(1);
        }
        if (added)
            put("> ");
        body();
        bound_ = before;
    }

    void type() {
        Level level(*this);
        char tag = next();
        if (const char *name = basic_type(tag)) {
            put(name);
            return;
        }
        switch (tag) {
        case 'R':
        case 'Q':
            put("&");
            if (take('L'))
                reference_lifetime(base62());
            put(tag == 'Q' ? "mut " : "");
            type();
            break;
        case 'P':
        case 'O':
            put(tag == 'P' ? "*const " : "*mut ");
            type();
            break;
        case 'A':
        case 'S':
            put("[");
            type();
            if (tag == 'A') {
                put("; ");
                constant();
            }
            put("]");
            break;
        case 'T':
            put("(");
            put(list([this] { type(); }) == 1 ? ",)" : ")");
            break;
        case 'F':
            binder([this] { function(); });
            break;
        case 'D':
            put("dyn ");
            binder([this] { list([this] { bound(); }, " + "); });
            trait_lifetime();
            break;
        case 'B':
            again([this] { type(); });
            break;
        default:
            at_--;
            path(false);
        }
    }

    void reference_lifetime(uint64_t index) {
        if (index == 0)
            return;
        lifetime(index);
        put(" ");
    }

    void trait_lifetime() {
        if (!take('L'))
            throw Malformed();
        if (uint64_t index = base62()) {
            put(" + ");
            lifetime(index);
        }
    }

    void function() {
        put(take('U') ? "unsafe " : "");
        if (take('K')) {
            std::string abi = take('C') ? "C" : plain_identifier();
            std::replace(abi.begin(), abi.end(), '_', '-');
            put("extern \"" + abi + "\" ");
        }
        put("fn(");
        list([this] { type(); });
        put(")");
        if (take('u'))
            return;
        put(" -> ");
        type();
    }

    // One trait of `dyn A + B`, whose associated types stand among its arguments.
    void bound() {
        bool open = open_path();
        while (take('p')) {
            put(open ? ", " : "<");
            open = true;
            put(plain_identifier() + " = ");
            type();
        }
        put(open ? ">" : "");
    }

    bool open_path() {
        Level level(*this);
        if (take('B')) {
            bool open = false;
            again([&] { open = open_path(); });
            return open;
        }
        if (!take('I')) {
            path(false);
            return false;
        }
        path(false);
        put("<");
        list([this] { argument(); });
        return true;
    }

    void constant() {
        Level level(*this);
        char tag = next();
        switch (tag) {
        case 'p':
            put("_");
            break;
        case 'B':
            again([this] { constant(); });
            break;
        case 'b':
            put(number() == "1" ? "true" : "false");
            break;
        case 'c':
            character();
            break;
        case 'e': // a place of that type
            put("*\"");
            string();
            put("\"");
            break;
        case 'R':
        case 'Q':
            reference(tag);
            break;
        case 'A':
            put("[");
            list([this] { constant(); });
            put("]");
            break;
        case 'T':
            put("(");
            put(list([this] { constant(); }) == 1 ? ",)" : ")");
            break;
        case 'V':
            structure();
            break;
        default:
            if (!basic_type(tag))
                throw Malformed();
            put(take('n') ? "-" : "");
            put(number());
        }
    }

    void reference(char tag) {
        if (tag == 'R' && take('e')) {
            put("\"");
            string();
            put("\"");
            return;
        }
        put(tag == 'R' ? "&" : "&mut ");
        constant();
    }

    void structure() {
        path(true);
        switch (next()) {
        case 'U':
            break;
        case 'T':
            put("(");
            list([this] { constant(); });
            put(")");
            break;
        case 'S':
            put(" { ");
            list([this] {
                put(identifier().text + ": ");
                constant();
            });
            put(" }");
            break;
        default:
            throw Malformed();
        }
    }

    std::string_view digits() {
        size_t start = at_;
        for (char c; (c = next()) != '_';)
            if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f'))
                throw Malformed();
        return name_.substr(start, at_ - 1 - start);
    }

    static uint64_t hex(std::string_view text) {
        uint64_t value = 0;
        for (char c : text)
            value = value << 4 | static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
        return value;
    }

    std::string number() {
        std::string_view text = digits();
        while (text.size() > 1 && text.front() == '0')
            text.remove_prefix(1);
        return text.size() > 16 ? "0x" + std::string(text) : std::to_string(hex(text));
    }

    void character() {
        std::string_view text = digits();
        uint64_t code = hex(text);
        if (text.size() > 8 || !is_character(code))
            throw Malformed();
        std::string out = "'";
        put_utf8(out, static_cast<uint32_t>(code));
        put(out + "'");
    }

    void string() {
        std::string_view text = digits();
        std::string out;
        for (size_t i = 0; i + 1 < text.size(); i += 2)
            out += static_cast<char>(hex(text.substr(i, 2)));
        put(out);
    }

    std::string_view name_;
    size_t at_ = 0, depth_ = 0;
    uint64_t bound_ = 0;
    bool quiet_ = false;
    std::string out_;
};

} // namespace

std::optional<std::string> rust_v0_name(std::string_view name) {
    try {
        return V0(name).read();
    } catch (const Malformed &) {
        return std::nullopt;
    }
}

} // namespace igsdk

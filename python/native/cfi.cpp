// SPDX-License-Identifier: Apache-2.0
#include "cfi.h"
#include "code_rules.h"
#include "frame_guard.h"
#include "machine.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <libelf.h>
#include <utility>

namespace igsdk {
namespace {

constexpr size_t kMaxKnown = 16384;   // addresses of one file
constexpr size_t kMaxDistinct = 4096; // different rules of one file
constexpr size_t kMaxOperations = 255;
constexpr size_t kMaxWeight = 1 << 20; // of what all files keep, in some 100 bytes

std::atomic<size_t> all_weight{0};

// A file in memory that holds one common entry and one entry, and nothing else: so libdw
// sees only what was looked through before, and no file can change under it.
class SmallElf {
  public:
    SmallElf(const FrameEntry &entry, uint16_t machine) {
        bytes_.resize(sizeof(Elf64_Ehdr));
        uint64_t start = bytes_.size();
        add_common(entry);
        add_entry(entry, start);
        bytes_.append(8, '\0'); // the end of all entries
        uint64_t end = bytes_.size();
        bytes_.append("\0.eh_frame\0.shstrtab\0\0\0", 24);
        add_headers(start, end, machine);
    }

    char *data() { return bytes_.data(); }
    size_t size() const { return bytes_.size(); }

  private:
    template <typename T> void add(T value) {
        bytes_.append(reinterpret_cast<const char *>(&value), sizeof(value));
    }

    void add_uleb(uint64_t value) {
        do {
            uint8_t low = value & 0x7f;
            value >>= 7;
            add<uint8_t>(low | (value ? 0x80 : 0));
        } while (value);
    }

    void add_sleb(int64_t value) {
        for (bool more = true; more;) {
            uint8_t low = value & 0x7f;
            value >>= 7;
            more = value != (low & 0x40 ? -1 : 0);
            add<uint8_t>(low | (more ? 0x80 : 0));
        }
    }

    // Writes the length of what was added since `start`, padded to eight bytes.
    void close(size_t start) {
        bytes_.append((8 - (bytes_.size() - start) % 8) % 8, DW_CFA_nop);
        auto length = static_cast<uint32_t>(bytes_.size() - start - 4);
        std::memcpy(bytes_.data() + start, &length, sizeof(length));
    }

    void add_common(const FrameEntry &entry) {
        size_t start = bytes_.size();
        add<uint64_t>(0); // length, and the mark of a common entry
        add<uint8_t>(1);
        bytes_.append(entry.signal ? "zRS" : "zR");
        add<uint8_t>(0);
        add_uleb(entry.code_align);
        add_sleb(entry.data_align);
        add<uint8_t>(entry.return_register);
        add<uint8_t>(1);
        add<uint8_t>(DW_EH_PE_absptr);
        bytes_.append(entry.common);
        close(start);
    }

    void add_entry(const FrameEntry &entry, uint64_t common) {
        size_t start = bytes_.size();
        add<uint32_t>(0);
        add(static_cast<uint32_t>(start + 4 - common));
        add(entry.start);
        add(entry.end - entry.start);
        add<uint8_t>(0);
        bytes_.append(entry.own);
        close(start);
    }

    void add_headers(uint64_t start, uint64_t end, uint16_t machine) {
        bytes_.append((8 - bytes_.size() % 8) % 8, '\0');
        Elf64_Ehdr header{};
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        header.e_ident[EI_DATA] = ELFDATA2LSB;
        header.e_ident[EI_VERSION] = EV_CURRENT;
        header.e_type = ET_DYN;
        header.e_machine = machine;
        header.e_version = EV_CURRENT;
        header.e_ehsize = sizeof(Elf64_Ehdr);
        header.e_shoff = bytes_.size();
        header.e_shentsize = sizeof(Elf64_Shdr);
        header.e_shnum = 3;
        header.e_shstrndx = 2;
        std::memcpy(bytes_.data(), &header, sizeof(header));
        add(Elf64_Shdr{});
        add(Elf64_Shdr{1, SHT_PROGBITS, SHF_ALLOC, start, start, end - start, 0, 0, 8, 0});
        add(Elf64_Shdr{11, SHT_STRTAB, 0, 0, end, 24, 0, 0, 1, 0});
    }

    std::string bytes_;
};

// Owns what libdw hands out for one entry.
class Frame {
  public:
    Frame(SmallElf &image, uint64_t address) {
        elf_ = elf_memory(image.data(), image.size());
        tables_ = elf_ ? dwarf_getcfi_elf(elf_) : nullptr;
        if (tables_ && dwarf_cfi_addrframe(tables_, address, &frame_) != 0)
            frame_ = nullptr;
    }
    Frame(const Frame &) = delete;
    Frame &operator=(const Frame &) = delete;
    ~Frame() {
        std::free(frame_);
        if (tables_)
            dwarf_cfi_end(tables_);
        elf_end(elf_);
    }

    Dwarf_Frame *get() const { return frame_; }

  private:
    Elf *elf_;
    Dwarf_CFI *tables_;
    Dwarf_Frame *frame_ = nullptr;
};

// Translates libdw's location descriptions into rules.
class Translation {
  public:
    explicit Translation(Dwarf_Frame *frame) : frame_(frame) {}

    bool run(FrameRules &rules) {
        Dwarf_Op *operations = nullptr;
        size_t count = 0;
        int number = dwarf_frame_info(frame_, nullptr, nullptr, &rules.signal);
        if (number < 0 || number >= 64 || dwarf_frame_cfa(frame_, &operations, &count) != 0 ||
            count == 0)
            return false;
        rules.return_register = static_cast<uint8_t>(number);
        if (!add_cfa(rules, operations, count))
            return false;
        for (unsigned i = 0; i < kMachine.registers; i++)
            if (!add_register(rules, static_cast<uint8_t>(i)))
                return false;
        return true;
    }

  private:
    bool add_cfa(FrameRules &rules, const Dwarf_Op *operations, size_t count) {
        const Dwarf_Op &first = operations[0];
        Rule &cfa = rules.cfa;
        if (count > 1 || (first.atom != DW_OP_bregx && !is_breg(first))) {
            cfa.how = Rule::How::value_expression;
            return add_operations(rules, cfa, operations, count);
        }
        uint64_t base = first.atom == DW_OP_bregx ? first.number : first.atom - DW_OP_breg0;
        cfa.how = Rule::How::moved;
        cfa.base = static_cast<uint8_t>(base);
        cfa.offset = static_cast<int64_t>(first.atom == DW_OP_bregx ? first.number2 : first.number);
        return base < 64;
    }

    static bool is_breg(const Dwarf_Op &operation) {
        return operation.atom >= DW_OP_breg0 && operation.atom <= DW_OP_breg31;
    }

    bool add_register(FrameRules &rules, uint8_t number) {
        Dwarf_Op memory[3];
        Dwarf_Op *operations = nullptr;
        size_t count = 0;
        if (dwarf_frame_register(frame_, number, memory, &operations, &count) != 0)
            return false;
        if (!operations) // the call leaves it alone
            return true;
        Rule rule;
        rule.target = number;
        if (count == 0) {
            rules.lost |= uint64_t{1} << number;
            rules.return_undefined |= number == rules.return_register;
            return true;
        }
        if (!translate(rules, rule, operations, count))
            return false;
        bool usual = number == kMachine.stack && rule.how == Rule::How::value && rule.offset == 0;
        if (!usual)
            rules.registers.push_back(rule);
        return true;
    }

    // The forms that libdw makes: [cfa (+ n) (value)], [register], or an expression that
    // begins with the CFA.
    bool translate(FrameRules &rules, Rule &rule, const Dwarf_Op *operations, size_t count) {
        if (operations[0].atom == DW_OP_regx || is_reg(operations[0])) {
            uint64_t base =
                is_reg(operations[0]) ? operations[0].atom - DW_OP_reg0 : operations[0].number;
            rule.how = Rule::How::moved;
            rule.base = static_cast<uint8_t>(base);
            return base < 64;
        }
        bool value = operations[count - 1].atom == DW_OP_stack_value;
        count -= value;
        if (count == 0 || operations[0].atom != DW_OP_call_frame_cfa)
            return false;
        if (count == 1 || (count == 2 && operations[1].atom == DW_OP_plus_uconst)) {
            rule.how = value ? Rule::How::value : Rule::How::saved;
            rule.offset = count == 1 ? 0 : static_cast<int64_t>(operations[1].number);
            return true;
        }
        rule.how = value ? Rule::How::value_expression : Rule::How::saved_expression;
        return add_operations(rules, rule, operations + 1, count - 1);
    }

    static bool is_reg(const Dwarf_Op &operation) {
        return operation.atom >= DW_OP_reg0 && operation.atom <= DW_OP_reg31;
    }

    bool add_operations(FrameRules &rules, Rule &rule, const Dwarf_Op *operations, size_t count) {
        if (count > kMaxOperations)
            return false;
        rule.first_operation = static_cast<uint32_t>(rules.operations.size());
        rule.n_operations = static_cast<uint8_t>(count);
        for (size_t i = 0; i < count; i++)
            rules.operations.push_back(
                {operations[i].atom, operations[i].number, operations[i].number2});
        return true;
    }

    Dwarf_Frame *frame_;
};

template <typename T> void add_bytes(std::string &key, const T &value) {
    key.append(reinterpret_cast<const char *>(&value), sizeof(value));
}

void add_rule(std::string &key, const Rule &rule) {
    add_bytes(key, rule.how);
    add_bytes(key, rule.target);
    add_bytes(key, rule.base);
    add_bytes(key, rule.n_operations);
    add_bytes(key, rule.offset);
}

// Equal rules have equal keys.
std::string key_of(const FrameRules &rules) {
    std::string key;
    add_rule(key, rules.cfa);
    for (const Rule &rule : rules.registers)
        add_rule(key, rule);
    for (const Operation &operation : rules.operations) {
        add_bytes(key, operation.atom);
        add_bytes(key, operation.number);
        add_bytes(key, operation.number2);
    }
    add_bytes(key, rules.lost);
    add_bytes(key, rules.return_register);
    add_bytes(key, rules.return_undefined);
    add_bytes(key, rules.signal);
    add_bytes(key, rules.entered);
    add_bytes(key, rules.guessed);
    return key;
}

} // namespace

std::shared_ptr<const FrameRules> rules_at(const FrameEntry &entry, uint64_t address,
                                           uint16_t machine) {
    FrameEntry guarded = entry;
    if (machine != kMachine.elf || !guard_frame_program(guarded.common, machine) ||
        !guard_frame_program(guarded.own, machine))
        return nullptr;
    elf_version(EV_CURRENT);
    SmallElf image(guarded, machine);
    Frame frame(image, address);
    auto rules = std::make_shared<FrameRules>();
    if (!frame.get() || !Translation(frame.get()).run(*rules))
        return nullptr;
    return rules;
}

FrameTables &CallFrames::tables() {
    if (!tables_)
        tables_ = std::make_unique<FrameTables>(fd_);
    return *tables_;
}

std::shared_ptr<const FrameRules> CallFrames::at(uint64_t offset, bool caller) {
    std::lock_guard<std::mutex> guard(lock_);
    uint64_t key = offset << 1 | caller;
    auto found = known_.find(key);
    if (found != known_.end())
        return found->second;
    auto rules = look_up(offset, caller);
    if (rules)
        rules = shared(std::move(rules));
    if (make_room(rules.get()))
        known_[key] = rules;
    return rules;
}

// An address costs little, rules may have hundreds of operations. Files are many, and made
// by whoever wants our memory.
bool CallFrames::make_room(const FrameRules *rules) {
    size_t weight = 1 + (rules && rules->operations.size() > 8 ? rules->operations.size() : 0);
    if (known_.size() >= kMaxKnown || all_weight + weight > kMaxWeight)
        drop();
    if (all_weight + weight > kMaxWeight)
        return false;
    all_weight += weight;
    weight_ += weight;
    return true;
}

void CallFrames::drop() {
    known_.clear();
    distinct_.clear();
    all_weight -= std::exchange(weight_, 0);
}

std::shared_ptr<const FrameRules> CallFrames::look_up(uint64_t offset, bool caller) {
    std::string code = tables().read_some(offset, kCodeBytes);
    auto address = tables().address_of(offset);
    // A signal handler returns to code that nothing called.
    bool resumes = is_signal_return(code);
    if (address)
        if (auto rules = by_tables(*address - (caller && !resumes)))
            if (rules->signal || !resumes)
                return rules;
    if (address && starts_at(*address))
        return outermost_rules();
    auto rules = rules_of_code(code);
    return rules || !address || !caller ? rules : by_entry(*address, code);
}

std::shared_ptr<const FrameRules> CallFrames::by_tables(uint64_t address) {
    FrameEntry entry;
    return tables().find(address, entry) ? rules_at(entry, address, tables().machine()) : nullptr;
}

// Many addresses have the same few rules.
std::shared_ptr<const FrameRules> CallFrames::shared(std::shared_ptr<const FrameRules> rules) {
    if (distinct_.size() >= kMaxDistinct)
        distinct_.clear();
    return distinct_.try_emplace(key_of(*rules), rules).first->second;
}

// A new context returns to the first instruction of what is to run at its end.
std::shared_ptr<const FrameRules> CallFrames::by_entry(uint64_t address, const std::string &code) {
    auto rules = by_tables(address);
    if (!rules)
        return nullptr;
    if (ends_context(code))
        return outermost_rules();
    auto entered = std::make_shared<FrameRules>(*rules);
    entered->entered = true;
    return entered;
}

bool CallFrames::starts_at(uint64_t address) {
    constexpr uint64_t kStartBytes = 96; // of code, before it calls what it starts
    uint64_t entry = tables().entry();
    return entry && address >= entry && address - entry < kStartBytes;
}

} // namespace igsdk

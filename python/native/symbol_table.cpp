// SPDX-License-Identifier: Apache-2.0
#include "symbol_table.h"

#include "debug_image.h"
#include "demangle.h"

#include <algorithm>
#include <set>

namespace igsdk {
namespace {

// All tables there are, to keep what they remember together within bounds.
class Tables {
  public:
    void add(SymbolTable *table) {
        std::lock_guard<std::mutex> guard(lock_);
        all_.insert(table);
    }

    void remove(SymbolTable *table) {
        std::lock_guard<std::mutex> guard(lock_);
        all_.erase(table);
    }

    uint64_t tick() { return ++time_; }

    // Called without any table's lock; those in use by others stay as they are.
    void trim(const SymbolTable *keep) {
        std::lock_guard<std::mutex> guard(lock_);
        uint64_t sum = 0;
        std::vector<SymbolTable *> oldest;
        for (SymbolTable *table : all_) {
            sum += table->memory();
            if (table != keep && table->memory())
                oldest.push_back(table);
        }
        if (sum <= kMaxTableMemory)
            return;
        std::sort(oldest.begin(), oldest.end(), [](const SymbolTable *a, const SymbolTable *b) {
            return a->last_used() < b->last_used();
        });
        for (auto table = oldest.begin(); table != oldest.end() && sum > kMaxTableMemory; ++table) {
            uint64_t had = (*table)->memory();
            if ((*table)->forget())
                sum -= had;
        }
    }

  private:
    std::mutex lock_;
    std::set<SymbolTable *> all_;
    std::atomic<uint64_t> time_{0};
};

Tables &tables() {
    static Tables *all = new Tables(); // outlives what Python destroys last
    return *all;
}

std::string function_name(const SourceFrame &frame) {
    return frame.mangled ? demangled(frame.function) : frame.function;
}

} // namespace

struct SymbolTable::Loaded {
    explicit Loaded(const ElfSections &file) : index(file) {}

    SymbolIndex index;
    bool debug_asked = false;
    std::shared_ptr<const Bytes> separate;
    std::string kind = "none";
    std::unique_ptr<DebugInfo> debug;
};

SymbolTable::SymbolTable(int fd, DebugSearch search)
    : SymbolTable(FileBytes::duplicate(fd), std::move(search)) {}

SymbolTable::SymbolTable(std::shared_ptr<const FileBytes> bytes, DebugSearch search)
    : sections_(bytes), search_(std::move(search)) {
    ElfFile file(std::move(bytes));
    code_ = file.code();
    build_id_ = file.build_id();
    tables().add(this);
}

SymbolTable::~SymbolTable() { tables().remove(this); }

// What may make more memory than there should be looks for some to give back.
template <typename Body> auto SymbolTable::locked(Body body) {
    struct Trim {
        SymbolTable *table;
        uint64_t before;
        ~Trim() {
            if (table->memory_ > before)
                tables().trim(table);
        }
    } trim{this, memory_};
    std::lock_guard<std::mutex> guard(lock_);
    last_used_ = tables().tick();
    auto result = body();
    if (loaded_)
        memory_ = loaded_->index.memory() + (loaded_->debug ? loaded_->debug->memory() : 0);
    return result;
}

bool SymbolTable::forget() {
    std::unique_lock<std::mutex> guard(lock_, std::try_to_lock);
    if (!guard)
        return false;
    loaded_.reset();
    memory_ = 0;
    return true;
}

SymbolTable::Loaded &SymbolTable::symbols() {
    if (!loaded_) {
        loaded_ = std::make_unique<Loaded>(sections_);
        load_symbols(*loaded_);
    }
    return *loaded_;
}

void SymbolTable::load_symbols(Loaded &loaded) {
    loaded.index.add(sections_);
    if (!sections_.find(SHT_SYMTAB)) {
        loaded.separate = find_debug_file(sections_, search_);
        if (loaded.separate)
            loaded.index.add(ElfSections(loaded.separate));
        if (auto mini = mini_debug_data(sections_))
            loaded.index.add(ElfSections(mini));
    }
    loaded.index.add_stubs(sections_);
}

SymbolTable::Loaded &SymbolTable::debug_info() {
    Loaded &loaded = symbols();
    if (!loaded.debug_asked) {
        loaded.debug_asked = true;
        load_debug(loaded);
    }
    return loaded;
}

void SymbolTable::load_debug(Loaded &loaded) {
    DebugKind kind = debug_kind(sections_, kMaxDebugBytes);
    bool own = kind != DebugKind::none;
    std::optional<ElfSections> source;
    if (own) {
        source.emplace(sections_);
    } else {
        if (!loaded.separate)
            loaded.separate = find_debug_file(sections_, search_);
        if (!loaded.separate)
            return;
        source.emplace(loaded.separate);
        kind = debug_kind(*source, kMaxDebugBytes);
    }
    if (kind == DebugKind::too_large)
        loaded.kind = "too large";
    if (kind != DebugKind::usable)
        return;
    auto image = debug_image(*source, kMaxDebugBytes);
    std::vector<char> shared;
    if (auto bytes = find_shared_debug_file(*source, search_))
        shared = debug_image(ElfSections(bytes), kMaxDebugBytes - image.size());
    if (!image.empty())
        loaded.debug = DebugInfo::of(std::move(image), std::move(shared));
    if (loaded.debug)
        loaded.kind = own ? "own" : "separate";
}

std::optional<uint64_t> SymbolTable::address_of(uint64_t offset) const {
    for (const Segment &segment : code_)
        if (offset >= segment.offset && offset - segment.offset < segment.size)
            return offset - segment.offset + segment.address;
    return std::nullopt;
}

SymbolTable::Place SymbolTable::lookup(uint64_t file_offset) {
    auto address = address_of(file_offset);
    return address ? lookup_address(*address) : std::nullopt;
}

SymbolTable::Place SymbolTable::lookup_address(uint64_t address) {
    auto found = locked([&] { return symbols().index.find(address); });
    if (!found)
        return std::nullopt;
    return std::make_pair(demangled(found->name), address - found->address);
}

std::vector<SymbolTable::Frame> SymbolTable::frames(uint64_t file_offset) {
    auto address = address_of(file_offset);
    return address ? frames_at(*address) : std::vector<Frame>();
}

// The outermost function by its symbol where there is one: it is the name that the
// file has without debug information too, and tells "name.cold" from "name".
std::vector<SymbolTable::Frame> SymbolTable::frames_at(uint64_t address) {
    std::optional<SymbolIndex::Found> symbol;
    auto source = locked([&] {
        Loaded &loaded = debug_info();
        symbol = loaded.index.find(address);
        return loaded.debug ? loaded.debug->frames(address) : std::vector<SourceFrame>();
    });
    if (source.empty() && symbol)
        source.emplace_back();
    if (symbol && (symbol->sized || source.back().function.empty())) {
        source.back().function = symbol->name;
        source.back().mangled = true;
    }
    std::vector<Frame> frames;
    for (SourceFrame &frame : source)
        if (!frame.function.empty())
            frames.push_back({function_name(frame), std::move(frame.file), frame.line});
    return frames;
}

size_t SymbolTable::size() {
    return locked([&] { return symbols().index.size(); });
}

bool SymbolTable::complete() {
    return locked([&] { return symbols().index.complete(); });
}

std::string SymbolTable::debug() {
    return locked([&] { return debug_info().kind; });
}

} // namespace igsdk

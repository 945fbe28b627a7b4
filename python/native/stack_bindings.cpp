// SPDX-License-Identifier: Apache-2.0
#include "stack_bindings.h"

#include "parts.h"

#include <bpf/bpf.h>
#include <sys/sysmacros.h>

namespace py = pybind11;

namespace igsdk {
namespace {

std::pair<std::vector<uint64_t>, std::vector<uint64_t>> pairs_of(const std::string &processes,
                                                                 const std::string &keys) {
    auto pairs = std::make_pair(words_of(processes), words_of(keys));
    if (pairs.first.size() != pairs.second.size())
        throw std::invalid_argument("there must be as many keys as processes");
    return pairs;
}

py::list native_frames(const RawStack &stack) {
    py::list frames;
    if (!stack.native)
        return frames;
    for (const Unwound::Frame &frame : stack.native->frames) {
        // where it goes on stands behind its call
        uint64_t call = frame.pc - (py::len(frames) ? 1 : 0);
        frames.append(py::make_tuple(frame.file, frame.file ? frame.offset : call, frame.pc));
    }
    return frames;
}

py::list python_frames(const RawStack &stack) {
    py::list frames;
    for (const RawStack::Python &frame : stack.python)
        frames.append(py::make_tuple(frame.code, frame.lasti, frame.type, frame.entry));
    return frames;
}

Fd make_map(const char *name, uint32_t key, uint32_t value) {
    Fd map(bpf_map_create(BPF_MAP_TYPE_HASH, name, key, value, 1024, nullptr));
    if (!map)
        throw_errno("bpf_map_create");
    return map;
}

size_t take(const std::map<std::string, size_t> &limits, const char *name, size_t otherwise) {
    auto found = limits.find(name);
    return found == limits.end() ? otherwise : found->second;
}

StackTable::Limits read_limits(const std::map<std::string, size_t> &given) {
    StackTable::Limits limits;
    limits.stacks = take(given, "stacks", limits.stacks);
    limits.keys = take(given, "keys", limits.keys);
    limits.key_seconds = take(given, "key_seconds", limits.key_seconds);
    limits.pending = take(given, "pending", limits.pending);
    limits.again = take(given, "again", limits.again);
    limits.places = take(given, "places", limits.places);
    limits.codes.codes = take(given, "codes", limits.codes.codes);
    limits.codes.text_bytes = take(given, "text_bytes", limits.codes.text_bytes);
    constexpr size_t ms = 1'000'000;
    Spaces::Limits &spaces = limits.spaces;
    spaces.keep_ended_ns = take(given, "keep_ended_ms", spaces.keep_ended_ns / ms) * ms;
    spaces.keep_files_ns = take(given, "keep_files_ms", spaces.keep_files_ns / ms) * ms;
    return limits;
}

// A table with maps of its own, which nothing in the kernel reads.
class HandTable {
  public:
    HandTable(MapWatch *watch, const std::map<std::string, size_t> &limits)
        : templates_(make_map("templates", sizeof(igsdk_template_key), sizeof(igsdk_template))),
          spaces_(make_map("spaces", sizeof(uint32_t), sizeof(igsdk_space))),
          sent_(make_map("sent_stacks", sizeof(uint64_t), sizeof(uint8_t))),
          table({templates_.get(), spaces_.get(), sent_.get()}, watch, read_limits(limits)) {}

    std::vector<std::pair<std::string, std::string>> templates() const {
        std::vector<std::pair<std::string, std::string>> found;
        igsdk_template_key key, *previous = nullptr;
        igsdk_template value;
        while (bpf_map_get_next_key(templates_.get(), previous, &key) == 0) {
            if (bpf_map_lookup_elem(templates_.get(), &key, &value) == 0)
                found.emplace_back(std::string(reinterpret_cast<char *>(&key), sizeof(key)),
                                   std::string(reinterpret_cast<char *>(&value), sizeof(value)));
            previous = &key;
        }
        return found;
    }

    void mark_sent(uint64_t process, uint64_t key) const {
        uint64_t mark = igsdk_sent_mark(process, key);
        uint8_t sent = 1;
        if (bpf_map_update_elem(sent_.get(), &mark, &sent, BPF_ANY))
            throw_errno("bpf_map_update_elem");
    }

    bool is_sent(uint64_t process, uint64_t key) const {
        uint64_t mark = igsdk_sent_mark(process, key);
        uint8_t sent = 0;
        return bpf_map_lookup_elem(sent_.get(), &mark, &sent) == 0;
    }

  private:
    Fd templates_, spaces_, sent_;

  public:
    StackTable table;
};

} // namespace

std::vector<uint64_t> words_of(const std::string &bytes) {
    if (bytes.size() % sizeof(uint64_t))
        throw std::invalid_argument("these are no u64 values");
    std::vector<uint64_t> words(bytes.size() / sizeof(uint64_t));
    std::memcpy(words.data(), bytes.data(), bytes.size());
    return words;
}

igsdk_python read_layout(const std::string &bytes) {
    igsdk_python layout;
    if (bytes.size() != sizeof(layout))
        throw std::invalid_argument("a layout has " + std::to_string(sizeof(layout)) + " bytes");
    std::memcpy(&layout, bytes.data(), sizeof(layout));
    return layout;
}

void set_python(StackTable &table, uint32_t pid, const std::string &bytes) {
    igsdk_python layout = read_layout(bytes);
    bool written;
    {
        py::gil_scoped_release unlocked;
        written = table.space_map().set_python(pid, layout);
    }
    if (!written)
        throw_errno("noting where an interpreter keeps its frames");
}

std::string numbers_of(StackTable &table, const std::string &processes, const std::string &keys) {
    auto [first, second] = pairs_of(processes, keys);
    py::gil_scoped_release unlocked;
    std::vector<uint32_t> numbers(first.size());
    table.numbers(first.data(), second.data(), numbers.data(), numbers.size());
    return std::string(reinterpret_cast<const char *>(numbers.data()),
                       numbers.size() * sizeof(uint32_t));
}

void forget_keys(StackTable &table, const std::string &processes, const std::string &keys) {
    auto [first, second] = pairs_of(processes, keys);
    py::gil_scoped_release unlocked;
    table.forget_keys(first.data(), second.data(), first.size());
}

Code code_of(StackTable &table, uint32_t number) {
    std::optional<Code> code = table.code(number);
    if (!code)
        throw py::key_error("no code object with this number is known");
    return *code;
}

std::string class_name_of(StackTable &table, uint32_t number) {
    std::optional<std::string> name;
    {
        py::gil_scoped_release unlocked;
        name = table.class_name(number);
    }
    if (!name)
        throw py::key_error("no class with this number is known");
    return *name;
}

py::object file_of(StackTable &table, uint32_t id) {
    std::shared_ptr<const File> file;
    {
        py::gil_scoped_release unlocked;
        file = table.files().at(id);
    }
    return file ? py::cast(OpenFile{file}) : py::none();
}

} // namespace igsdk

void register_stacks(py::module_ &m) {
    using namespace igsdk;
    py::class_<RawStack>(m, "RawStack")
        .def_readonly("number", &RawStack::number)
        .def_readonly("pid", &RawStack::pid)
        .def_readonly("process", &RawStack::process)
        .def_readonly("flags", &RawStack::flags)
        .def_property_readonly("how", &RawStack::how)
        .def_property_readonly("end", &RawStack::end)
        .def_property_readonly("native", &native_frames)
        .def_property_readonly("python", &python_frames);
    py::class_<Code>(m, "Code")
        .def_property_readonly(
            "name", [](const Code &code) { return utf8_text(code.name, "surrogatepass"); })
        .def_property_readonly(
            "file", [](const Code &code) { return utf8_text(code.file, "surrogatepass"); })
        .def_property_readonly("table", [](const Code &code) { return py::bytes(code.table); })
        .def_readonly("first_line", &Code::first_line)
        .def_readonly("version", &Code::version)
        .def_readonly("complete", &Code::complete);
    py::class_<OpenFile>(m, "MappedFile")
        .def_property_readonly("path", [](const OpenFile &f) { return file_text(f.file->path); })
        .def_property_readonly("fd", [](const OpenFile &f) { return f.file->fd.get(); })
        .def_property_readonly(
            "device", [](const OpenFile &f) { return makedev(f.file->major, f.file->minor); })
        .def_property_readonly("inode", [](const OpenFile &f) { return f.file->inode; });
    py::class_<HandTable> table(m, "StackTable");
    table.def(py::init<MapWatch *, const std::map<std::string, size_t> &>(),
              py::arg("watch") = nullptr, py::arg("limits") = std::map<std::string, size_t>{},
              py::keep_alive<1, 2>());
    define_stack_methods(
        table, [](HandTable &t) -> StackTable & { return t.table; }, [](HandTable &) {});
    table
        .def("take",
             [](HandTable &t, const std::string &record) {
                 py::gil_scoped_release unlocked;
                 t.table.take(record.data(), record.size());
             })
        .def("forget_process",
             [](HandTable &t, uint64_t process) { t.table.forget_process(process); })
        .def("mark_sent", &HandTable::mark_sent)
        .def("is_sent", &HandTable::is_sent)
        .def("templates",
             [](const HandTable &t) {
                 py::list pairs;
                 for (const auto &[key, value] : t.templates())
                     pairs.append(py::make_tuple(py::bytes(key), py::bytes(value)));
                 return pairs;
             })
        .def("space", [](HandTable &t, uint32_t pid) {
            std::optional<igsdk_space> space = t.table.space_map().at(pid);
            return space ? py::bytes(reinterpret_cast<const char *>(&*space), sizeof(*space))
                         : py::bytes();
        });
}

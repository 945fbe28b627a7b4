// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include "kernel_calls.h"

#include <algorithm>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <cstdarg>
#include <cstring>
#include <sys/mman.h>

namespace igsdk {
namespace {

// Maps whose size goes with a setting: the tables beside an array of rows.
const std::vector<std::pair<const char *, std::vector<const char *>>> sized_maps = {
    {"accounts_max", {"accounts", "account_slots", "free_accounts", "sent_stacks"}},
    {"usages_max", {"usages", "usage_slots", "free_usages"}},
    {"processes_max", {"processes", "process_slots", "free_processes"}},
    {"live_max", {"live_table"}},
    {"handles_max", {"handles"}},
    {"events_bytes", {"events"}},
    {"captures_bytes", {"captures"}},
    {"templates_max", {"templates"}},
};

constexpr uint32_t walks_per_cpu = 2; // WALKS_PER_CPU of bpf/walk.h

thread_local std::string last_message;

// libbpf speaks through a callback; its last warning becomes the error's detail.
int keep_message(libbpf_print_level level, const char *format, va_list arguments) {
    if (level != LIBBPF_WARN)
        return 0;
    char line[1024];
    vsnprintf(line, sizeof(line), format, arguments);
    if (last_message.size() < 16384)
        last_message += line;
    return 0;
}

[[noreturn]] void fail(const std::string &what, int error) {
    throw ProgramError(
        what + ": " + strerror(error) + (last_message.empty() ? "" : "\n" + last_message), error);
}

LinkMode best_mode() {
    btf *kernel = btf__load_vmlinux_btf();
    bool kfunc =
        kernel && btf__find_by_name_kind(kernel, "bpf_session_is_return", BTF_KIND_FUNC) > 0;
    btf__free(kernel);
    if (kfunc && kernel_has_uprobe_links(attach_uprobe_session))
        return LinkMode::session;
    return kernel_has_uprobe_links(attach_uprobe_multi) ? LinkMode::multi : LinkMode::single;
}

void store(void *address, size_t size, int64_t value) {
    // BPF is built for the machine's own byte order, which is little-endian here
    memcpy(address, &value, std::min(size, sizeof(value)));
}

} // namespace

const char *name_of(LinkMode mode) {
    switch (mode) {
    case LinkMode::session:
        return "session";
    case LinkMode::multi:
        return "multi";
    case LinkMode::single:
        return "single";
    default:
        return "automatic";
    }
}

template <typename Row> void Rows<Row>::map(const bpf_map *map) {
    size_ = bpf_map__max_entries(map);
    bytes_ = sizeof(Row) * size_;
    void *address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    if (address == MAP_FAILED)
        fail(std::string("mapping ") + bpf_map__name(map), errno);
    rows_ = static_cast<Row *>(address);
}

template <typename Row> Rows<Row>::~Rows() {
    if (rows_)
        munmap(rows_, bytes_);
}

template class Rows<igsdk_account>;
template class Rows<igsdk_usage>;
template class Rows<igsdk_process>;
template class Rows<uint64_t>;
template class Rows<uint32_t>;

Program::Program(const std::string &object, const Settings &settings, const Texts &texts) {
    last_message.clear();
    libbpf_set_print(keep_message);
    object_ = bpf_object__open_mem(object.data(), object.size(), nullptr);
    if (!object_)
        fail("opening the BPF object", errno);
    try {
        auto setting = [&](const char *name) {
            auto found = settings.find(name);
            return found == settings.end() ? 0 : found->second;
        };
        bool floor = setting("floor") != 0;
        mode_ = static_cast<LinkMode>(setting("link_mode"));
        if (mode_ == LinkMode::automatic)
            mode_ = best_mode();
        choose_programs(floor);
        apply(settings, texts);
        load();
        prepare_rows();
        attach_tracepoints(floor);
    } catch (...) {
        for (bpf_link *link : tracepoints_)
            bpf_link__destroy(link);
        bpf_object__close(object_);
        throw;
    }
}

Program::~Program() {
    for (bpf_link *link : tracepoints_)
        bpf_link__destroy(link);
    bpf_object__close(object_);
}

// Loads only what this kernel can attach: a session program calls a function
// that older kernels lack.
void Program::choose_programs(bool floor) {
    prefix_ = floor ? "floor" : "call";
    bool session = mode_ == LinkMode::session;
    uint32_t type = session                    ? attach_uprobe_session
                    : mode_ == LinkMode::multi ? attach_uprobe_multi
                                               : 0;
    for (const char *set : {"call", "floor"})
        for (const char *part : {"_session", "_entry", "_return"}) {
            std::string name = std::string(set) + part;
            bpf_program *program = bpf_object__find_program_by_name(object_, name.c_str());
            if (!program)
                fail("finding " + name, ENOENT);
            bool wanted = set == prefix_ && session == (strcmp(part, "_session") == 0);
            bpf_program__set_autoload(program, wanted);
            bpf_program__set_expected_attach_type(program, static_cast<bpf_attach_type>(type));
        }
}

Program::Variable Program::variable(const char *section, const std::string &name) const {
    const btf *types = bpf_object__btf(object_);
    int id = btf__find_by_name_kind(types, section, BTF_KIND_DATASEC);
    const btf_type *data = id > 0 ? btf__type_by_id(types, static_cast<uint32_t>(id)) : nullptr;
    const bpf_map *map = bpf_object__find_map_by_name(object_, section);
    if (!data || !map)
        return {nullptr, 0, 0};
    size_t bytes;
    // const only in older versions of libbpf
    const void *start = bpf_map__initial_value(const_cast<bpf_map *>(map), &bytes);
    auto *base = static_cast<char *>(const_cast<void *>(start));
    const btf_var_secinfo *entry = btf_var_secinfos(data);
    for (int i = 0; base && i < btf_vlen(data); i++, entry++) {
        const btf_type *type = btf__type_by_id(types, entry->type);
        if (name == btf__name_by_offset(types, type->name_off))
            return {base + entry->offset, entry->offset, entry->size};
    }
    return {nullptr, 0, 0};
}

void Program::apply(const Settings &settings, const Texts &texts) {
    for (const auto &[name, value] : settings)
        if (Variable found = variable(".rodata", name); found.address)
            store(found.address, found.size, value);
    for (const auto &[name, text] : texts)
        if (Variable found = variable(".rodata", name); found.address)
            strncpy(static_cast<char *>(found.address), text.c_str(), found.size - 1);
    for (const auto &[setting, names] : sized_maps) {
        auto found = settings.find(setting);
        if (found == settings.end())
            continue;
        for (const char *name : names)
            if (bpf_map *map = bpf_object__find_map_by_name(object_, name))
                bpf_map__set_max_entries(map, static_cast<uint32_t>(found->second));
    }
}

void Program::load() {
    auto walks = static_cast<uint32_t>(libbpf_num_possible_cpus()) * walks_per_cpu;
    bpf_map__set_max_entries(bpf_object__find_map_by_name(object_, "walks"), walks);
    if (int error = bpf_object__load(object_))
        fail("loading the BPF program", -error);
}

// Slot 0 of each array is in use from the start: the row for what finds no room.
void Program::prepare_rows() {
    accounts.map(bpf_object__find_map_by_name(object_, "accounts"));
    usages.map(bpf_object__find_map_by_name(object_, "usages"));
    processes.map(bpf_object__find_map_by_name(object_, "processes"));
    losses.map(bpf_object__find_map_by_name(object_, "losses"));
    reader_sleeps.map(bpf_object__find_map_by_name(object_, ".data.reader"));
    accounts[0].generation = usages[0].generation = processes[0].generation = 1;
    accounts[0].overflow = 1;
    accounts[0].key.device = usages[0].key.device = -1;
    processes[0].usages = IGSDK_NO_INDEX;
}

void Program::attach_tracepoints(bool floor) {
    if (floor)
        return;
    for (const char *name : {"on_exit", "on_exec", "on_rename", "on_fork"}) {
        bpf_link *link = bpf_program__attach(bpf_object__find_program_by_name(object_, name));
        if (!link)
            fail(std::string("attaching ") + name, errno);
        tracepoints_.push_back(link);
    }
}

const bpf_program *Program::find(const char *name) const {
    return bpf_object__find_program_by_name(object_, (prefix_ + name).c_str());
}

void Program::link_multi(Links &links, const char *program, const std::string &path,
                         const std::vector<Site> &sites, bool at_return) const {
    std::vector<uint64_t> offsets, cookies;
    for (const Site &site : sites) {
        offsets.push_back(site.offset);
        cookies.push_back(site.cookie);
    }
    uint32_t type = mode_ == LinkMode::session ? attach_uprobe_session : attach_uprobe_multi;
    Fd link(link_uprobes(bpf_program__fd(find(program)), type, path.c_str(), offsets.data(),
                         cookies.data(), sites.size(), at_return));
    if (!link)
        fail("attaching to " + path, errno);
    links.push_back(std::move(link));
}

void Program::link_single(Links &links, const char *program, const std::string &path,
                          const std::vector<Site> &sites, bool at_return,
                          const std::atomic<bool> &ended) const {
    for (const Site &site : sites) {
        if (ended)
            fail("attaching to " + path, ECANCELED);
        Fd event(open_uprobe_event(path.c_str(), site.offset, at_return));
        Fd link(event ? link_event(bpf_program__fd(find(program)), event.get(), site.cookie) : -1);
        if (!link)
            fail("attaching to " + path, errno);
        links.push_back(std::move(event));
        links.push_back(std::move(link));
    }
}

void Program::attach(const std::string &path, const std::vector<Site> &sites, Links &links,
                     const std::atomic<bool> &ended) const {
    last_message.clear();
    switch (mode_) {
    case LinkMode::session:
        link_multi(links, "_session", path, sites, false);
        break;
    case LinkMode::multi:
        // returns first: a return without its entry is ignored, an entry without its return is not
        link_multi(links, "_return", path, sites, true);
        link_multi(links, "_entry", path, sites, false);
        break;
    default:
        link_single(links, "_return", path, sites, true, ended);
        link_single(links, "_entry", path, sites, false, ended);
    }
}

int Program::map_fd(const char *name) const {
    return bpf_object__find_map_fd_by_name(object_, name);
}

// A global variable's present value; what libbpf holds is the initial one.
uint64_t Program::global(const char *name) const {
    for (const char *section : {".bss", ".data"}) {
        Variable found = variable(section, name);
        if (!found.address)
            continue;
        const bpf_map *map = bpf_object__find_map_by_name(object_, section);
        std::string values(bpf_map__value_size(map), '\0');
        uint32_t zero = 0;
        uint64_t value = 0;
        if (bpf_map_lookup_elem(bpf_map__fd(map), &zero, values.data()) == 0)
            memcpy(&value, values.data() + found.offset, std::min(found.size, sizeof(value)));
        return value;
    }
    return 0;
}

// Probes go one by one; what is booked ends at one moment, before the first goes.
void Program::stop_booking() const {
    const bpf_map *map = bpf_object__find_map_by_name(object_, ".data.control");
    std::string values(map ? bpf_map__value_size(map) : 0, '\1');
    uint32_t zero = 0;
    if (map)
        bpf_map_update_elem(bpf_map__fd(map), &zero, values.data(), BPF_ANY);
}

// Runs the task_vma iterator over one process.
std::string Program::mappings(uint32_t pid) const {
    bpf_iter_link_info target{};
    target.task.pid = pid;
    LIBBPF_OPTS(bpf_iter_attach_opts, options);
    options.link_info = &target;
    options.link_info_len = sizeof(target);
    last_message.clear();
    bpf_link *link = bpf_program__attach_iter(
        bpf_object__find_program_by_name(object_, "list_mappings"), &options);
    if (!link)
        fail("listing mappings", errno);
    Fd reader(bpf_iter_create(bpf_link__fd(link)));
    std::string rows;
    char buffer[sizeof(igsdk_mapping) * 256];
    ssize_t n;
    while (reader && (n = read(reader.get(), buffer, sizeof(buffer))) > 0)
        rows.append(buffer, static_cast<size_t>(n));
    bpf_link__destroy(link);
    return rows;
}

} // namespace igsdk

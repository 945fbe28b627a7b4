// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include "kernel_calls.h"

#include <algorithm>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <cstring>
#include <set>
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
    {"pids_max", {"pids"}},
    {"spaces_max", {"spaces"}},
    {"codes_max", {"codes"}},
    {"events_bytes", {"events"}},
    {"captures_bytes", {"captures"}},
    {"templates_max", {"templates"}},
};

constexpr const char *tracepoint_programs[] = {"on_exit", "on_exec", "on_rename", "on_fork"};
constexpr uint32_t walks_per_cpu = 2; // WALKS_PER_CPU of bpf/walk.h

bool kernel_has_function(const char *name) {
    btf *kernel = btf__load_vmlinux_btf();
    bool found = kernel && btf__find_by_name_kind(kernel, name, BTF_KIND_FUNC) > 0;
    btf__free(kernel);
    return found;
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

Program::Program(const std::string &object, const Settings &settings, const Texts &texts,
                 const std::vector<std::string> &idle)
    : object_(open_object(object)) {
    auto setting = [&](const char *name) {
        auto found = settings.find(name);
        return found == settings.end() ? 0 : found->second;
    };
    bool floor = setting("floor") != 0;
    prefix_ = floor ? "floor" : "call";
    mode_ = static_cast<LinkMode>(setting("link_mode"));
    if (mode_ == LinkMode::automatic)
        mode_ = best_mode();
    choose_programs(floor);
    shrink(idle);
    apply(settings, texts);
    auto walks = static_cast<uint32_t>(libbpf_num_possible_cpus()) * walks_per_cpu;
    bpf_map__set_max_entries(map("walks"), walks);
    load_object(object_);
    prepare_rows();
    attach_tracepoints(floor);
}

// The best that both the kernel and the object have.
LinkMode Program::best_mode() const {
    bool session = bpf_object__find_program_by_name(object_.get(), (prefix_ + "_session").c_str());
    if (session && kernel_has_function("bpf_session_is_return") &&
        kernel_has_uprobe_links(attach_uprobe_session))
        return LinkMode::session;
    return kernel_has_uprobe_links(attach_uprobe_multi) ? LinkMode::multi : LinkMode::single;
}

// Loads only what is attached: a session program calls a function that older kernels lack,
// and an image has two programs more for each function, for Inspektor Gadget.
void Program::choose_programs(bool floor) {
    bool session = mode_ == LinkMode::session;
    uint32_t type = session                    ? attach_uprobe_session
                    : mode_ == LinkMode::multi ? attach_uprobe_multi
                                               : 0;
    std::set<bpf_program *> wanted;
    for (const char *name : tracepoint_programs)
        if (!floor)
            wanted.insert(program(name));
    for (const char *part : {"_session", "_entry", "_return"})
        if (session == (strcmp(part, "_session") == 0)) {
            bpf_program *call = program(prefix_ + part);
            bpf_program__set_expected_attach_type(call, static_cast<bpf_attach_type>(type));
            wanted.insert(call);
        }
    bpf_program *each;
    bpf_object__for_each_program(each, object_.get())
        bpf_program__set_autoload(each, wanted.count(each) != 0);
}

// They can't be left out: code that is never reached may name them. Tables of programs are
// as large as what stands in them.
void Program::shrink(const std::vector<std::string> &idle) {
    for (const std::string &name : idle) {
        bpf_map *unused = map(name.c_str());
        bpf_map_type type = bpf_map__type(unused);
        auto page = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
        if (type != BPF_MAP_TYPE_PROG_ARRAY)
            bpf_map__set_max_entries(unused, type == BPF_MAP_TYPE_RINGBUF ? page : 1);
    }
}

Program::Variable Program::variable(const char *section, const std::string &name) const {
    const btf *types = bpf_object__btf(object_.get());
    int id = btf__find_by_name_kind(types, section, BTF_KIND_DATASEC);
    const btf_type *data = id > 0 ? btf__type_by_id(types, static_cast<uint32_t>(id)) : nullptr;
    const bpf_map *map = bpf_object__find_map_by_name(object_.get(), section);
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
            if (bpf_map *map = bpf_object__find_map_by_name(object_.get(), name))
                bpf_map__set_max_entries(map, static_cast<uint32_t>(found->second));
    }
}

// Slot 0 of each array is in use from the start: the row for what finds no room.
void Program::prepare_rows() {
    accounts.map(map("accounts"));
    usages.map(map("usages"));
    processes.map(map("processes"));
    losses.map(map("losses"));
    reader_sleeps.map(map(".data.reader"));
    accounts[0].generation = usages[0].generation = processes[0].generation = 1;
    accounts[0].overflow = 1;
    accounts[0].key.device = usages[0].key.device = -1;
    processes[0].usages = IGSDK_NO_INDEX;
}

void Program::attach_tracepoints(bool floor) {
    if (floor)
        return;
    for (const char *name : tracepoint_programs) {
        Link link(bpf_program__attach(program(name)));
        if (!link)
            fail(std::string("attaching ") + name, errno);
        tracepoints_.push_back(std::move(link));
    }
}

bpf_program *Program::program(const std::string &name) const {
    bpf_program *found = bpf_object__find_program_by_name(object_.get(), name.c_str());
    if (!found)
        fail("finding " + name, ENOENT);
    return found;
}

bpf_map *Program::map(const char *name) const {
    bpf_map *found = bpf_object__find_map_by_name(object_.get(), name);
    if (!found)
        fail(std::string("finding ") + name, ENOENT);
    return found;
}

int Program::call_fd(const char *part) const { return bpf_program__fd(program(prefix_ + part)); }

void Program::link_multi(Links &links, const char *part, const std::string &path,
                         const std::vector<Site> &sites, bool at_return) const {
    std::vector<uint64_t> offsets, cookies;
    for (const Site &site : sites) {
        offsets.push_back(site.offset);
        cookies.push_back(site.cookie);
    }
    uint32_t type = mode_ == LinkMode::session ? attach_uprobe_session : attach_uprobe_multi;
    Fd link(link_uprobes(call_fd(part), type, path.c_str(), offsets.data(), cookies.data(),
                         sites.size(), at_return));
    if (!link)
        fail("attaching to " + path, errno);
    links.push_back(std::move(link));
}

void Program::link_single(Links &links, const char *part, const std::string &path,
                          const std::vector<Site> &sites, bool at_return,
                          const std::atomic<bool> &ended) const {
    for (const Site &site : sites) {
        if (ended)
            fail("attaching to " + path, ECANCELED);
        Fd event(open_uprobe_event(path.c_str(), site.offset, at_return));
        Fd link(event ? link_event(call_fd(part), event.get(), site.cookie) : -1);
        if (!link)
            fail("attaching to " + path, errno);
        links.push_back(std::move(event));
        links.push_back(std::move(link));
    }
}

void Program::attach(const std::string &path, const std::vector<Site> &sites, Links &links,
                     const std::atomic<bool> &ended) const {
    forget_messages();
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

int Program::map_fd(const char *name) const { return bpf_map__fd(map(name)); }

// A global variable's present value; what libbpf holds is the initial one.
uint64_t Program::global(const char *name) const {
    for (const char *section : {".bss", ".data"}) {
        Variable found = variable(section, name);
        if (!found.address)
            continue;
        const bpf_map *map = bpf_object__find_map_by_name(object_.get(), section);
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
    const bpf_map *map = bpf_object__find_map_by_name(object_.get(), ".data.control");
    std::string values(map ? bpf_map__value_size(map) : 0, '\1');
    uint32_t zero = 0;
    if (map)
        bpf_map_update_elem(bpf_map__fd(map), &zero, values.data(), BPF_ANY);
}

} // namespace igsdk

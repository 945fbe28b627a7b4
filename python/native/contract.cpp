// SPDX-License-Identifier: Apache-2.0
#include "contract.h"

#include "object.h"

#include <bpf/btf.h>
#include <cstring>

namespace igsdk {
namespace {

// What this runtime attaches and reads or writes itself. All else is a program's own affair.
constexpr const char *needed_programs[] = {"call_entry", "call_return", "on_exit",
                                           "on_exec",    "on_rename",   "on_fork"};
constexpr const char *needed_maps[] = {
    "accounts",       "usages",        "processes",
    "losses",         "account_slots", "usage_slots",
    "process_slots",  "free_accounts", "free_usages",
    "free_processes", "live_table",    "handles",
    "device_uuids",   "pids",          "spaces",
    "templates",      "sent_stacks",   "events",
    "captures",       "walks",         "gadget_mntns_filter_map",
    ".data.control",  ".data.reader",
};
constexpr const char *own_types = "igsdk_";

const bpf_map *find_map(const Object &object, const char *name) {
    return bpf_object__find_map_by_name(object.get(), name);
}

bool same_shape(const bpf_map *one, const bpf_map *other) {
    return bpf_map__type(one) == bpf_map__type(other) &&
           bpf_map__key_size(one) == bpf_map__key_size(other) &&
           bpf_map__value_size(one) == bpf_map__value_size(other) &&
           bpf_map__map_flags(one) == bpf_map__map_flags(other);
}

std::string name_at(const btf *types, uint32_t offset) {
    return btf__name_by_offset(types, offset);
}

bool same_members(const btf *ours, const btf_type *one, const btf *theirs, const btf_type *other) {
    const btf_member *a = btf_members(one), *b = btf_members(other);
    for (uint16_t i = 0; i < btf_vlen(one); i++, a++, b++)
        if (a->offset != b->offset || name_at(ours, a->name_off) != name_at(theirs, b->name_off) ||
            btf__resolve_size(ours, a->type) != btf__resolve_size(theirs, b->type))
            return false;
    return true;
}

bool same_values(const btf *ours, const btf_type *one, const btf *theirs, const btf_type *other) {
    const struct btf_enum *a = btf_enum(one), *b = btf_enum(other);
    for (uint16_t i = 0; i < btf_vlen(one); i++, a++, b++)
        if (a->val != b->val || name_at(ours, a->name_off) != name_at(theirs, b->name_off))
            return false;
    return true;
}

bool same_type(const btf *ours, const btf_type *one, const btf *theirs, const btf_type *other) {
    if (btf_vlen(one) != btf_vlen(other) || one->size != other->size)
        return false;
    return btf_is_enum(one) ? same_values(ours, one, theirs, other)
                            : same_members(ours, one, theirs, other);
}

// Every type of ours that has a name: bpf/contract.h sees to it that all objects have them.
void compare_types(const btf *ours, const btf *theirs, std::vector<std::string> &changed) {
    for (uint32_t id = 1; id < btf__type_cnt(ours); id++) {
        const btf_type *one = btf__type_by_id(ours, id);
        if (!btf_is_struct(one) && !btf_is_enum(one))
            continue;
        std::string name = name_at(ours, one->name_off);
        if (name.compare(0, strlen(own_types), own_types))
            continue;
        int found = btf__find_by_name_kind(theirs, name.c_str(), btf_kind(one));
        const btf_type *other =
            found > 0 ? btf__type_by_id(theirs, static_cast<uint32_t>(found)) : nullptr;
        if (!other || !same_type(ours, one, theirs, other))
            changed.push_back(name);
    }
}

} // namespace

Differences compare_objects(const std::string &own, const std::string &other) {
    Object ours = open_object(own), theirs = open_object(other);
    Differences found;
    for (const char *name : needed_programs)
        if (!bpf_object__find_program_by_name(theirs.get(), name))
            found.missing.push_back(name);
    for (const char *name : needed_maps) {
        const bpf_map *map = find_map(theirs, name);
        if (!map)
            found.missing.push_back(name);
        else if (!same_shape(find_map(ours, name), map))
            found.changed.push_back(name);
    }
    const bpf_map *each;
    bpf_object__for_each_map(each, theirs.get()) if (!bpf_map__is_internal(each) &&
                                                     !find_map(ours, bpf_map__name(each)))
        found.extra.push_back(bpf_map__name(each));
    const btf *types = bpf_object__btf(theirs.get());
    if (!types)
        found.missing.push_back("types (BTF)");
    else
        compare_types(bpf_object__btf(ours.get()), types, found.changed);
    return found;
}

} // namespace igsdk

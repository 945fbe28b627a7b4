// SPDX-License-Identifier: Apache-2.0
#include "packet_fields.h"

namespace igsdk {
namespace {

bool is_known(ValueSort sort) {
    switch (sort) {
    case ValueSort::boolean:
    case ValueSort::integer:
    case ValueSort::natural:
    case ValueSort::real:
    case ValueSort::text:
    case ValueSort::c_text:
    case ValueSort::bytes:
        return true;
    }
    return false;
}

bool has_numbers(ValueSort sort) {
    return sort != ValueSort::text && sort != ValueSort::c_text && sort != ValueSort::bytes;
}

bool good_width(const PacketField &field) {
    uint32_t width = field.width;
    if (!has_numbers(field.sort))
        return width == 0;
    return width == 1 || width == 2 || width == 4 || width == 8;
}

const char *fault_in_part(const PacketField &field, const SlotNeed &need) {
    if (field.offset > need.least || field.size > need.least - field.offset)
        return "a field ends behind its slot";
    if (field.width && field.size % field.width)
        return "a field has part of a number";
    if (field.width && !field.array && field.size != field.width)
        return "a field has several numbers";
    return nullptr;
}

const char *fault_in_whole(const PacketField &field, const SlotNeed &need) {
    if (field.width && field.array && need.unit % field.width)
        return "a slot may have part of a number";
    if (field.width && !field.array && need.exact != field.width && need.exact != -1)
        return "a slot may be no number";
    return nullptr;
}

const char *fault_in(const PacketField &field, const SlotNeeds &needs) {
    if (!is_known(field.sort))
        return "a field is of no sort that there is";
    if (!good_width(field))
        return "a number is of a width that there is not";
    if (field.need >= needs.size())
        return "a field is in a slot that nobody needs";
    const SlotNeed &need = needs[field.need];
    return field.size ? fault_in_part(field, need) : fault_in_whole(field, need);
}

} // namespace

const char *PacketLayout::fault() const {
    for (size_t place = 1; place < needs.size(); ++place)
        if (needs[place - 1].number >= needs[place].number)
            return "slots are not in order";
    for (const SlotNeed &need : needs)
        if (!need.unit)
            return "a slot is a multiple of nothing";
    for (const PacketField &field : fields)
        if (const char *fault = fault_in(field, needs))
            return fault;
    return nullptr;
}

} // namespace igsdk

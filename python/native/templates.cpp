// SPDX-License-Identifier: Apache-2.0
#include "templates.h"

#include <bpf/bpf.h>
#include <cstring>

namespace igsdk {
namespace {

constexpr size_t kept_retired = 4096;

uint64_t word_at(const uint8_t *stack, size_t slot) {
    uint64_t word;
    std::memcpy(&word, stack + slot * sizeof(word), sizeof(word));
    return word;
}

// A stack that ends in garbage might end otherwise the next time: the word that was no
// code stands in no slot. One that took too long may be quicker the next time. Everywhere
// else the same words lead to the same end.
bool ends_surely(Unwound::End end) {
    return end != Unwound::End::not_code && end != Unwound::End::loop &&
           end != Unwound::End::too_long;
}

// Where the return addresses stand; false unless each of them stands in the copy.
bool fill_slots(igsdk_template &made, const Unwound &unwound, uint32_t stack_bytes) {
    size_t words = stack_bytes / sizeof(uint64_t), callers = unwound.frames.size();
    if (callers < 2 || callers - 1 > IGSDK_TEMPLATE_SLOTS || !ends_surely(unwound.end))
        return false;
    for (size_t i = 1; i < callers; i++) {
        uint16_t slot = unwound.frames[i].slot;
        if (slot >= words) // none is above all
            return false;
        made.slots[made.n_slots++] = slot;
        made.bytes = std::max<uint32_t>(made.bytes, (slot + 1u) * sizeof(uint64_t));
    }
    return true;
}

// The words as they stand, also where another return probe has put its own address:
// that is what the kernel will see.
Content hash_words(igsdk_template &made, const uint8_t *stack) {
    Content content;
    made.hash = IGSDK_TEMPLATE_SEED;
    for (uint32_t i = 0; i < made.n_slots; i++) {
        uint64_t word = word_at(stack, made.slots[i]);
        made.hash = igsdk_mix(made.hash, word);
        content.mix(word);
        content.mix(made.slots[i]);
    }
    return content;
}

} // namespace

// The way that has this stack already, else a free one, else the one whose turn it is.
uint32_t Templates::choose(Ways &ways, const Content &content) {
    for (uint32_t way = 0; way < IGSDK_TEMPLATE_WAYS; way++)
        if (ways.ways[way].id && ways.ways[way].content == content)
            return way;
    uint32_t way = ways.next++ % IGSDK_TEMPLATE_WAYS;
    retire(ways.ways[way].id);
    ways.ways[way] = {next_id_++, content};
    return way;
}

// Several threads may miss one stack before it is written. To leave a template alone is
// cheaper, and does no harm to a probe that reads it.
bool Templates::is_written(const igsdk_template_key &key, uint64_t id) const {
    igsdk_template there;
    return bpf_map_lookup_elem(map_, &key, &there) == 0 && there.id == id;
}

void Templates::learn(const igsdk_capture &head, const uint8_t *stack, const Unwound &unwound,
                      NativeRef native) {
    igsdk_template made{};
    if (!fill_slots(made, unwound, head.stack_bytes))
        return;
    Content content = hash_words(made, stack);
    Place place{head.process, head.place, head.space};
    auto [found, fresh] = places_.try_emplace(place);
    if (fresh)
        ages_.push_back(place);
    igsdk_template_key key{place.process, place.place, place.space, 0};
    key.way = choose(found->second, content);
    made.id = found->second.ways[key.way].id;
    natives_[made.id] = std::move(native);
    if (is_written(key, made.id))
        return;
    if (bpf_map_update_elem(map_, &key, &made, BPF_ANY))
        refused_++;
    else
        written_++;
    make_room();
}

NativeRef Templates::find(uint64_t id) const {
    auto found = natives_.find(id);
    return found == natives_.end() ? nullptr : found->second;
}

// Records with this id may stand in the ring still.
void Templates::retire(uint64_t id) {
    if (!id)
        return;
    retired_.push_back(id);
    if (retired_.size() <= kept_retired)
        return;
    natives_.erase(retired_.front());
    retired_.pop_front();
}

void Templates::drop(const Place &place) {
    auto found = places_.find(place);
    if (found == places_.end())
        return;
    for (uint32_t way = 0; way < IGSDK_TEMPLATE_WAYS; way++) {
        igsdk_template_key key{place.process, place.place, place.space, way};
        if (!found->second.ways[way].id)
            continue;
        bpf_map_delete_elem(map_, &key);
        retire(found->second.ways[way].id);
    }
    places_.erase(found);
}

void Templates::make_room() {
    while (places_.size() > limit_) {
        drop(ages_.front());
        ages_.pop_front();
    }
}

void Templates::forget(uint64_t process) {
    std::deque<Place> kept;
    for (const Place &place : ages_) {
        if (place.process == process)
            drop(place);
        else
            kept.push_back(place);
    }
    ages_ = std::move(kept);
}

} // namespace igsdk

// SPDX-License-Identifier: Apache-2.0
// Call frame information of one file: rules for an address in it, looked up once each.
#pragma once

#include "frame_tables.h"
#include "rules.h"

#include <memory>
#include <mutex>

namespace igsdk {

// What libdw makes of an entry at one address; nullptr: nothing that we can use.
std::shared_ptr<const FrameRules> rules_at(const FrameEntry &entry, uint64_t address,
                                           uint16_t machine);

class CallFrames {
  public:
    // The descriptor must stay open. Nothing is read before it is needed.
    explicit CallFrames(int fd) : fd_(fd) {}
    CallFrames(const CallFrames &) = delete;
    CallFrames &operator=(const CallFrames &) = delete;
    ~CallFrames() { drop(); }

    // By offset in the file of the instruction that runs next; `caller`: it follows a
    // call, which is what the rules are for. nullptr: nothing tells.
    std::shared_ptr<const FrameRules> at(uint64_t offset, bool caller);

  private:
    std::shared_ptr<const FrameRules> look_up(uint64_t offset, bool caller);
    std::shared_ptr<const FrameRules> by_tables(uint64_t address);
    std::shared_ptr<const FrameRules> by_entry(uint64_t address, const std::string &code);
    bool starts_at(uint64_t address);
    std::shared_ptr<const FrameRules> shared(std::shared_ptr<const FrameRules> rules);
    FrameTables &tables();
    bool make_room(const FrameRules *rules);
    void drop();

    const int fd_;
    std::mutex lock_;
    std::unique_ptr<FrameTables> tables_;
    std::unordered_map<uint64_t, std::shared_ptr<const FrameRules>> known_;
    std::unordered_map<std::string, std::shared_ptr<const FrameRules>> distinct_;
    size_t weight_ = 0; // of both
};

} // namespace igsdk

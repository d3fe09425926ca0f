// delta executor: the presets' managers over an arena on a machine. Each preset is a type of its
// own and takes seconds to compile, so they are made in two source files that compile side by side.
#pragma once

#include <memory>
#include <string_view>

#include "delta/storage/arena.hpp"
#include "device/machine.hpp"
#include "observe/watchers.hpp"
#include "train/managed_memory.hpp"

namespace delta::executor {

/// A preset's manager; null: there is no preset of that name. The arena outlives it; `strict` as
/// with_preset.
std::unique_ptr<managed_memory> plain_memory(std::string_view preset, arena<machine>&, bool strict);

/// The same with an observer, which outlives it, too.
std::unique_ptr<managed_memory> observed_memory(std::string_view preset, arena<machine>&,
                                                bool strict, watchers&);

}  // namespace delta::executor

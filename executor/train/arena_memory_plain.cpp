#include <utility>

#include "delta/presets.hpp"
#include "train/arena_memory.hpp"

namespace delta::executor {

std::unique_ptr<managed_memory> plain_memory(std::string_view preset, arena<machine>& storage,
                                             bool strict) {
  std::unique_ptr<managed_memory> made;
  with_preset(
      preset, [&](auto p) { made = manage(std::move(p), storage); }, strict);
  return made;
}

}  // namespace delta::executor

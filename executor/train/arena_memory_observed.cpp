#include <utility>

#include "delta/presets.hpp"
#include "train/arena_memory.hpp"

namespace delta::executor {

std::unique_ptr<managed_memory> observed_memory(std::string_view preset, arena<machine>& storage,
                                                bool strict, watchers& told) {
  std::unique_ptr<managed_memory> made;
  with_preset(
      preset, [&](auto p) { made = manage(std::move(p), storage, observed_by{&told}); }, strict);
  return made;
}

}  // namespace delta::executor

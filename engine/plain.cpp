// delta engine: the presets that decide by one rule.
#include <utility>

#include "delta/engine/manager_of.hpp"
#include "delta/presets.hpp"
#include "made_by_name.hpp"

namespace delta::detail {

std::unique_ptr<any_manager> make_plain(std::string_view policy,
                                        std::unique_ptr<any_storage>& storage,
                                        const manager_options& options) {
  const auto make = [&](auto p) {
    return make_manager(std::move(p), std::move(storage), options.observer);
  };
  if (policy == "unmanaged") return make(unmanaged());
  if (policy == "paper") return make(paper(options.strict));
  if (policy == "dtr") return make(recompute_only());
  if (policy == "online") return make(online());
  if (policy == "learned") return make(learned());
  return nullptr;
}

}  // namespace delta::detail

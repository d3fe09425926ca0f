// delta engine: the presets that choose among several policies.
#include <utility>

#include "delta/adaptive.hpp"
#include "delta/engine/manager_of.hpp"
#include "made_by_name.hpp"
#include "rehearsals.hpp"

namespace delta::detail {

std::unique_ptr<any_manager> make_choosing(std::string_view policy,
                                           std::unique_ptr<any_storage>& storage,
                                           const manager_options& options) {
  const auto make = [&](auto p) {
    return make_manager(std::move(p), std::move(storage), options.observer);
  };
  if (policy == "adaptive") return make(adaptive());
  if (policy == "auto") return make(automatic());
  return nullptr;
}

}  // namespace delta::detail

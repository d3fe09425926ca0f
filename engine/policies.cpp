// delta engine: managers by their policies' names, of all but `adaptive`, which is compiled apart.
#include <concepts>
#include <memory>
#include <string_view>
#include <utility>

#include "compiled_apart.hpp"
#include "delta/engine/engine.hpp"
#include "delta/engine/manager_of.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/with_preset.hpp"

namespace delta {

std::unique_ptr<manager_interface> make_manager(std::string_view policy,
                                                std::unique_ptr<any_storage> storage,
                                                const manager_options& options) {
  std::unique_ptr<manager_interface> made;
  const auto make = [&]<class P>(P p) {
    if constexpr (std::same_as<P, adaptive>)
      made = detail::make_adaptive(std::move(storage), options);
    else
      made = make_manager(std::move(p), std::move(storage), options);
  };
  if (!with_preset(policy, make)) throw unknown_policy(policy);
  return made;
}

std::unique_ptr<any_storage> over(simulated& storage) {
  return std::make_unique<detail::storage_of<simulated>>(storage);
}

}  // namespace delta

// delta engine: makes a manager of the policy that a search by name has found.
#pragma once

#include <memory>
#include <utility>

#include "delta/engine/manager_of.hpp"

namespace delta::detail {

/// `find(f)` calls `f` with the policy, which is a type of its own. Null where it calls nothing;
/// the storage is still the caller's then.
template <class Find>
std::unique_ptr<manager_interface> make_found(const Find& find,
                                              std::unique_ptr<any_storage>& storage,
                                              any_observer* observer) {
  std::unique_ptr<manager_interface> made;
  find([&](auto p) { made = make_manager(std::move(p), std::move(storage), observer); });
  return made;
}

}  // namespace delta::detail

// delta engine: managers of the policy `adaptive`.
#include "delta/adaptive.hpp"

#include <utility>

#include "compiled_apart.hpp"
#include "delta/engine/manager_of.hpp"

namespace delta::detail {

std::unique_ptr<manager_interface> make_adaptive(std::unique_ptr<any_storage> storage,
                                                 const manager_options& options) {
  return make_manager(adaptive(), std::move(storage), options);
}

}  // namespace delta::detail

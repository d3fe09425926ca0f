// delta: managers by a policy's name, compiled once in the library delta::engine.
//
//   delta::simulated storage{{.capacity = 64_MiB, .host_capacity = 256_MiB}};
//   const auto manager = delta::make_manager("adaptive", delta::over(storage));
//   const delta::tensor_id w = manager->variable(1_MiB, "weights");
//
// The policies are those of presets.hpp; policy_names.hpp lists them. What they decide is the same
// as that of the templates to the last bit, if both are compiled with the same floating-point
// flags. For a policy of your own use the templates, or manager_of.hpp. A program that includes
// both should compile them with the library's flags: inline functions are shared between the two.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "delta/engine/any_storage.hpp"
#include "delta/engine/manager_interface.hpp"
#include "delta/policy_names.hpp"

namespace delta {

class simulated;

/// The name stands for no policy. It is told before anything is made, so it is no delta::error.
class unknown_policy : public std::invalid_argument {
 public:
  explicit unknown_policy(std::string_view name)
      : invalid_argument("there is no policy '" + std::string(name) + "'"), name_(name) {}
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
};

/// A manager of the policy of that name. It owns what `over` has returned, not the storage behind
/// it, which must outlive it. Throws unknown_policy, misuse where there is no storage,
/// std::bad_alloc.
[[nodiscard]] std::unique_ptr<manager_interface> make_manager(std::string_view policy,
                                                              std::unique_ptr<any_storage> storage,
                                                              const manager_options& options = {});

/// The same as the template `over`, compiled once in the library.
[[nodiscard]] std::unique_ptr<any_storage> over(simulated&);

}  // namespace delta

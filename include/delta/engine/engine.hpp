// delta: managers by a policy's name, compiled once in the library delta::engine.
//
//   delta::simulated storage{{.capacity = 64_MiB, .host_capacity = 256_MiB}};
//   const auto manager = delta::make_manager("adaptive", delta::over(storage));
//   const delta::tensor_id w = manager->variable(1_MiB, "weights");
//
// The policies are those of presets.hpp and peers/peer_presets.hpp; what they decide is the same to
// the last bit as that of the templates, which stay the way for policies of one's own.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "delta/engine/any_manager.hpp"
#include "delta/engine/any_observer.hpp"
#include "delta/engine/any_storage.hpp"
#include "delta/policy_names.hpp"

namespace delta {

class simulated;

/// The name stands for no policy (policy_names.hpp lists them).
class unknown_policy : public std::invalid_argument {
 public:
  explicit unknown_policy(std::string_view name)
      : invalid_argument("there is no policy '" + std::string(name) + "'"), name_(name) {}
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
};

/// How a manager is made, beside its policy.
struct manager_options {
  any_observer* observer = nullptr;  ///< told of every event, outlives the manager; null: nobody
  bool strict = false;               ///< for "paper" alone: see presets.hpp
};

/// A manager of the policy of that name, over a storage that it owns. Throws unknown_policy,
/// std::bad_alloc.
[[nodiscard]] std::unique_ptr<any_manager> make_manager(std::string_view policy,
                                                        std::unique_ptr<any_storage> storage,
                                                        const manager_options& options = {});

/// As over<simulated>, but compiled once.
[[nodiscard]] std::unique_ptr<any_storage> over(simulated&);

}  // namespace delta

// delta: makes a manager_interface of a policy that is a type: of a heuristic of one's own, say.
// It does not need the library delta::engine, but compiles a manager where it is used; the policies
// that have names are compiled already (engine.hpp).
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "delta/engine/any_storage.hpp"
#include "delta/engine/manager_interface.hpp"
#include "delta/error.hpp"
#include "delta/learning_report.hpp"
#include "delta/manager.hpp"
#include "delta/testing/replay_check.hpp"

namespace delta {

namespace detail {

/// Implements manager_interface by a manager of that policy.
template <class P>
class manager_of final : public manager_interface {
 public:
  manager_of(P p, std::unique_ptr<any_storage> storage, const maybe_observed& told)
      : storage_(storage ? std::move(storage) : throw misuse("make_manager: there is no storage")),
        manager_(std::move(p), *storage_, told) {}

  using manager_interface::constant;
  using manager_interface::make_room;
  using manager_interface::run;
  using manager_interface::take_block;
  using manager_interface::variable;
  tensor_id constant(bytes size, const char* label) override {
    return manager_.constant(size, label);
  }
  tensor_id variable(bytes size, const char* label) override {
    return manager_.variable(size, label);
  }
  tensor_id constant(bytes size, const char* label, block&& b) override {
    return manager_.constant(size, label, std::move(b));
  }
  tensor_id variable(bytes size, const char* label, block&& b) override {
    return manager_.variable(size, label, std::move(b));
  }
  [[nodiscard]] bool recomputable(tensor_id t) const override { return manager_.recomputable(t); }
  tensor_id share(tensor_id t) override { return manager_.share(t); }
  void drop(tensor_id t) override { manager_.drop(t); }
  void forbid(tensor_id t, pin ways) override { manager_.forbid(t, ways); }
  void run(const operation_span& op, std::span<tensor_id> ids, kernel&& body) override {
    manager_.run(op, ids, std::move(body));
  }
  void make_room(bytes need, const char* operation) override {
    manager_.make_room(need, operation);
  }
  [[nodiscard]] block take_block(bytes size, lifetime expected) override {
    return manager_.take_block(size, expected);
  }
  void give_back(block&& b) noexcept override { manager_.give_back(std::move(b)); }
  void backward() override { manager_.backward(); }
  void end_of_step() override { manager_.end_of_step(); }

  [[nodiscard]] const counters& counts() const override { return manager_.counts(); }
  [[nodiscard]] std::uint64_t evaluations() const override { return manager_.evaluations(); }
  [[nodiscard]] std::uint64_t walked() const override { return manager_.walked(); }
  [[nodiscard]] std::size_t live_tensors() const override { return manager_.live_tensors(); }
  [[nodiscard]] std::size_t live_records() const override { return manager_.live_records(); }
  [[nodiscard]] bytes size(tensor_id t) const override { return manager_.size(t); }
  [[nodiscard]] residency where(tensor_id t) const override { return manager_.where(t); }
  [[nodiscard]] learning_report learned() const override { return learning_report_of(manager_); }
  [[nodiscard]] const step_record* last_step() const override {
    const history& past = manager_.past();
    return past.steps() > 0 ? &past.last() : nullptr;
  }
  [[nodiscard]] any_storage& storage() override { return *storage_; }

 private:
  // What handles call goes to the manager, which has handles of the same kind.
  std::byte* hold(tensor_id t, access how) override { return manager_.hold(t, how); }
  void release(tensor_id t) noexcept override { manager_.release(t); }
  void open_one(const operation_span& op) override { manager_.open_one(op); }
  std::size_t allocate(bytes n) override { return manager_.allocate(n); }
  std::size_t allocate(std::span<const bytes> sizes) override { return manager_.allocate(sizes); }
  std::size_t allocate(bytes n, block&& b) override { return manager_.allocate(n, std::move(b)); }
  std::size_t replace(std::span<const tensor_id> inputs) override {
    return manager_.replace(inputs);
  }
  std::size_t workspace(bytes n) override { return manager_.workspace(n); }
  std::size_t replay_workspace(bytes n) override { return manager_.replay_workspace(n); }
  call arguments() override { return manager_.arguments(); }
  void end(std::span<tensor_id> ids, kernel&& replay) override {
    manager_.end(ids, std::move(replay));
  }
  void abort() noexcept override { manager_.abort(); }

  std::unique_ptr<any_storage> storage_;
  manager<P, any_storage, maybe_observed> manager_;
};

}  // namespace detail

/// A manager of that policy. It owns what `over` has returned (any_storage.hpp), not the storage
/// behind it; that outlives it, as does the observer. Throws misuse where there is no storage,
/// std::bad_alloc.
template <class P>
  requires(!std::convertible_to<P, std::string_view>)  // a name: engine.hpp
[[nodiscard]] std::unique_ptr<manager_interface> make_manager(P p,
                                                              std::unique_ptr<any_storage> storage,
                                                              const manager_options& options = {}) {
  return std::make_unique<detail::manager_of<P>>(std::move(p), std::move(storage),
                                                 detail::maybe_observed{options});
}

}  // namespace delta

// delta executor: a manager of whatever policy and storage, behind virtual functions. A manager is
// dear to compile, and there is one for each policy: what a training step does with it is compiled
// once, apart (train/session.hpp). A call costs some nanoseconds.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "delta/learning_report.hpp"
#include "delta/manager.hpp"
#include "model/graph.hpp"

namespace delta::executor {

/// Who runs the kernels of a graph's operators, the first time and again. Outlives the memory that
/// it is handed to.
class kernel_runner {
 public:
  virtual void compute(const node&, call&) = 0;

 protected:
  kernel_runner() = default;
  ~kernel_runner() = default;
};

/// delta::manager, as far as a session needs it. All throw as the manager's functions of that name.
class managed_memory {
 public:
  managed_memory() = default;
  managed_memory(const managed_memory&) = delete;
  managed_memory& operator=(const managed_memory&) = delete;
  virtual ~managed_memory() = default;

  virtual tensor_id variable(bytes n, const char* label) = 0;
  /// Where the tensor's bytes are until `release`; null where the storage keeps none. One at a
  /// time.
  virtual std::byte* acquire(tensor_id, access) = 0;
  virtual void release() noexcept = 0;
  /// Runs the operator by `with.compute(n, call)`, now and when it has to be replayed. Both outlive
  /// this.
  virtual void run(const operation_span&, std::span<tensor_id> outputs, kernel_runner& with,
                   const node& n) = 0;
  virtual void drop(tensor_id) = 0;
  virtual void backward() = 0;
  virtual void end_of_step() = 0;

  /// What the last operator took on the storage's clock, for which the host waits; nullopt: it is
  /// not known. The last to have ended: behind `run`, that one's.
  virtual std::optional<nanoseconds> measure_last() = 0;
  /// What a request of `n` bytes takes of the budget.
  [[nodiscard]] virtual bytes rounded(bytes n) const = 0;
  [[nodiscard]] virtual const counters& counts() const = 0;
  [[nodiscard]] virtual learning_report learned() const = 0;
};

/// The one over that manager type.
template <class H, class D, class P, class S, class O>
class memory_of final : public managed_memory {
 public:
  memory_of(policy<H, D, P> p, S& storage, O observer)
      : storage_(&storage), manager_(std::move(p), storage, std::move(observer)) {}

  tensor_id variable(bytes n, const char* label) override { return manager_.variable(n, label); }
  std::byte* acquire(tensor_id t, access how) override {
    return view_.emplace(manager_.acquire(t, how)).data();
  }
  void release() noexcept override { view_.reset(); }
  void run(const operation_span& op, std::span<tensor_id> outputs, kernel_runner& with,
           const node& n) override {
    manager_.run(op, outputs, [&with, &n](call& c) { with.compute(n, c); });
  }
  void drop(tensor_id t) override { manager_.drop(t); }
  void backward() override { manager_.backward(); }
  void end_of_step() override { manager_.end_of_step(); }

  std::optional<nanoseconds> measure_last() override {
    const stamp done = storage_->last_operator();
    storage_->wait(done);
    return storage_->elapsed(done);
  }
  [[nodiscard]] bytes rounded(bytes n) const override { return storage_->rounded(n); }
  [[nodiscard]] const counters& counts() const override { return manager_.counts(); }
  [[nodiscard]] learning_report learned() const override { return learning_report_of(manager_); }

 private:
  S* storage_;
  manager<H, D, P, S, O> manager_;
  std::optional<typename manager<H, D, P, S, O>::view> view_;  // goes before the manager
};

/// A manager of that policy over a storage, which outlives it.
template <class H, class D, class P, class S, class O = no_observer>
std::unique_ptr<managed_memory> manage(policy<H, D, P> p, S& storage, O observer = {}) {
  return std::make_unique<memory_of<H, D, P, S, O>>(std::move(p), storage, std::move(observer));
}

}  // namespace delta::executor

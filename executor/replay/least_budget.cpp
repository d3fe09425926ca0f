#include "replay/least_budget.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace delta::executor {
namespace {

/// What is alive, storage by storage, as the events go by.
class needs {
 public:
  explicit needs(const trace& t)
      : trace_(&t),
        owner_(t.tensors.size()),
        references_(t.tensors.size()),
        pinned_(t.tensors.size()),
        seen_(t.tensors.size(), trace::none) {}

  bytes most() {
    for (const trace::event& e : trace_->events) {
      switch (e.what) {
        case trace::kind::constant:
          pinned_[e.index] = true;
          constants_ += size(e.index);
          [[fallthrough]];
        case trace::kind::variable:
          made(e.index);
          break;
        case trace::kind::run:
          run(e.index);
          break;
        case trace::kind::share:
          ++references_[owner_[e.index]];
          break;
        case trace::kind::drop:
          drop(owner_[e.index]);
          break;
        case trace::kind::read:
        case trace::kind::write:
          alone(owner_[e.index]);
          break;
        case trace::kind::backward:
        case trace::kind::end_of_step:
          break;
      }
      most_ = std::max(most_, constants_);
    }
    return std::max(most_, results());
  }

 private:
  void made(std::uint32_t tensor) {
    const std::uint32_t base = trace_->tensors[tensor].view_of;
    owner_[tensor] = base == trace::none ? tensor : owner_[base];
    ++references_[owner_[tensor]];
  }
  void drop(std::uint32_t storage) {
    if (--references_[storage] == 0 && pinned_[storage]) constants_ -= size(storage);
  }
  /// The program looks at it.
  void alone(std::uint32_t storage) {
    if (!pinned_[storage]) most_ = std::max(most_, constants_ + size(storage));
  }
  void run(std::uint32_t operation) {
    const auto& o = trace_->operations[operation];
    for (const std::uint32_t tensor : trace_->outputs(o)) made(tensor);
    bytes sum = constants_ + trace_->rounded(o.workspace);
    for (const auto list : {trace_->inputs(o), trace_->outputs(o), trace_->updates(o)}) {
      for (const std::uint32_t tensor : list) {
        const std::uint32_t storage = owner_[tensor];
        const bool counted = std::exchange(seen_[storage], operation) == operation;
        if (!counted && !pinned_[storage]) sum += size(storage);
      }
    }
    most_ = std::max(most_, sum);
  }
  [[nodiscard]] bytes results() const {
    bytes sum{};
    if (!trace_->has_results()) return sum;
    for (std::uint32_t s = 0; s < references_.size(); ++s)
      if (references_[s] > 0) sum += size(s);
    return sum;
  }
  [[nodiscard]] bytes size(std::uint32_t storage) const {
    return trace_->rounded(trace_->tensors[storage].size);
  }

  const trace* trace_;
  std::vector<std::uint32_t> owner_;       // of each tensor's bytes
  std::vector<std::uint64_t> references_;  // to an owner and its views
  std::vector<bool> pinned_;               // constants
  std::vector<std::uint32_t> seen_;        // by storage: the last operation that touched it
  bytes constants_{};
  bytes most_{};
};

}  // namespace

bytes least_budget(const trace& t) {
  return needs(t).most();
}

}  // namespace delta::executor

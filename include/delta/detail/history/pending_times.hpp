// delta: a queue of work on the compute lane whose duration is not known yet, because the lane runs
// behind the host.
#pragma once

#include <cstddef>
#include <vector>

#include "delta/units.hpp"

namespace delta::detail {

/// Pieces of work in the order in which they were queued, each with the caller's data.
template <class What>
class pending_times {
 public:
  void add(stamp done, const What& what) { list_.push_back({done, what}); }
  void clear() noexcept { list_.clear(); }
  /// Calls `tell(what, took)` for those at the front whose times `cost_of(stamp)` knows by now, and
  /// forgets them. Where too many wait, the oldest are forgotten untold. Amortised O(1) per piece.
  template <class CostOf, class Tell>
  void poll(const CostOf& cost_of, const Tell& tell) {
    std::size_t known = 0;
    for (; known < list_.size(); ++known) {
      const auto took = cost_of(list_[known].done);
      // Times come in order, as the lane is serial: the rest are not known either.
      if (!took && list_.size() - known < patience) break;
      if (took) tell(list_[known].what, *took);
    }
    list_.erase(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(known));
  }

 private:
  // How many may wait: a storage need not ever know their times. A GPU may be as many behind.
  static constexpr std::size_t patience = 1024;
  struct piece {
    stamp done;
    What what;
  };
  std::vector<piece> list_;
};

}  // namespace delta::detail

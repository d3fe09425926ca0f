// delta executor: Chen et al. (2016): every sqrt(n)-th operator's outputs stay, all else is
// recomputed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/manager.hpp"
#include "delta/prefetcher.hpp"

namespace delta::executor {

/// Chen et al.'s rule (2016): of the n operators whose outputs the backward pass needs, every
/// ceil(sqrt(n))-th keeps them; of all else, first what the forward pass needs no more. Least
/// recently used within these. The step before tells, whose peak stands for the end of the forward
/// pass; without one it is the least recently used of all. O(1).
struct sqrt_segments {
  static constexpr bool learns = true;

  double score(const context& c, tensor_id t) const noexcept {
    const std::uint32_t s = c.past().storage_of(t);
    double rank = 1;
    if (s < kept_.size() && c.past().followed().operations.back().exact == key_) {
      const forecast f = c.next_use(t);
      const bool over = f.what != forecast::kind::unknown &&
                        (f.what == forecast::kind::never || f.position > peak_at_);
      rank = kept_[s] ? 2 : over ? 0 : 1;
    }
    return rank * longest - c.staleness(t);
  }
  /// O(step).
  void end_of_step(const context& c) {
    if (c.past().steps() == 0) return;
    const step_record& step = c.past().last();
    key_ = step.operations.back().exact;
    peak_at_ = step.peak_at;
    kept_.assign(step.storages.size(), false);
    const auto outlives_peak = [&](std::uint32_t s) {
      const step_record::storage& x = step.storages[s];
      return x.uses > 0 && step.uses[x.first_use + x.uses - 1] > peak_at_;
    };
    std::vector<std::uint32_t> makers;
    for (std::uint32_t i = 0; i <= peak_at_; ++i)
      if (std::ranges::any_of(step.outputs(step.operations[i]), outlives_peak)) makers.push_back(i);
    const auto segment =
        static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(makers.size()))));
    for (std::size_t i = segment; segment > 0 && i <= makers.size(); i += segment)
      for (const std::uint32_t s : step.outputs(step.operations[makers[i - 1]])) kept_[s] = true;
  }

 private:
  static constexpr double longest = 0x1p50;  // ns: thirteen days, which no tensor waits
  std::uint64_t key_ = 0;                    // of the step that it was made for
  std::uint32_t peak_at_ = 0;
  std::vector<bool> kept_;  // by storage of that step
};

/// Chen et al.: recomputing alone. Published as a transformation of the graph; here what is not
/// kept leaves when memory is short, and each tensor is recomputed for itself.
inline policy<sqrt_segments, evict_only, no_prefetch> chen() {
  return {};
}

}  // namespace delta::executor

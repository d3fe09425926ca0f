// delta executor: what a budget would do to a graph's training steps: they are recorded as a trace,
// without memory or kernels, and the trace is replayed in virtual time. What blocks are rounded to,
// and the operators' workspaces, are those of the backend that will run them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "backend/cpu_backend.hpp"
#include "delta/observer.hpp"
#include "delta/units.hpp"
#include "model/graph.hpp"
#include "train/report.hpp"

namespace delta::executor {

/// A machine and a policy to try a graph's steps on, in virtual time.
struct trial {
  std::string_view policy = "adaptive";
  bytes budget{};
  bytes host_budget{};
  double copy_rate = 0;  ///< bytes per second each way; 0: default_copy_rate
  int steps = 3;
  std::uint64_t granularity = cpu_granularity;  ///< of the backend that the graph is bound to
};

/// The virtual clock's copy rate where none is given, bytes per second each way.
inline constexpr double default_copy_rate = 8e9;

/// What the trial's policy decides; nullopt: the budget is too small. A training run with a virtual
/// clock, the same steps and the same budgets decides the same.
[[nodiscard]] std::optional<counters> rehearse(const graph&, const trial&);

/// The unmanaged peak, exactly as a run would measure it, by class. O(nodes).
[[nodiscard]] bytes_by_class unmanaged_peak(const graph&,
                                            std::uint64_t granularity = cpu_granularity);

/// Inputs, outputs, updates and workspace of the largest operator, rounded: no policy can do with
/// less.
[[nodiscard]] bytes largest_footprint(const graph&, std::uint64_t granularity = cpu_granularity);

/// The smallest budget (to 0.1 %) found to pass between the largest operator's footprint and the
/// unmanaged peak, and above the trial's own, which is known not to; nullopt when even that peak
/// does not. Some 12 trials: seconds at most.
[[nodiscard]] std::optional<bytes> smallest_budget(const graph&, trial);

}  // namespace delta::executor

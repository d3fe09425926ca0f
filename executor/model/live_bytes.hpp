// delta executor: how many bytes of a step's values are alive at each operator, when nothing
// leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "model/graph.hpp"

namespace delta::executor {

/// Per node, while it runs, workspaces left out: persistent values, the inputs from the step's
/// beginning, and what is made from its producer to its last use; sizes rounded up to
/// `granularity`, a power of two. O(nodes + values).
[[nodiscard]] std::vector<std::uint64_t> live_bytes(const graph&, std::uint64_t granularity);

/// The largest of them: the peak of a run without a budget, less its workspaces.
[[nodiscard]] std::uint64_t peak_of_values(const graph&, std::uint64_t granularity);

}  // namespace delta::executor

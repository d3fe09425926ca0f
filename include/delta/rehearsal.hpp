// delta: a step that was seen, once more in virtual time: what a policy would make of the next one.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "delta/context.hpp"
#include "delta/error.hpp"
#include "delta/manager.hpp"
#include "delta/step.hpp"
#include "delta/storage/simulated.hpp"

namespace delta {

/// What the next step like `step` would take, in ns: runs it under a policy that knows it already,
/// on a machine of those rates and that memory, in virtual time. Infinite where it does not come to
/// its end, or not within `limit` ns. What came from outside the step is there when it begins, and
/// free bytes are in one piece. `variant`: of several policies (switching.hpp) the one that
/// decides. As dear as the decisions of one step: milliseconds. Throws std::bad_alloc.
template <Heuristic H, Decider D, Prefetcher P>
[[nodiscard]] double rehearse(const step_record& step, policy<H, D, P> p, std::uint32_t variant,
                              const simulated_options& machine, double limit = never) {
  simulated_options on = machine;
  on.places = false;
  simulated storage(on);
  struct too_long {};
  try {
    manager m{std::move(p), storage};
    std::vector<tensor_id> ids(step.storages.size(), tensor_id::none);
    // What outlives its operator, by the operator before whose end nobody lets it go.
    std::vector<std::vector<std::uint32_t>> dying(step.operations.size());
    for (std::uint32_t s = 0; s < step.storages.size(); ++s) {
      const step_record::storage& x = step.storages[s];
      if (x.born == step_record::none) ids[s] = x.pinned ? m.constant(x.size) : m.variable(x.size);
      if (x.died != step_record::none) dying[x.died].push_back(s);
    }
    m.teach(step, variant, ids);
    std::vector<tensor_id> inputs, updates, made;
    std::vector<bytes> sizes;
    const auto began = storage.now();
    for (std::uint32_t i = 0; i < step.length(); ++i) {
      const step_record::operation& o = step.operations[i];
      const auto touched = step.touched(o), outputs = step.outputs(o);
      inputs.clear(), updates.clear(), sizes.clear();
      for (std::size_t k = 0; k < touched.size(); ++k)
        (k < o.inputs ? inputs : updates).push_back(ids[touched[k]]);
      for (const std::uint32_t s : outputs) sizes.push_back(step.storages[s].size);
      made.resize(sizes.size());
      m.run(operation_span{.inputs = inputs,
                           .outputs = sizes,
                           .updates = updates,
                           .workspace = o.workspace,
                           .traits = o.traits,
                           .cost = nanoseconds{static_cast<std::int64_t>(o.cost)},
                           .name = ""},
            made, [&](call&) {
              if (static_cast<double>((storage.now() - began).count()) > limit) throw too_long{};
            });
      for (std::size_t k = 0; k < made.size(); ++k) ids[outputs[k]] = made[k];
      for (const std::uint32_t s : dying[i]) m.drop(ids[s]);
    }
    m.end_of_step();
    return static_cast<double>((storage.now() - began).count());
  } catch (const error&) {
    return never;  // the budget does not do for this policy
  } catch (too_long) {
    return never;
  }
}

}  // namespace delta

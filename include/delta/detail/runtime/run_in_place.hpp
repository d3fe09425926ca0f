// delta: repeats a recorded operator some of whose outputs take over the blocks of its inputs.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "delta/kernel.hpp"
#include "delta/tensor.hpp"

namespace delta::detail {

/// Runs `op` with one more output for each of `old`, in that input's block; `made` receives all
/// outputs, in order. Where one of `old` can't be made again under the manager's policy, all are
/// changed for good: they are updated, the outputs share them, and the operator is never replayed.
/// O(inputs * old) besides the operator. Throws as `manager::run` and `open_operator::replace`.
template <class Manager, class Work>
void run_in_place(Manager& m, operation_span op, std::span<const tensor_id> old,
                  std::vector<tensor_id>& made, const Work& work) {
  made.resize(op.outputs.size());
  if (old.empty()) return void(m.run(op, made, work));
  if (std::ranges::all_of(old, [&](tensor_id t) { return m.recomputable(t); })) {
    made.resize(op.outputs.size() + old.size());
    auto open = m.begin(op);
    open.replace(old);
    call arguments = open.arguments();
    work(arguments);
    open.end(made, work);
    return;
  }
  std::vector<tensor_id> inputs, updates(op.updates.begin(), op.updates.end());
  std::ranges::copy_if(op.inputs, std::back_inserter(inputs),
                       [&](tensor_id t) { return std::ranges::find(old, t) == old.end(); });
  updates.insert(updates.end(), old.begin(), old.end());
  op.inputs = inputs, op.updates = updates, op.traits = op.traits | trait::never_replay;
  m.run(op, made, work);
  for (const tensor_id t : old) made.push_back(m.share(t));
}

}  // namespace delta::detail

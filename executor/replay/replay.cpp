#include "replay/replay.hpp"

#include <algorithm>

namespace delta::executor {

unmanaged_cost unmanaged(const trace& t) {
  unmanaged_cost cost;
  std::vector<std::uint64_t> references(t.tensors.size(), 0);  // of storages, views included
  std::vector<std::uint32_t> root(t.tensors.size());
  bytes live{};
  const auto refer = [&](std::uint32_t tensor) {
    if (references[root[tensor]]++ == 0) live += t.tensors[root[tensor]].size;
  };
  const auto make = [&](std::uint32_t tensor) {
    const std::uint32_t base = t.tensors[tensor].view_of;
    root[tensor] = base == trace::none ? tensor : root[base];
    refer(tensor);
  };
  for (const trace::event& e : t.events) {
    switch (e.what) {
      case trace::kind::constant:
      case trace::kind::variable:
        make(e.index);
        break;
      case trace::kind::run: {
        const trace::operation& o = t.operations[e.index];
        cost.time += o.cost;
        for (const std::uint32_t tensor : t.outputs(o)) make(tensor);
        cost.peak = std::max(cost.peak, live + o.workspace);
        break;
      }
      case trace::kind::share:
        refer(e.index);
        break;
      case trace::kind::drop:
        if (--references[root[e.index]] == 0) live -= t.tensors[root[e.index]].size;
        break;
      case trace::kind::backward:
      case trace::kind::end_of_step:
        break;
    }
    cost.peak = std::max(cost.peak, live);
  }
  return cost;
}

}  // namespace delta::executor

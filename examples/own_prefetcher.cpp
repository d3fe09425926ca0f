// A prefetcher of one's own, beside none at all, on the same work in virtual time.
#include <delta/delta.hpp>
#include <iostream>
#include <vector>

using namespace delta::literals;
using namespace std::chrono_literals;

// A backward pass wants what left last. It comes back while there is room for the next operator
// too.
struct newest_back {
  delta::tensor_id next(const delta::context& c) const noexcept {
    if (!c.backward() || c.offloaded().empty()) return delta::tensor_id::none;
    const delta::tensor_id t = c.offloaded().back();
    const double taken = c.used() - c.leaving() + c.coming_need();
    return taken + c.bytes(t) <= c.budget() ? t : delta::tensor_id::none;
  }
};
static_assert(delta::explain_prefetcher<newest_back>());

struct outcome {
  delta::nanoseconds time;
  std::uint64_t prefetches;
};
template <delta::Prefetcher P>
outcome run_with(P prefetcher) {
  delta::simulated storage{
      {.capacity = 32_MiB, .host_capacity = 1_GiB, .rate_out = 2e9, .rate_in = 2e9}};
  delta::manager manager{delta::lru{}, delta::offload_only{}, prefetcher, storage};
  std::vector<delta::tensor_id> kept{manager.variable(2_MiB)};
  for (int i = 0; i < 32; ++i)
    kept.push_back(
        manager.run({.inputs = {kept.back()}, .outputs = {2_MiB}, .cost = 2ms}, [](auto&) {}));
  manager.backward();
  while (kept.size() > 1) {
    const auto g =
        manager.run({.inputs = {kept.back()}, .outputs = {1_MiB}, .cost = 4ms}, [](auto&) {});
    manager.drop(g), manager.drop(kept.back());
    kept.pop_back();
  }
  return {storage.now(), manager.counts().prefetches};
}

int main() {
  const outcome own = run_with(newest_back{}), none = run_with(delta::no_prefetch{});
  std::cout << "newest_back " << own.time / 1us << " us, " << own.prefetches
            << " came back early; delta::no_prefetch " << none.time / 1us << " us\n";
  return own.prefetches > 0 && own.time < none.time ? 0 : 1;
}

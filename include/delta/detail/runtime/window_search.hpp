// delta: where free bytes lie scattered, which neighbours to release so that a request fits in one
// piece (Coop's contiguous release, weighed against moving blocks together). Releasing the lowest
// scores one by one, as the Filter would, frees bytes all over the memory and no piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "delta/context.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Finds the cheapest window of neighbours. Keeps its buffers, so that in the long run it asks no
/// heap. Knows neither storage nor policy: the reclaimer hands both in as callables. For 3 bytes in
/// one piece, costs in ns:
///
///   | hole 1 | x 2, 50 | w 1, stays | y 1, 10 | hole 1 | z 1, 20 |
///   y, the hole and z: 30 ns. x and the hole before it: 50 ns. Nothing across w.
class window_search {
 public:
  /// The tensors to release so that `size` bytes are free in one piece, for less than `limit` ns in
  /// all; empty: there is no such window. `walk(visit)` calls `visit(row, size, used)` in address
  /// order, `owner(row)` is the tensor of a used row or none, `cost(tensor)` what getting it back
  /// takes in ns (infinite: it stays). Valid until the next call. O(blocks), and as many calls of
  /// `cost`.
  template <class Walk, class Owner, class Cost>
  [[nodiscard]] std::span<const tensor_id> cheapest(bytes size, double limit, const Walk& walk,
                                                    const Owner& owner, const Cost& cost) {
    strip_.clear();
    chosen_.clear();
    // Scratch and outputs to come have no tensor: they stay, like what costs infinitely much.
    walk([&](std::uint32_t row, bytes stretch, bool used) {
      const tensor_id t = used ? owner(row) : tensor_id::none;
      const double price = !used ? 0.0 : t == tensor_id::none ? never : cost(t);
      strip_.push_back({t, stretch, price});
    });
    // Two ends run over the strip. What stays splits it; the left end follows as long as the rest
    // is still large enough, so every window looked at is as narrow as it can be.
    std::size_t best_first = 0, best_end = 0, first = 0;
    double sum_cost = 0;
    bytes sum{};
    for (std::size_t i = 0; i < strip_.size(); ++i) {
      if (strip_[i].cost == never) {
        first = i + 1, sum_cost = 0, sum = {};
        continue;
      }
      sum_cost += strip_[i].cost, sum += strip_[i].size;
      for (; sum - strip_[first].size >= size; ++first)
        sum_cost -= strip_[first].cost, sum -= strip_[first].size;
      if (sum >= size && sum_cost < limit) limit = sum_cost, best_first = first, best_end = i + 1;
    }
    for (std::size_t i = best_first; i < best_end; ++i)
      if (strip_[i].tensor != tensor_id::none) chosen_.push_back(strip_[i].tensor);
    return chosen_;
  }

 private:
  /// One stretch of the device's memory: a hole, a tensor that may leave, or something that stays.
  struct neighbour {
    tensor_id tensor;  // none: a hole, or nobody's
    bytes size;
    double cost;  // ns to get it back; infinite: it stays
  };
  std::vector<neighbour> strip_;
  std::vector<tensor_id> chosen_;
};

}  // namespace delta::detail

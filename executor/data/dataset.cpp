#include "data/dataset.hpp"

#include <algorithm>
#include <utility>

#include "data/counter_random.hpp"

namespace delta::executor {

epoch_order::epoch_order(image_range range, std::uint64_t seed)
    : first_(static_cast<std::uint32_t>(range.first)), seed_(seed), order_(range.count) {
  shuffle(0);
}

void epoch_order::shuffle(std::uint64_t epoch) noexcept {
  for (std::size_t i = 0; i < order_.size(); ++i) {
    order_[i] = first_ + static_cast<std::uint32_t>(i);
  }
  const std::uint64_t stream = mix(seed_, epoch);
  for (std::size_t left = order_.size(); left > 1; --left) {
    std::swap(order_[left - 1], order_[below(mix(stream, left), left)]);
  }
}

std::span<const std::uint32_t> epoch_order::batch(std::size_t number,
                                                  std::size_t size) const noexcept {
  const std::size_t begin = std::min(number * size, order_.size());
  return std::span(order_).subspan(begin, std::min(size, order_.size() - begin));
}

}  // namespace delta::executor

// delta: the scratch of an operator that asked for several pieces, as a replay has it.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "delta/kernel.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// A stored kernel whose operator asked for several pieces of scratch: a replay allocates them as
/// one block, and the kernel sees them one by one, as it did the first time.
template <class Kernel>
class split_scratch {
 public:
  /// `ends`: where each piece ends in the block, rising.
  split_scratch(std::vector<bytes> ends, Kernel&& body)
      : ends_(std::move(ends)), body_(std::forward<Kernel>(body)) {
    places_.resize(ends_.size());
  }
  void operator()(call& c) {
    std::byte* const block = c.workspace();
    for (std::size_t i = 0; i < places_.size(); ++i)
      places_[i] = block == nullptr ? nullptr : block + (i == 0 ? 0 : ends_[i - 1].count);
    call split = c.with_workspaces(places_);
    body_(split);
  }

 private:
  std::vector<bytes> ends_;
  std::vector<std::byte*> places_;
  std::decay_t<Kernel> body_;
};
template <class Kernel>
split_scratch(std::vector<bytes>, Kernel&&) -> split_scratch<Kernel>;

}  // namespace delta::detail

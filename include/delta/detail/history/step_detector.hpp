// delta: detects where a training step begins, in a program that does not mark the ends of its
// steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "delta/units.hpp"

namespace delta::detail {

/// Notices that a step begins, in a program that has never marked the end of one: its first
/// operator comes again, on the same parameters, and next to nothing of what operators have made
/// since is left. The second condition tells it from the cell of a recurrent network, which comes
/// again in the middle of a step, when what the cells before it made is still there.
class step_detector {
 public:
  /// The program marks its steps: from now on nothing is noticed.
  void mark() noexcept { marked_ = true; }
  /// Bytes of an operator's output that came, or that the program dropped.
  void made(bytes n) noexcept {
    held_ += n.count;
    most_ = std::max(most_, held_);
  }
  void dropped(bytes n) noexcept { held_ -= std::min(held_, n.count); }

  /// An operator begins; `is_source(t)`: nothing made it. Does a step begin with it? The first one
  /// of all is remembered, and is no news. O(touched).
  template <class IsSource>
  bool begins(std::string_view name, std::span<const tensor_id> touched,
              const IsSource& is_source) {
    if (marked_) return false;
    if (operators_++ == 0) {
      name_.assign(name.begin(), name.end());
      touched_.assign(touched.begin(), touched.end());
      for (tensor_id& t : touched_)
        if (!is_source(t)) t = tensor_id::none;
      return false;
    }
    const bool emptied = most_ > 0 && held_ <= most_ / share;
    if (operators_ - 1 < shortest || !emptied || !same(name, touched)) return false;
    operators_ = 1;
    most_ = held_;
    return true;
  }

 private:
  static constexpr std::uint64_t shortest = 8;  // operators of a step
  static constexpr std::uint64_t share = 10;    // of the most that was held, which may be left

  // A batch may be another tensor in each step; one of the sources at least is a parameter.
  [[nodiscard]] bool same(std::string_view name, std::span<const tensor_id> touched) const {
    if (touched.size() != touched_.size() || !std::ranges::equal(name, name_)) return false;
    for (std::size_t i = 0; i < touched.size(); ++i)
      if (touched_[i] != tensor_id::none && touched[i] == touched_[i]) return true;
    return false;
  }

  std::vector<char> name_;
  std::vector<tensor_id> touched_;  // by the first operator; none: what another operator had made
  std::uint64_t operators_ = 0, held_ = 0, most_ = 0;
  bool marked_ = false;
};

}  // namespace delta::detail

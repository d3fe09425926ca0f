// delta: the copies under way, by what each means to its tensor.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "delta/machine_state.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// In the order in which they were queued. *Claims* hold the transfer: out, after which the
/// tensor's device bytes go; or in, before anybody needs the tensor. *Copies* go out of a resident
/// tensor whose host end is not valid yet. No tensor waits for *detached* ones any more, but they
/// take the lane's time. *Landings* are the last copies whose tensors were used before they were
/// over. Few at a time: O(copies) per copy, but where it says otherwise.
class copies_under_way {
 public:
  struct copy {
    tensor_id tensor;  ///< none: detached
    bytes size;        ///< rounded
    stamp done;
    std::optional<transfer> moving = {};  ///< of a claim: holds both ends until it is taken back
  };

  void add(tensor_id t, bytes size, transfer&& moving) {
    const stamp done = moving.done();
    list_.push_back({t, size, done, std::move(moving)});
  }
  void add(tensor_id t, bytes size, stamp done) { list_.push_back({t, size, done}); }
  /// Ends the claim on that tensor; nullopt: there is none.
  std::optional<transfer> take_claim(tensor_id t) {
    const auto at = find([&](const copy& c) { return c.tensor == t && c.moving; });
    return at == list_.end() ? std::nullopt : take(at).moving;
  }
  /// When the copy of that resident tensor, which has one, is over; it is not kept here any longer.
  stamp take_copy(tensor_id t) {
    return take(find([&](const copy& c) { return c.tensor == t && !c.moving; })).done;
  }
  /// Ends those that are over, and hands each to `arrive`, which may add others.
  template <class Reached, class Arrive>
  void take_done(const Reached& reached, const Arrive& arrive) {
    for (std::size_t i = 0; i < list_.size();)
      if (reached(list_[i].done))
        arrive(take(list_.begin() + static_cast<std::ptrdiff_t>(i)));
      else
        ++i;
  }
  /// Waits for the oldest claim out, or where there is none for the oldest one in, by `wait(done)`,
  /// and ends it; nullopt: there are none.
  template <class Wait>
  std::optional<copy> take_oldest(const Wait& wait) {
    auto oldest = find([](const copy& c) { return c.moving && c.done.where == lane::copy_out; });
    if (oldest == list_.end()) oldest = find(is_claim);
    if (oldest == list_.end()) return std::nullopt;
    wait(oldest->done);
    return take(oldest);
  }
  [[nodiscard]] bool any_claim() const noexcept { return std::ranges::any_of(list_, is_claim); }
  /// Bytes of all claims.
  [[nodiscard]] bytes claimed() const noexcept {
    bytes sum{};
    for (const copy& c : list_)
      if (c.moving) sum += c.size;
    return sum;
  }
  /// Whose block that is by the token's index, where a claim has it; else none.
  [[nodiscard]] tensor_id owner(std::uint32_t row) const noexcept {
    const auto at = std::ranges::find_if(
        list_, [&](const copy& c) { return c.moving && c.moving->device().index() == row; });
    return at == list_.end() ? tensor_id::none : at->tensor;
  }

  // --- landings ---------------------------------------------------------------------------------

  /// A tensor is used though its copy is not over: until then its block can't be moved. The last
  /// per direction are remembered. O(1).
  void note_landing(stamp done) noexcept {
    stamp& last = landings_[done.where == lane::copy_in];
    if (done.point > last.point) last = done;
  }
  /// Waits for those. False: there were none since the last call. (One that ended after the blocks
  /// were looked at counts: it may be what was in the way.)
  template <class Wait>
  bool wait_for_landings(const Wait& wait) {
    bool any = false;
    for (stamp& s : landings_)
      if (const stamp last = std::exchange(s, stamp{}); last.point != 0) {
        wait(last);
        any = true;
      }
    return any;
  }

  /// All, those out first, each lane's as queued. Valid until the next call. O(copies log copies).
  [[nodiscard]] std::span<const queued_copy> queued() {
    sorted_.clear();
    for (const copy& c : list_) {
      const bool out = c.done.where == lane::copy_out;
      sorted_.push_back({c.done, {c.tensor, c.size, out ? direction::out : direction::in}});
    }
    std::ranges::sort(sorted_, {}, [](const auto& c) {
      return std::pair(c.second.way == direction::in, c.first.point);
    });
    queued_.clear();
    for (const auto& c : sorted_) queued_.push_back(c.second);
    return queued_;
  }

 private:
  static bool is_claim(const copy& c) noexcept { return c.moving.has_value(); }
  std::vector<copy>::iterator find(const auto& is) { return std::ranges::find_if(list_, is); }
  copy take(std::vector<copy>::iterator at) {
    copy c = std::move(*at);
    list_.erase(at);
    return c;
  }

  std::vector<copy> list_;
  std::array<stamp, 2> landings_{};
  std::vector<std::pair<stamp, queued_copy>> sorted_;  // scratch
  std::vector<queued_copy> queued_;
};

}  // namespace delta::detail

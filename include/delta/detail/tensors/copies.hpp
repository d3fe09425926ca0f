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

/// Three kinds, each in the order in which they were queued:
///
///   claims     out, after which the tensor's device bytes go; or in, before anybody needs it
///   copies     out, of a resident tensor whose host end is not valid yet
///   detached   those that no tensor waits for any more: they still take the copy lane's time
///
/// And the last copies whose tensors were used before they were over: landings. Few at a time, so
/// the lists are searched: O(copies) per copy, but where it says otherwise.
class copies_under_way {
 public:
  /// A copy with a claim on its tensor. The transfer holds both ends until it is taken back.
  struct claim {
    tensor_id tensor;
    transfer moving;
  };

  // --- claims -----------------------------------------------------------------------------------

  [[nodiscard]] std::span<const claim> claims() const noexcept { return claims_; }
  void add(tensor_id t, transfer&& moving) { claims_.push_back({t, std::move(moving)}); }
  /// Ends the claim on that tensor; nullopt: there is none.
  std::optional<transfer> take(tensor_id t) {
    const auto at = std::ranges::find(claims_, t, &claim::tensor);
    if (at == claims_.end()) return std::nullopt;
    return take(at).moving;
  }
  /// Ends those whose copies are over, and hands each to `arrive`.
  template <class Reached, class Arrive>
  void take_done(const Reached& reached, const Arrive& arrive) {
    for (std::size_t i = 0; i < claims_.size();)
      if (reached(claims_[i].moving.done()))
        arrive(take(claims_.begin() + static_cast<std::ptrdiff_t>(i)));
      else
        ++i;
  }
  /// Waits for the oldest copy out, or where there is none for the oldest copy in, by `wait(done)`,
  /// and ends its claim; nullopt: there are none.
  template <class Wait>
  std::optional<claim> take_oldest(const Wait& wait) {
    if (claims_.empty()) return std::nullopt;
    auto oldest = std::ranges::find_if(
        claims_, [](const claim& c) { return c.moving.done().where == lane::copy_out; });
    if (oldest == claims_.end()) oldest = claims_.begin();
    wait(oldest->moving.done());
    return take(oldest);
  }
  /// Whose block that is by the token's index, where a copy has it; else none.
  [[nodiscard]] tensor_id owner(std::uint32_t row) const noexcept {
    const auto at =
        std::ranges::find(claims_, row, [](const claim& c) { return c.moving.device().index(); });
    return at == claims_.end() ? tensor_id::none : at->tensor;
  }

  // --- copies of resident tensors ---------------------------------------------------------------

  void add_copy(tensor_id t, stamp done) { copies_.push_back({t, done}); }
  /// When the copy of that tensor, which has one, is over; it is not kept here any longer.
  stamp take_copy(tensor_id t) {
    const auto at = std::ranges::find(copies_, t, &copy::tensor);
    const stamp done = at->done;
    copies_.erase(at);
    return done;
  }
  /// Hands the tensors whose copies are over to `done`.
  template <class Reached, class Done>
  void take_done_copies(const Reached& reached, const Done& done) {
    std::erase_if(copies_, [&](const copy& c) {
      if (!reached(c.done)) return false;
      done(c.tensor);
      return true;
    });
  }

  // --- those that nobody waits for --------------------------------------------------------------

  void detach(stamp done, bytes size) { detached_.push_back({done, size}); }
  template <class Reached>
  void forget_detached(const Reached& reached) {
    std::erase_if(detached_, [&](const detached& f) { return reached(f.done); });
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

  /// All of them, those out first, each lane's in the order in which they were queued. `size_of`:
  /// a tensor's rounded bytes. Valid until the next call. O(copies log copies).
  template <class SizeOf>
  [[nodiscard]] std::span<const queued_copy> queued(const SizeOf& size_of) {
    sorted_.clear();
    const auto add = [&](tensor_id t, stamp done, bytes n) {
      const bool out = done.where == lane::copy_out;
      sorted_.push_back({done, {t, n, out ? direction::out : direction::in}});
    };
    for (const claim& c : claims_) add(c.tensor, c.moving.done(), size_of(c.tensor));
    for (const copy& c : copies_) add(c.tensor, c.done, size_of(c.tensor));
    for (const detached& f : detached_) add(tensor_id::none, f.done, f.size);
    std::ranges::sort(sorted_, {}, [](const auto& c) {
      return std::pair(c.second.way == direction::in, c.first.point);
    });
    queued_.clear();
    for (const auto& c : sorted_) queued_.push_back(c.second);
    return queued_;
  }

 private:
  struct copy {
    tensor_id tensor;
    stamp done;
  };
  struct detached {
    stamp done;
    bytes size;
  };
  claim take(std::vector<claim>::iterator at) {
    claim c = std::move(*at);
    claims_.erase(at);
    return c;
  }

  std::vector<claim> claims_;
  std::vector<copy> copies_;
  std::vector<detached> detached_;
  std::array<stamp, 2> landings_{};
  std::vector<std::pair<stamp, queued_copy>> sorted_;  // scratch
  std::vector<queued_copy> queued_;
};

}  // namespace delta::detail

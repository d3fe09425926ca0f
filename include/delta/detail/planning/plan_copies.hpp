// delta: the copies of a plan of residency: when their lanes carry them out, and what that costs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "delta/detail/planning/copy_lane.hpp"
#include "delta/detail/planning/plan_parts.hpp"
#include "delta/detail/planning/step_model.hpp"

namespace delta::detail {

/// A plan whose copies take the time of two lanes, beside the operators. A copy out begins as early
/// as it can, a copy in as late; what finds no time on its lane costs that time.
class plan_copies : public plan_parts {
 public:
  /// By how much positions take longer than their operators, in ns, when the plan is carried out:
  /// what of that is no recomputation, lanes may use. All copies are placed anew.
  void lengthen(std::span<const double> longer) {
    for (std::size_t p = 0; p < longer.size(); ++p) {
      stalls_[p] = longer[p];
      for (const replay& r : replays_[p]) stalls_[p] -= cost_of(r.operation);
      stalls_[p] = std::max(0.0, stalls_[p]);
    }
    waits_.assign(waits_.size(), 0.0);
    repack(true);
  }
  /// Operators wait for copies that find no time, once for both lanes, which may use that time. All
  /// copies are placed anew.
  void wait_for_copies() {
    std::array<std::vector<double>, 2> more;
    for (auto& m : more) m.assign(waits_.size(), 0.0);
    for (std::uint32_t s = 0; s < needs_.size(); ++s)
      for (std::size_t k = 0; k < needs_[s].size(); ++k) {
        need& n = needs_[s][k];
        if (n.how != way::copied) continue;
        more[0][index(in_step(before(s, k) + 1))] += copy_of(n).waits[0];
        more[1][index(in_step(n.at))] += copy_of(n).waits[1];
        n.exposed = {};
      }
    for (position p = 0; p < length(); ++p) {
      double& wait = waits_[index(p)];
      double used = 0;  // by the busier lane
      if (wait > 0) {
        const copy_lane::time from = waits_from(p), to = start_[index(p)];
        used = static_cast<double>(
            std::max(lanes_[0].busy(from, to), lanes_[1].busy(period_ - to, period_ - from)));
      }
      wait = std::min(wait, used) + std::max(more[0][index(p)], more[1][index(p)]);
    }
    repack(true);
  }
  /// ns of copies that find no time, where kernels could hide them. O(needs).
  [[nodiscard]] double too_late() const noexcept {
    double sum = 0;
    if (machine_.burden[0] >= 1 || machine_.burden[1] >= 1) return sum;
    for (const auto& all : needs_)
      for (const need& n : all)
        if (n.how == way::copied) sum += copy_of(n).waits[0] + copy_of(n).waits[1];
    return sum;
  }
  /// ns of these waits. O(positions).
  [[nodiscard]] double waiting() const {
    return std::accumulate(waits_.begin(), waits_.end(), 0.0);
  }

  /// Places all copies anew, one behind the other on each lane: out in the order in which they can
  /// leave, in in the order in which they are needed. Unless that is dearer.
  void repack(bool always = false) {
    struct trip {
      std::uint32_t storage;
      std::size_t which;
      position out, in;
    };
    std::vector<trip> all;
    begin();
    const std::array<copy_lane, 2> lanes_before = lanes_;
    for (copy_lane& l : lanes_) l.clear(period_);
    for (std::uint32_t s = 0; s < needs_.size(); ++s)
      for (std::size_t k = 0; k < needs_[s].size(); ++k)
        if (needs_[s][k].how == way::copied) {
          forget_copy(s, k);
          all.push_back({s, k, unchanged_since(s, k), needs_[s][k].at});
        }
    if (always) time_lanes(), pieces_.clear(), copies_.clear();
    effort_ += 6.0 * static_cast<double>(needs_.size()) + 600.0 * static_cast<double>(all.size());
    std::ranges::sort(all, {}, [](const trip& x) { return std::tuple(x.out, x.in, x.storage); });
    for (const trip& x : all) place_out(x.storage, x.which);
    std::ranges::sort(all, {}, [](const trip& x) { return std::pair(-x.in, x.storage); });
    for (const trip& x : all) place_in(x.storage, x.which);
    const double change = settle();
    if (always || change < 0) return memory_.commit();
    lane_events_.clear();
    roll_back();
    lanes_ = lanes_before;
  }

 protected:
  plan_copies(const step_model& m, const planning_machine& on) : plan_parts(m, on) {
    stalls_.assign(index(m.length()), 0.0), waits_.assign(index(m.length()), 0.0);
    time_lanes();
  }

  [[nodiscard]] double copy_time(std::uint32_t s, std::size_t d) const noexcept {
    return machine_.latency[d] + 1e9 * (*model_)[s].size / machine_.rate[d];
  }
  // What a copy costs that is beside operators, in ns.
  [[nodiscard]] double hidden_cost(std::uint32_t s, std::size_t d) const noexcept {
    return (machine_.copy_price + machine_.burden[d]) * copy_time(s, d);
  }
  /// ns of a step as it is planned.
  [[nodiscard]] double period() const noexcept { return static_cast<double>(period_); }
  void place(std::uint32_t s, std::size_t k) { place_out(s, k), place_in(s, k); }
  void take_back(std::uint32_t s, std::size_t k) {
    const copy& c = copy_of(needs_[s][k]);
    for (std::size_t lane = 0; lane < 2; ++lane)
      for (std::uint32_t i = 0; i < c.pieces[lane]; ++i) {
        const copy_lane::piece& p = pieces_[c.first_piece[lane] + i];
        lanes_[lane].give(p);
        lane_events_.push_back({false, lane, p});
      }
    forget_copy(s, k);
  }
  // What its lanes have given away goes back in another way.
  void forget_copy(std::uint32_t s, std::size_t k) {
    const copy& c = copy_of(needs_[s][k]);
    copying_ -= c.cost;
    hold(before(s, k) + 1, c.out_until + 1, -(*model_)[s].size);
    hold(c.in_from, needs_[s][k].at, -(*model_)[s].size);
    if (copied_[s] == 1) on_host_ -= (*model_)[s].size;
  }
  // A copy on the host may have gone with an absence: whose copy is it now?
  void pay_anew(std::uint32_t s) {
    for (std::size_t k = 0; k < needs_[s].size(); ++k)
      if (needs_[s][k].how == way::copied && copy_of(needs_[s][k]).out != needs_copy_out(s, k))
        take_back(s, k), place(s, k);
  }

 private:
  void time_lanes() {
    start_.resize(index(length()) + 1);
    copy_lane::time t = 0;
    for (position p = 0; p < length(); ++p) {
      t += static_cast<copy_lane::time>(waits_[index(p)]);
      start_[index(p)] = t;
      double cost = model_->operation(p).cost + stalls_[index(p)];
      for (const replay& r : replays_[index(p)]) cost += cost_of(r.operation);
      t += static_cast<copy_lane::time>(cost);
    }
    start_.back() = period_ = std::max<copy_lane::time>(t, 1);
    for (copy_lane& l : lanes_) l.clear(period_);
  }
  [[nodiscard]] copy_lane::time begins(position p) const noexcept {
    const position n = length(), step = period_of(p, n);
    return start_[index(p - step * n)] + step * period_;
  }
  // The position that runs at that time.
  [[nodiscard]] position at(copy_lane::time t) const noexcept {
    const copy_lane::time step = period_of(t, period_);
    const auto behind = std::ranges::upper_bound(start_, t - step * period_);
    const auto p = static_cast<position>(behind - start_.begin()) - 1;
    return std::min(p, length() - 1) + static_cast<position>(step) * length();
  }
  // When a position of the step begins to wait for copies.
  [[nodiscard]] copy_lane::time waits_from(position p) const noexcept {
    return start_[index(p)] - static_cast<copy_lane::time>(waits_[index(p)]);
  }
  // The position that runs at that time, or waits.
  [[nodiscard]] position at_or_waits(copy_lane::time t) const noexcept {
    const position next = at(t) + 1, step = period_of(next, length());
    return waits_from(next - step * length()) + step * period_ <= t ? next : next - 1;
  }
  [[nodiscard]] bool needs_copy_out(std::uint32_t s, std::size_t k) const noexcept {
    const auto& v = needs_[s];
    const bool cyclic = (*model_)[s].cyclic;
    for (std::size_t i = 1; i <= v.size(); ++i) {
      if (i > k && !cyclic) return true;
      const std::size_t q = i > k ? k + v.size() - i : k - i;
      if (model_->written_at(s, v[q].at)) return true;
      if (q != k && v[q].how == way::copied) return false;
    }
    return !cyclic || model_->written(s);
  }
  // Behind which need its bytes are as they will be when it leaves for need `k`.
  [[nodiscard]] position unchanged_since(std::uint32_t s, std::size_t k) const noexcept {
    const auto& v = needs_[s];
    position since = before(s, k);
    for (std::size_t i = 1; i <= v.size(); ++i) {
      const bool wraps = i > k;
      if (wraps && !(*model_)[s].cyclic) break;
      const std::size_t q = wraps ? k + v.size() - i : k - i;
      since = v[q].at - (wraps ? length() : 0);
      if (v[q].how == way::recomputed || v[q].how == way::born || model_->written_at(s, v[q].at))
        break;
    }
    return since;
  }
  void place_out(std::uint32_t s, std::size_t k) {
    need& n = change(s, k);
    n.copy = static_cast<std::uint32_t>(copies_.size());
    const position from = before(s, k);
    copy& c = copies_.emplace_back(
        copy{.out_from = from, .out_until = from, .out = needs_copy_out(s, k)});
    if (c.out && is_exposed(n, 0)) {
      expose(c, 0, copy_time(s, 0));
    } else if (c.out) {
      c.out_from = unchanged_since(s, k);
      const auto end = place_copy(s, c, 0, [&](auto& lane, auto& left) {
        return lane.take(begins(c.out_from + 1), begins(n.at), left, taken_);
      });
      c.out_until = end.complete ? std::max(from, at(end.reached - 1)) : n.at - 1;
    }
    hold(from + 1, c.out_until + 1, (*model_)[s].size);
    if (copied_[s] == 1) on_host_ += (*model_)[s].size;
  }
  void place_in(std::uint32_t s, std::size_t k) {
    const need& n = needs_[s][k];
    copy& c = copies_[n.copy];
    c.in_from = n.at;
    if (!is_end(s, k) && is_exposed(n, 1)) {
      expose(c, 1, copy_time(s, 1));
    } else if (!is_end(s, k)) {
      const auto since = begins(c.out_until + 1);
      const auto begun = place_copy(s, c, 1, [&](auto& lane, auto& left) {
        return -lane.take(-std::max(since, begins(n.at)), -since, left, taken_);
      });
      c.in_from = std::min(n.at, at_or_waits(begun.reached));
    }
    hold(c.in_from, n.at, (*model_)[s].size);
  }
  // By choice, or as no kernel hides a copy there.
  [[nodiscard]] bool is_exposed(const need& n, std::size_t d) const noexcept {
    return n.exposed[d] || machine_.burden[d] >= 1;
  }
  // A copy that is waited for takes no lane's time from others.
  void expose(copy& c, std::size_t lane, double took) {
    charge(c, machine_.copy_price * took + (c.waits[lane] = took));
  }
  void charge(copy& c, double cost) noexcept { c.cost += cost, copying_ += cost; }
  // Takes a lane's time for a copy, and notes the cost: until or since when, and if it was enough.
  struct placed {
    copy_lane::time reached;
    bool complete;
  };
  template <class Take>
  placed place_copy(std::uint32_t s, copy& c, std::size_t lane, const Take& take) {
    auto left = static_cast<copy_lane::time>(copy_time(s, lane));
    taken_.clear();
    const copy_lane::time reached = take(lanes_[lane], left);
    charge(c, hidden_cost(s, lane) + static_cast<double>(left));
    // A copy out that finds no time leaves its bytes where they are: nobody waits for it.
    if (lane == 1) c.waits[lane] = static_cast<double>(left);
    c.first_piece[lane] = static_cast<std::uint32_t>(pieces_.size());
    c.pieces[lane] = static_cast<std::uint32_t>(taken_.size());
    for (const copy_lane::piece& p : taken_) {
      lane_events_.push_back({true, lane, p});
      pieces_.push_back(p);
    }
    return {reached, left == 0};
  }

  std::vector<copy_lane::time> start_;  // by position, and the end
  copy_lane::time period_ = 1;
  // By position, in ns: what it was found to take longer, and what its operator waits for copies.
  // The first is time for copies of later ones, so that a wait is not planned as it was found.
  std::vector<double> stalls_, waits_;
  std::vector<copy_lane::piece> taken_;
};

}  // namespace delta::detail

// delta: restores depth first, one operator's inputs at a time, where no plan fits as a whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "delta/detail/tensors/graph.hpp"
#include "delta/error.hpp"

namespace delta::detail {

/// Thrown where a restore recomputes far too much, and who leaves, or how, is another from now on:
/// nothing is locked, and it is to be tried anew.
struct restore_anew {};

/// Depth first with an explicit stack. An input that waits for its siblings is not locked but
/// released last (to the host where possible), so that a chain never locks more than one operator's
/// inputs. In a small budget two siblings can take each other away for ever, so replays are capped
/// (P-26). At a fifth of the cap, and at it, the reclaimer is asked for another way to go on;
/// without one, the restore keeps what it has. `Means` is a restore_context.
template <class Means>
class restore_on_demand {
 public:
  explicit restore_on_demand(Means& m) : means_(&m) {}

  /// Makes all of `targets` resident, locks none. Throws restore_anew, thrash, budget_exceeded.
  void run(std::span<const tensor_id> targets, const char* operation) {
    targets_ = targets;
    // The operator that asked is at the bottom: it has no record yet, so none stands for it.
    frames_.assign(1, operator_id::none);
    replays_ = 0;
    once_ = means_->table.tensors.live_records() + 1;
    want(operator_id::none);
    try {
      while (advance(operation)) {
      }
    } catch (...) {
      let_go();
      while (!frames_.empty()) {
        unwant(frames_.back());
        frames_.pop_back();
      }
      throw;
    }
    // The caller locks the targets next; until then nothing may free them.
    for (const tensor_id t : targets) means_->table.unwant(t);
    frames_.clear();
  }

 private:
  // Times the replays of a restore that makes everything once.
  static constexpr std::uint64_t enough = 2, most = 10;

  // One step for the operator on top of the stack: down to what makes a missing input, or, where
  // all inputs can be had, its replay and up. False: the asker's inputs are here.
  bool advance(const char* operation) {
    auto& table = means_->table;
    const graph& g = table.tensors;
    const operator_id o = frames_.back();
    const auto ins = inputs(o);
    for (const tensor_id t : ins) table.claim(t);
    // One that can only be recomputed goes deeper; those on the host wait for all others.
    const auto next = std::find_if(ins.begin(), ins.end(), [&](tensor_id t) {
      return means_->missing(t) && g[t].where != residency::host;
    });
    if (next != ins.end()) {
      frames_.push_back(g[*next].producer);
      want(frames_.back());
      return true;
    }
    // All inputs are on the device or on the host: lock those, fetch these, run, go up.
    for (const tensor_id t : ins)
      if (!means_->missing(t)) gather(t);
    for (const tensor_id t : ins)
      if (means_->missing(t)) means_->reload(t, operation), gather(t);
    if (o == operator_id::none) return let_go(), false;
    ++replays_;
    const bool over = replays_ > most * once_, asks = over || replays_ == enough * once_ + 1;
    if (asks && means_->reclaimer.go_on()) throw restore_anew{};
    if (over) throw thrash(means_->report(operation), replays_, most * once_);
    means_->kernels.replay(o);
    // Unlocked first: `unwant` lets go of what nobody needs any more, but not of what is locked.
    let_go();
    means_->drop_unneeded(o);
    unwant(o);
    frames_.pop_back();
    return true;
  }

  [[nodiscard]] std::span<const tensor_id> inputs(operator_id o) const {
    return o == operator_id::none ? targets_ : means_->table.tensors.inputs(o);
  }
  void want(operator_id o) {
    for (const tensor_id t : inputs(o)) means_->table.want(t);
  }
  void unwant(operator_id o) {
    // A copy of the list: caching may recycle the record.
    wanted_.assign(inputs(o).begin(), inputs(o).end());
    for (const tensor_id t : wanted_) means_->table.unwant(t);
    for (const tensor_id t : wanted_)
      if (std::find(targets_.begin(), targets_.end(), t) == targets_.end())
        means_->table.cache_unneeded(t);
  }

  // An operator's inputs are locked as they gather, each mention once, as everywhere.
  void gather(tensor_id t) {
    means_->table.lock(t);
    gathered_.push_back(t);
  }
  void let_go() {
    while (!gathered_.empty()) {
      const tensor_id t = gathered_.back();
      gathered_.pop_back();
      means_->table.unlock_restored(t);
    }
  }

  Means* means_;
  std::span<const tensor_id> targets_;
  std::vector<operator_id> frames_;           // who waits for whom, the asker first
  std::uint64_t replays_ = 0, once_ = 0;      // the latter: that a restore takes at most by a plan
  std::vector<tensor_id> wanted_, gathered_;  // of one step each, kept for their memory
};

}  // namespace delta::detail

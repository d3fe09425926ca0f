// delta: the residency table: where every tensor's bytes are, and the moves between those places.
// records.hpp says which moves are legal, reclaimer.hpp asks the policy which to make.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/tensors/candidates.hpp"
#include "delta/detail/tensors/closure_costs.hpp"
#include "delta/detail/tensors/copies.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/id_set.hpp"
#include "delta/machine_state.hpp"
#include "delta/observer.hpp"
#include "delta/storage/storage.hpp"

namespace delta::detail {

/// Tensors, records, and their bytes in a storage. Every change of residency passes through here,
/// so that lists, counts and storage agree; a storage that throws breaks that, and poisons the
/// manager. `Recorder`: `step_recorder`, or `no_recorder` where no policy learns.
template <class Storage, class Recorder>
class residency_table {
 public:
  using storage_type = Storage;

  explicit residency_table(Storage& s) : storage_(&s) {}

  graph tensors;  ///< the records
  machine_state
      now;  ///< what policies see; the storage's part as of the last `refresh_machine_state`
  counters counts;                       ///< what was done
  [[no_unique_address]] Recorder steps;  ///< is told what happens

  [[nodiscard]] Storage& storage() noexcept { return *storage_; }
  [[nodiscard]] const Storage& storage() const noexcept { return *storage_; }
  /// Of the budget, in however many pieces.
  [[nodiscard]] bytes free_bytes() const {
    return saturating_sub(storage_->capacity(), storage_->used());
  }
  /// Bytes that will be free when the copies out under way are done.
  [[nodiscard]] bytes leaving() const noexcept { return leaving_; }
  /// Bytes of all copies under way. O(copies).
  [[nodiscard]] bytes in_flight() const noexcept { return copies_.claimed(); }
  /// Bytes of constants: they are part of every operator's need.
  [[nodiscard]] bytes constants() const noexcept { return constants_; }
  /// Bytes of all tensors that are referenced or held: what would exist without replays.
  [[nodiscard]] bytes in_use() const noexcept { return in_use_; }
  /// Of the others, bytes of constants.
  [[nodiscard]] bytes dropped_constants() const noexcept { return dropped_constants_; }
  /// Bytes of all tensors that are kept, wherever they are: dropped ones with a record, too.
  [[nodiscard]] bytes existing() const noexcept { return existing_; }
  /// Of these, bytes of those with a block: what else is taken is an operator's, or the program's.
  [[nodiscard]] bytes here() const noexcept { return here_; }
  [[nodiscard]] bool copying() const noexcept { return copies_.any_claim(); }
  /// What a policy may choose from, and what is set aside.
  [[nodiscard]] const candidate_list& candidates() const noexcept { return candidates_; }
  [[nodiscard]] candidate_list& candidates() noexcept { return candidates_; }
  [[nodiscard]] std::span<const tensor_id> offloaded() const noexcept { return offloaded_; }

  /// Whose block that is, by its token's index; none: scratch. The tensor's own token decides.
  [[nodiscard]] tensor_id owner(std::uint32_t row) const noexcept {
    if (row >= owners_.size() || owners_[row] == tensor_id::none) return tensor_id::none;
    return tensors[owners_[row]].device.index() == row ? owners_[row] : tensor_id::none;
  }

  /// True if that block is a tensor's, a copy's under way included. O(copies).
  [[nodiscard]] bool has(const block& b) const noexcept {
    return owner(b.index()) != tensor_id::none || copies_.owner(b.index()) != tensor_id::none;
  }

  /// A new operator: its number is taken, and time has passed. Gives its beginning. O(1).
  nanoseconds advance() {
    ++now.now;
    ++now.clock;
    follow_clock();
    return now.clock;
  }
  void follow_clock() { now.clock = std::max(now.clock, storage_->now()); }
  /// What work on the compute lane costs, if known: what it took, less what copies beside it cost
  /// where the storage can tell. A rehearsal slows operators down by itself.
  [[nodiscard]] std::optional<nanoseconds> cost_of(stamp done) {
    if constexpr (has_burdens<Storage>)
      return storage_->alone(done);
    else
      return storage_->elapsed(done);
  }
  /// Refreshes what policies see: some calls of the storage. O(1).
  void refresh_machine_state() {
    const nanoseconds time = storage_->now();
    now.clock = std::max(now.clock, time);
    now.ahead = now.clock - time;
    now.budget = storage_->capacity();
    now.used = storage_->used() - candidates_.cached_bytes();
    now.leaving = leaving_;
    now.host_free = saturating_sub(storage_->host_capacity(), storage_->host_used());
    for (const direction d : {direction::out, direction::in}) {
      const auto i = static_cast<std::size_t>(d);
      now.rate[i] = storage_->rate(d);
      now.latency[i] = static_cast<double>(storage_->latency(d).count());
      now.backlog[i] = static_cast<double>(storage_->backlog(d).count());
      if constexpr (has_burdens<Storage>) now.burden[i] = storage_->burden(d);
    }
  }

  // --- bytes come -------------------------------------------------------------------------------

  /// A tensor of the program whose bytes are here, as new as the storage's clock says.
  tensor_id admit(bytes size, block&& b, bool persistent, pin pinned, const char* label) {
    candidates_.cover(tensors.tensor_slots() + 1);
    late_.cover(tensors.tensor_slots() + 1);
    const tensor_id t = tensors.add_tensor(size, storage_->rounded(size));
    tensor_record& r = tensors[t];
    existing_ += r.footprint;
    in_use_ += r.footprint;
    steps.created(t, r.footprint, persistent, pinned == pin::both);
    r.label = label;
    r.persistent = persistent;
    r.pinned = pinned;
    if (pinned == pin::both) constants_ += r.footprint;
    recomputed(t, std::move(b));
    return t;
  }
  /// The bytes of a replayed output. A host copy stays valid: a replay gives the same bits.
  void recomputed(tensor_id t, block&& b) {
    own(t, std::move(b));
    tell_owner(tensors[t].device, t);
    follow_clock();
    tensors.set_last_use(t, now.clock);
    become(t, residency::resident);
  }
  /// Starts a copy in to `b`. On demand the tensor is usable at once: the storage orders the
  /// operator behind the copy. Early, it is `reloading` until the copy is done or it is used.
  stamp reload(tensor_id t, block&& b, bool early) {
    tensor_record& r = tensors[t];
    tell_owner(b, t);
    transfer moving = queue_copy_in(r, std::move(b));
    const stamp done = moving.done();
    ++counts.reloads;
    counts.bytes_in += r.footprint.count;
    become(t, residency::reloading);
    if (early) {
      ++counts.prefetches;
      r.prefetched_unused = true;
      copies_.add(t, r.footprint, std::move(moving));
    } else {
      land(t, std::move(moving));
    }
    return done;
  }

  // --- bytes go ---------------------------------------------------------------------------------

  /// Drops the bytes; the producer can make them again (or nobody wants them). O(log holes).
  void evict(tensor_id t) {
    tensor_record& r = tensors[t];
    storage_->free(std::move(r.device));
    if (r.references > 0) ++counts.evictions;
    become(t, r.references > 0 ? residency::evicted : residency::dead);
  }
  /// The same of a tensor on the host alone: its copy there is given up. O(tensors on the host).
  void evict_from_host(tensor_id t) {
    storage_->free(std::move(tensors[t].host));
    ++counts.evictions;
    become(t, residency::evicted);
  }
  /// Drops the bytes of a clean tensor: its host copy is it now.
  void drop_clean(tensor_id t) {
    storage_->free(std::move(tensors[t].device));
    ++counts.clean_drops;
    become(t, residency::host);
  }
  /// Gives the block of a resident tensor to who writes other bytes into it. A host copy stays
  /// valid, also one being made; else the producer can make the tensor again, or it is dead.
  block hand_over(tensor_id t) {
    tensor_record& r = tensors[t];
    end_copy(t);
    tell_owner(r.device, tensor_id::none);
    const bool can_be_made = r.references > 0 && r.recomputable();
    become(t, r.host ? residency::host : can_be_made ? residency::evicted : residency::dead);
    // Last: what throws before leaves the block with somebody who frees it.
    return std::move(r.device);
  }
  /// Starts a copy out, after which the device bytes go: in `harvest`, as nobody is told when it
  /// ends. Nullopt: the host is full, and nothing has changed.
  std::optional<stamp> offload(tensor_id t) {
    tensor_record& r = tensors[t];
    auto moving = r.copying ? std::optional(resume(t)) : storage_->copy_out(r.device);
    if (!moving) return std::nullopt;
    const stamp done = moving->done();
    ++counts.offloads;
    if (!std::exchange(r.copying, false)) counts.bytes_out += r.footprint.count;
    leaving_ += r.footprint;
    copies_.add(t, r.footprint, std::move(*moving));
    become(t, residency::offloading);
    return done;
  }
  /// Starts a copy out without freeing anything: the tensor is clean from now on, and the storage
  /// orders whoever gets its block behind the copy. Nullopt: the host is full.
  std::optional<stamp> copy_ahead(tensor_id t) {
    tensor_record& r = tensors[t];
    auto moving = storage_->copy_out(r.device);
    if (!moving) return std::nullopt;
    const stamp done = moving->done();
    ++counts.copies_ahead;
    counts.bytes_out += r.footprint.count;
    take_back(t, std::move(*moving));
    tensors.reweigh(t);
    return done;
  }
  /// Gives up a host copy: stale after an update, or host room is needed.
  void forget_host_copy(tensor_id t) {
    if (!tensors[t].host) return;
    end_copy(t);
    storage_->free(std::move(tensors[t].host));
    tensors.reweigh(t);
  }

  // --- copies under way -------------------------------------------------------------------------

  /// Takes note of copies that are done: frees the blocks of those out. O(copies under way).
  void harvest() {
    copies_.take_done([&](stamp done) { return storage_->reached(done); },
                      [&](copies_under_way::copy&& c) { arrive(std::move(c)); });
  }
  /// All copies under way, those out first, each lane's as queued. Where steps are learned also
  /// those that nobody uses, as they take time. O(copies log copies).
  [[nodiscard]] std::span<const queued_copy> queued_copies() { return copies_.queued(); }
  /// The device's memory by address, if shown. Valid until the next call. O(blocks + copies).
  [[nodiscard]] std::span<const layout_extent> layout() {
    layout_.clear();
    if constexpr (has_holes<Storage>)
      if (may_fragment(*storage_))
        storage_->walk_blocks([&](std::uint32_t row, bytes stretch, bool used) {
          tensor_id t = used ? owner(row) : tensor_id::none;
          // Who is on its way has left its block to the copy.
          if (used && t == tensor_id::none) t = copies_.owner(row);
          layout_.push_back({t, stretch});
        });
    return layout_;
  }
  /// Waits for the oldest copy out under way, or with none for the oldest copy in. False: none.
  bool wait_for_copy() {
    auto oldest = copies_.take_oldest([&](stamp done) {
      ++counts.waits;
      storage_->wait(done);
    });
    if (oldest) arrive(std::move(*oldest));
    return oldest.has_value();
  }
  /// Waits for copies of tensors in use, which can't move before. False: none since the last call.
  bool wait_for_landings() {
    return copies_.wait_for_landings([&](stamp done) { storage_->wait(done); });
  }
  /// The tensor is needed: ends its copy's claim on it. One on its way out stays, and is clean: the
  /// copy goes on, and its slab is a valid copy once it is over. Never waits.
  void claim(tensor_id t) {
    if (tensors[t].where == residency::offloading) ++counts.revivals;
    end_flight(t);
  }

  // --- use --------------------------------------------------------------------------------------

  /// Forbids ways out. What has none left is part of every operator's need.
  void forbid(tensor_id t, pin ways) {
    tensor_record& r = tensors[t];
    if (r.pinned != pin::both && (r.pinned | ways) == pin::both) constants_ += r.footprint;
    r.pinned = r.pinned | ways;
    refile(t);
  }
  /// Files a tensor among the candidates anew, after its pins changed.
  void refile(tensor_id t) {
    candidates_.delist(tensors, t);
    candidates_.enlist(tensors, t);
  }
  /// While locked it can't leave; a drop waits (repairs P-22); a cached one is wanted again. O(1).
  void lock(tensor_id t) {
    tensor_record& r = tensors[t];
    if (r.locks++ == 0 && r.references == 0) {
      in_use_ += r.footprint;
      if (r.pinned == pin::both) dropped_constants_ -= r.footprint;
    }
    if (tensors[t].cached) refile(t);
  }
  void unlock(tensor_id t) {
    if (unlocked(t)) free_if_useless(t);
  }
  /// The same for what a restore has locked: what nobody references is set aside.
  void unlock_restored(tensor_id t) {
    if (unlocked(t)) cache(t);
  }
  /// A restore under way will read it: it is asked to leave last, and does not count as dropped,
  /// but it is not locked. Each call needs its own `unwant`. O(1).
  void want(tensor_id t) {
    ++tensors[t].restore_references;
    tensors.reweigh(t);
    if (tensors[t].cached) refile(t);
  }
  void unwant(tensor_id t) {
    --tensors[t].restore_references;
    tensors.reweigh(t);
  }
  /// Sets it aside unless the program, an operator or a restore still needs it.
  void cache_unneeded(tensor_id t) {
    if (tensors[t].in_use && tensors[t].restore_references == 0) cache(t);
  }
  /// A restore has computed it. If nobody references or locks it, and records read it, its bytes
  /// stay until they are in the way: what was made for one tensor is often needed for the next.
  void cache(tensor_id t) {
    tensor_record& r = tensors[t];
    if (r.references > 0 || r.locks > 0) return;
    const bool useful = r.producer != operator_id::none && r.edges != tensor_record::nowhere;
    if (!useful || r.where != residency::resident) return free_if_useless(t);
    forget_host_copy(t);
    r.prefetched_unused = false;
    if (!candidates_.cache(tensors, t)) free_if_useless(t);
  }
  /// An operator that began at `when` has used it: s starts anew; a prefetch was not in vain.
  void touch(tensor_id t, nanoseconds when) noexcept {
    tensors.set_last_use(t, when);
    tensors[t].prefetched_unused = false;
  }

  // --- the end ----------------------------------------------------------------------------------

  /// One reference less; at none the bytes go, unless something can only be recomputed from them,
  /// or `keep`. The last unlock frees a locked one.
  void drop(tensor_id t, bool keep = false) {
    if (--tensors[t].references > 0) return;
    if (tensors[t].locks == 0) fall_out_of_use(tensors[t]);
    steps.dropped(t, tensors[t]);
    tensors.reweigh(t);
    if (tensors[t].locks == 0) keep ? cache(t) : free_if_useless(t);
  }
  /// The same while something is under way that may hold on to it: now, where others reference it
  /// too, else in `drop_late`. O(1), no heap, never throws.
  void drop_later(tensor_id t) noexcept {
    if (tensors[t].references > 1)
      --tensors[t].references;
    else
      late_.insert(t);
  }
  /// True if it will be dropped then.
  [[nodiscard]] bool is_dropped_later(tensor_id t) const noexcept { return late_.contains(t); }
  [[nodiscard]] bool any_dropped_later() const noexcept { return !late_.empty(); }
  /// Drops them, the lowest id first; also those that are added meanwhile.
  void drop_late() {
    while (!late_.empty()) {
      const tensor_id t = *late_.begin();
      late_.erase(t);
      drop(t);
    }
  }
  /// What an operator was found to take. O(what depends on it), where that is news.
  void set_cost(operator_id o, nanoseconds cost) {
    if (std::exchange(tensors[o].cost, cost) != cost) closures_.operator_changed(tensors, o);
  }
  /// Severs the record that made `t` and every one that reads it, and on through dropped tensors,
  /// which nobody can compute any more. `t` itself keeps its bytes. O(records severed).
  void forget_records_around(tensor_id t) {
    for (const operator_id o : tensors.readers(t)) broken_.push_back(o);
    if (tensors[t].producer != operator_id::none) broken_.push_back(tensors[t].producer);
    while (!broken_.empty()) {
      const operator_id o = broken_.back();
      broken_.pop_back();
      if (!tensors[o].in_use) continue;
      for (const tensor_id out : tensors.outputs(o))
        if (tensors[out].references == 0 && tensors[out].locks == 0)
          for (const operator_id reader : tensors.readers(out)) broken_.push_back(reader);
      disconnect(o), sweep();
    }
  }
  /// Takes all records away and frees what nobody references.
  void close_step() {
    for (std::uint32_t i = 0; i < tensors.record_slots(); ++i)
      if (const auto o = static_cast<operator_id>(i); tensors[o].in_use) disconnect(o), sweep();
    tensors.sort_free_ids();
  }
  /// Gives every block and slab back to the storage, also to one that fails at every call.
  void release_all() {
    // Nobody asks what a closure costs any more: so nothing here needs the heap.
    tensors.cached_closure = closure::none;
    for (std::uint32_t i = 0; i < tensors.tensor_slots(); ++i)
      if (const auto t = static_cast<tensor_id>(i); tensors[t].in_use) free_all_of(t);
  }
  /// A tensor nobody references: frees its bytes unless it is a source that living records need;
  /// recycles its record, and the records of operators that nobody needs any more.
  void free_if_useless(tensor_id t) {
    orphans_.push_back(t);
    sweep();
  }

 private:
  void become(tensor_id t, residency to) {
    tensor_record& r = tensors[t];
    // The one state, and the table of repairs P-21.
    assert(legal(r.where, to));
    const residency from = std::exchange(r.where, to);
    if (on_device(from) != on_device(to))
      on_device(to) ? here_ += r.footprint : here_ -= r.footprint;
    if (from == residency::host) std::erase(offloaded_, t);
    if (place(from) != place(to)) closures_.tensor_changed(tensors, t, on_device(from));
    to == residency::resident ? candidates_.enlist(tensors, t) : candidates_.delist(tensors, t);
    if (to == residency::host) offloaded_.push_back(t);
  }
  // Neither referenced nor locked from now on.
  void fall_out_of_use(const tensor_record& r) noexcept {
    in_use_ -= r.footprint;
    if (r.pinned == pin::both) dropped_constants_ += r.footprint;
  }
  // One lock less: a candidate again, or true, if nobody references it.
  bool unlocked(tensor_id t) {
    if (--tensors[t].locks > 0) return false;
    if (tensors[t].references == 0) return fall_out_of_use(tensors[t]), true;
    candidates_.enlist(tensors, t);
    return false;
  }
  // The block is this tensor's from now on, in both tables.
  void own(tensor_id t, block&& b) {
    if (b.index() >= owners_.size()) owners_.resize(b.index() + 1u, tensor_id::none);
    owners_[b.index()] = t;
    tensors[t].device = std::move(b);
  }
  void tell_owner(const block& b, tensor_id t) {
    if constexpr (has_on_owner_changed<Storage>) storage_->on_owner_changed(b, t);
  }
  // If it throws the slab is still the tensor's, and the block goes back.
  transfer queue_copy_in(tensor_record& r, block&& b) {
    try {
      return storage_->copy_in(std::move(r.host), std::move(b));
    } catch (...) {
      if (b) storage_->free(std::move(b));
      throw;
    }
  }
  /// Ends a copy's claim on the tensor. (It has none left if the storage failed while it landed.)
  /// Never throws where the tensor is not `kept`: what is given back asks the storage nothing.
  void end_flight(tensor_id t, bool kept = true) {
    const residency where = tensors[t].where;
    if (where != residency::offloading && where != residency::reloading) return;
    auto moving = copies_.take_claim(t);
    if (!moving) return;
    if (where == residency::offloading) leaving_ -= tensors[t].footprint;
    land(t, std::move(*moving), kept);
  }
  // The storage is given the transfer back early.
  void land(tensor_id t, transfer&& moving, bool kept = true) {
    take_back(t, std::move(moving), kept);
    become(t, residency::resident);
  }
  void take_back(tensor_id t, transfer&& moving, bool kept = true) {
    const stamp done = moving.done();
    copies_.note_landing(done);
    auto [b, s] = storage_->land(std::move(moving));
    own(t, std::move(b));
    tensors[t].host = std::move(s);
    // Last, as it may throw: the bytes are somebody's by now.
    if (kept && done.where == lane::copy_out && !storage_->reached(done)) {
      copies_.add(t, tensors[t].footprint, done);
      tensors[t].copying = true;
    } else {
      detach(done, tensors[t].footprint);
    }
  }
  // The host end of a resident tensor's copy is nobody's.
  void end_copy(tensor_id t) {
    if (std::exchange(tensors[t].copying, false))
      detach(copies_.take_copy(t), tensors[t].footprint);
  }
  // Nobody waits for that copy. Destructors come here: without memory it isn't listed as queued.
  void detach(stamp done, bytes size) noexcept {
    if constexpr (Recorder::enabled) try {
        copies_.add(tensor_id::none, size, done);
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
      }
  }
  // A copy ahead becomes one after which the block goes.
  transfer resume(tensor_id t) {
    return {std::move(tensors[t].device), std::move(tensors[t].host), copies_.take_copy(t)};
  }
  // A copy is over: in, the tensor is here; out, its block goes; ahead, its host copy is valid.
  void arrive(copies_under_way::copy&& c) {
    if (c.tensor == tensor_id::none) return;
    tensor_record& r = tensors[c.tensor];
    if (!c.moving) {
      r.copying = false;
      return tensors.reweigh(c.tensor);
    }
    if (r.where == residency::reloading) return land(c.tensor, std::move(*c.moving));
    auto [b, s] = storage_->land(std::move(*c.moving));
    leaving_ -= r.footprint;
    storage_->free(std::move(b));
    r.host = std::move(s);
    become(c.tensor, residency::host);
  }
  /// Frees whatever an unreferenced tensor still has. Never throws, as destructors come here.
  void free_all_of(tensor_id t) {
    end_flight(t, false);
    candidates_.let_go(t);
    tensor_record& r = tensors[t];
    if (r.device) storage_->free(std::move(r.device));
    // Once: it may be computed again, and buried again.
    if (std::exchange(r.pinned, pin::none) == pin::both) {
      constants_ -= r.footprint;
      if (r.references == 0 && r.locks == 0) dropped_constants_ -= r.footprint;
    }
    r.prefetched_unused = false;
    forget_host_copy(t);
    if (r.where != residency::dead) become(t, residency::dead);
  }
  // A list, not recursion: what goes may make its inputs useless, through any number of records.
  void sweep() {
    while (!orphans_.empty()) {
      const tensor_id t = orphans_.back();
      orphans_.pop_back();
      tensor_record& r = tensors[t];
      if (!r.in_use || r.references > 0 || r.locks > 0) continue;
      const bool source = r.producer == operator_id::none && r.edges != tensor_record::nowhere;
      if (source ||
          r.restore_references > 0) {  // retained: it may still be released under pressure
        candidates_.enlist(tensors, t);
        if (source) candidates_.retain(t);
        continue;
      }
      free_all_of(t);
      if (r.producer == operator_id::none)
        existing_ -= r.footprint, tensors.recycle(t);
      else if (tensors.useless(r.producer))
        disconnect(r.producer);
      else
        closures_.output_forgotten(tensors, r.producer);
    }
  }
  void disconnect(operator_id o) {
    closures_.operator_changed(tensors, o);
    tensors.disconnect(o, orphans_);
  }
  // What a closure makes of it: on the device, on the host, or missing.
  static int place(residency r) noexcept { return on_device(r) ? 0 : r == residency::host ? 1 : 2; }

  Storage* storage_;
  candidate_list candidates_;
  id_set late_;  // to be dropped
  closure_watch closures_;
  std::vector<tensor_id> offloaded_, orphans_;
  std::vector<tensor_id> owners_;  // by row of the storage's table; checked when asked
  std::vector<operator_id> broken_;
  copies_under_way copies_;
  std::vector<layout_extent> layout_;
  bytes leaving_{}, constants_{}, existing_{}, in_use_{}, dropped_constants_{}, here_{};
};

}  // namespace delta::detail

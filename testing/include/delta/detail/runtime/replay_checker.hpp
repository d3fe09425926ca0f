// delta: replays an operator right after its first run and compares the bytes (replay_check
// says for whom, and what it finds). An input that an output has replaced is there as its copy
// only.
//
//   before   the inputs are copied to the host                            [ the operator runs ]
//   after    an input that has changed was updated in secret
//            scratch: inputs elsewhere, outputs' complement; the inputs' own blocks: complement
//            [ the kernel runs again ]    outputs compared; the inputs' own blocks get their bytes
//            back
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/runtime/kernel_launch.hpp"
#include "delta/error.hpp"
#include "delta/kernel.hpp"
#include "delta/storage/storage.hpp"
#include "delta/testing/replay_differs.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Checks one operator at a time. Takes host memory beside the budget: a copy of the operator's
/// inputs, and two pieces of 256 KiB.
template <class Reclaimer>
class replay_checker {
 public:
  replay_checker(typename Reclaimer::table_type& table, Reclaimer& r, launcher<Reclaimer>& kernels)
      : table_(&table), reclaimer_(&r), kernels_(&kernels) {}

  /// True if the observer wants it now.
  [[nodiscard]] bool enabled() { return reclaimer_->events().observer().checks_replays(); }

  /// The inputs are together, and the operator has not begun. O(bytes of the inputs).
  void before(const workload& w, trait traits) {
    inputs_.clear();
    state_ = state::off;
    if (!enabled() || !may_be_replayed(w.inputs, w.updates, traits)) return;
    state_ = state::on;
    // What shows no bytes, or too many for this machine's heap, is counted as not checked.
    if (w.inputs.empty()) return;
    if (!read(table_->tensors[w.inputs.front()].device, 0, {})) return not_this_one();
    wait_for_users(w);
    try {
      for (const tensor_id t : w.inputs) {
        if (find(t) != nullptr) continue;
        const tensor_record& r = table_->tensors[t];
        inputs_.push_back({t, std::vector<std::byte>(static_cast<std::size_t>(r.size.count)), {}});
        read(r.device, 0, inputs_.back().bytes);
      }
    } catch (const std::bad_alloc&) {
      not_this_one();
    }
  }
  /// It has run, and nothing is admitted yet. Throws replay_differs, and what the kernel throws;
  /// then the inputs are as they were, and it may be checked again. O(bytes that it touches), and a
  /// run of it.
  template <class Kernel>
  void after(const workload& w, Kernel& body, std::span<const bytes> sizes, bytes workspace,
             const char* name, nanoseconds cost) {
    if (state_ == state::off) return;
    if (state_ == state::on) {
      wait_for_users(w);
      undoing_inputs(true, [&] {
        for (std::size_t i = 0; i < w.inputs.size(); ++i)
          if (const input& in = *find(w.inputs[i]); has_block(in))
            compare_input(in, {name, w.sequence, replay_difference::input, i, {}});
      });
    }
    if (!sizes.empty() && !run_and_compare(w, body, sizes, workspace, name, cost))
      ++table_->counts.replays_unchecked;
    state_ = state::off;
  }

 private:
  static constexpr std::size_t chunk = 256 << 10;
  enum class state : std::uint8_t { off, on, counted_only };

  // False where it can't be checked.
  template <class Kernel>
  bool run_and_compare(const workload& w, Kernel& body, std::span<const bytes> sizes,
                       bytes workspace, const char* name, nanoseconds cost) {
    if (state_ == state::counted_only || !read(w.outputs.front(), 0, {})) return false;
    scratch here(*this);
    if (!here.obtain(sizes, workspace, name)) return false;
    // Making room may have moved any of them, and what left may still be read where they are now.
    wait_for_users(w, &here);
    undoing_inputs(here.moved, [&] {
      for (std::size_t i = 0; i < sizes.size(); ++i)
        fill_unlike(here.outputs[i], w.outputs[i], sizes[i]);
      fill(here.space, workspace);
      if (here.moved) move_inputs();
      storage().wait(run_again(w, body, here, cost));
      for (std::size_t i = 0; i < sizes.size(); ++i)
        compare_output(w.outputs[i], here.outputs[i], sizes[i],
                       {name, w.sequence, replay_difference::output, i, {}});
    });
    restore_inputs(here.moved);
    ++table_->counts.replays_checked;
    return true;
  }
  void not_this_one() noexcept {
    inputs_.clear();
    state_ = state::counted_only;
  }
  // Runs `f`; if it throws, the inputs get the bytes back that they had.
  template <class F>
  void undoing_inputs(bool changed, const F& f) {
    try {
      f();
    } catch (...) {
      kernels_->clean_up([&] { restore_inputs(changed); });
      throw;
    }
  }

  // An input, once, however often the operator names it.
  struct input {
    tensor_id tensor;
    std::vector<std::byte> bytes;  // before the operator ran
    block elsewhere;               // the same bytes, while it runs again
  };

  // The blocks of the second run.
  struct scratch {
    explicit scratch(replay_checker& c) noexcept : owner(&c) {}
    scratch(const scratch&) = delete;
    scratch& operator=(const scratch&) = delete;
    ~scratch() { give_back(); }
    // With the inputs' copies, or else without; false: there is no room for either.
    bool obtain(std::span<const bytes> sizes, bytes workspace, const char* name) {
      for (const bool with_inputs : {true, false}) {
        // What an output has replaced is nowhere else.
        if (!with_inputs && owner->any_replaced()) return false;
        moved = with_inputs;
        if (obtain(sizes, workspace, with_inputs, name)) return true;
      }
      return false;
    }
    bool obtain(std::span<const bytes> sizes, bytes workspace, bool with_inputs, const char* name) {
      bytes need;
      const auto count = [&](bytes n) { need += owner->storage().rounded(n); };
      count(workspace);
      for (const bytes n : sizes) count(n);
      if (with_inputs)
        for (const input& i : owner->inputs_) count(bytes{i.bytes.size()});
      try {
        // Only where there is none, and never by what can't be had back: what is checked should
        // change little else.
        if (need > owner->reclaimer_->reachable()) return false;
        if (need > saturating_sub(owner->storage().capacity(), owner->storage().used()))
          owner->reclaimer_->make(need, name);
        const auto take = [&](bytes n) {
          return owner->reclaimer_->obtain(n, lifetime::transient);
        };
        for (const bytes n : sizes) outputs.push_back(take(n));
        if (workspace.count > 0) space = take(workspace);
        if (with_inputs)
          for (input& i : owner->inputs_) i.elsewhere = take(bytes{i.bytes.size()});
        return true;
      } catch (const budget_exceeded&) {
        give_back();
        return false;
      }
    }
    void give_back() {
      for (block& b : outputs)
        if (b) owner->storage().free(std::move(b));
      outputs.clear();
      if (space) owner->storage().free(std::move(space));
      for (input& i : owner->inputs_)
        if (i.elsewhere) owner->storage().free(std::move(i.elsewhere));
    }
    replay_checker* owner;
    std::vector<block> outputs;
    block space;
    bool moved = false;  // the inputs, too
  };

  auto& storage() { return table_->storage(); }
  [[nodiscard]] const block& device_of(const input& i) const {
    return table_->tensors[i.tensor].device;
  }
  // Else an output has taken it over, and holds other bytes.
  [[nodiscard]] bool has_block(const input& i) const { return bool(device_of(i)); }
  [[nodiscard]] bool any_replaced() const {
    return std::any_of(inputs_.begin(), inputs_.end(),
                       [&](const input& i) { return !has_block(i); });
  }
  [[nodiscard]] input* find(tensor_id t) {
    const auto i =
        std::find_if(inputs_.begin(), inputs_.end(), [&](const input& x) { return x.tensor == t; });
    return i == inputs_.end() ? nullptr : &*i;
  }
  // False where the storage shows no bytes.
  bool read(const block& b, std::size_t from, std::span<std::byte> to) {
    if constexpr (has_bytes<typename Reclaimer::storage_type>)
      return storage().read_bytes(b, from, to);
    else
      return false;
  }
  void write(const block& b, std::size_t to, std::span<const std::byte> from) {
    if constexpr (has_bytes<typename Reclaimer::storage_type>) storage().write_bytes(b, to, from);
  }

  // Copies and kernels that use what the operator touches are over then: the host may touch it. As
  // in operator_run::acquire, an empty bracket says when.
  void wait_for_users(const workload& w, const scratch* here = nullptr) {
    places_.clear();
    for (const tensor_id t : w.inputs)
      if (const block& b = table_->tensors[t].device) places_.push_back(&b);
    for (const block& b : w.outputs) places_.push_back(&b);
    if (here != nullptr) {
      for (const block& b : here->outputs) places_.push_back(&b);
      if (here->space) places_.push_back(&here->space);
      for (const input& i : inputs_)
        if (i.elsewhere) places_.push_back(&i.elsewhere);
    }
    storage().begin_operator({}, places_);
    storage().wait(storage().end_operator({}));
  }
  // Calls `f(offset, n)` for pieces of `size` bytes, in order.
  template <class F>
  static void in_pieces(std::size_t size, const F& f) {
    for (std::size_t at = 0; at < size; at += chunk) f(at, std::min(chunk, size - at));
  }
  void compare_input(const input& i, replay_differs::place where) {
    in_pieces(i.bytes.size(), [&](std::size_t at, std::size_t n) {
      first_.resize(n);
      read(device_of(i), at, first_);
      compare(std::span(i.bytes).subspan(at, n), first_, at, where);
    });
  }
  void compare_output(const block& made, const block& again, bytes size,
                      const replay_differs::place& where) {
    in_pieces(static_cast<std::size_t>(size.count), [&](std::size_t at, std::size_t n) {
      first_.resize(n), second_.resize(n);
      read(made, at, first_);
      read(again, at, second_);
      compare(first_, second_, at, where);
    });
  }
  static void compare(std::span<const std::byte> was, std::span<const std::byte> is, std::size_t at,
                      replay_differs::place where) {
    // Nearly always: a quarter of what a check takes if it is done byte by byte.
    if (std::memcmp(was.data(), is.data(), was.size()) == 0) return;
    const auto [a, b] = std::mismatch(was.begin(), was.end(), is.begin());
    if (where.what == replay_difference::output && *b == ~*a)
      where.what = replay_difference::unwritten;  // it holds what fill_unlike put there
    where.offset = bytes{at + static_cast<std::size_t>(a - was.begin())};
    throw replay_differs(where, *a, *b);
  }
  // A byte that the kernel does not write differs for certain.
  void fill_unlike(const block& to, const block& like, bytes size) {
    in_pieces(static_cast<std::size_t>(size.count), [&](std::size_t at, std::size_t n) {
      first_.resize(n);
      read(like, at, first_);
      for (std::byte& b : first_) b = ~b;
      write(to, at, first_);
    });
  }
  // What is read of a workspace before it was written is hardly this.
  void fill(const block& space, bytes size) {
    in_pieces(static_cast<std::size_t>(size.count), [&](std::size_t at, std::size_t n) {
      first_.assign(n, std::byte{0xa5});
      write(space, at, first_);
    });
  }
  // The bytes go to the blocks of the second run; where they were, nothing of them is left.
  void move_inputs() {
    for (const input& i : inputs_) {
      write(i.elsewhere, 0, i.bytes);
      if (!has_block(i)) continue;
      in_pieces(i.bytes.size(), [&](std::size_t at, std::size_t n) {
        first_.assign(i.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                      i.bytes.begin() + static_cast<std::ptrdiff_t>(at + n));
        for (std::byte& b : first_) b ^= std::byte{0x5a};  // not the complement: see compare
        write(device_of(i), at, first_);
      });
    }
  }
  void restore_inputs(bool moved) {
    for (const input& i : inputs_)
      if (moved && has_block(i)) write(device_of(i), 0, i.bytes);
  }
  // As a replay runs it: updates are null.
  template <class Kernel>
  stamp run_again(const workload& w, Kernel& body, const scratch& here, nanoseconds cost) {
    reads_.clear(), places_.clear(), addresses_.clear();
    for (const tensor_id t : w.inputs) {
      const input& i = *find(t);
      reads_.push_back(here.moved ? &i.elsewhere : &device_of(i));
      addresses_.push_back(kernels_->address(*reads_.back()));
    }
    for (const block& b : here.outputs) {
      places_.push_back(&b);
      addresses_.push_back(kernels_->address(b));
    }
    addresses_.resize(addresses_.size() + w.updates.size());
    if (here.space) {
      places_.push_back(&here.space);
      addresses_.push_back(kernels_->address(here.space));
    }
    return kernels_->launch_on(body, reads_, places_, addresses_,
                               {w.inputs.size(), here.outputs.size(), w.updates.size()}, w.sequence,
                               cost);
  }

  typename Reclaimer::table_type* table_;
  Reclaimer* reclaimer_;
  launcher<Reclaimer>* kernels_;
  state state_ = state::off;
  std::vector<input> inputs_;
  std::vector<const block*> reads_, places_;
  std::vector<std::byte*> addresses_;
  std::vector<std::byte> first_, second_;
};

}  // namespace delta::detail

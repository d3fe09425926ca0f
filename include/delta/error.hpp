// delta: what can go wrong, as types that carry data. None of them needs the heap to be thrown.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>

#include "delta/units.hpp"

namespace delta {

/// Base of all errors that the manager throws by itself. `what()` is one line, kept in the object:
/// nothing of it is on the heap, which may be what has run out.
///
/// After any of them the manager can be used on (unless it is `poisoned`). What a kernel, a storage
/// or a device throws passes through as it is, and is not an `error`.
class error : public std::exception {
 public:
  /// One line of text; lives as long as the error does.
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 protected:
  // Appends to the line, as printf does; what is too long is cut off.
  template <class... Values>
  void print(const char* format, Values... values) noexcept {
    const int n = std::snprintf(text_.data() + used_, text_.size() - used_, format, values...);
    if (n > 0) used_ = std::min(used_ + static_cast<std::size_t>(n), text_.size() - 1);
  }
  void print(const char* text) noexcept { print("%s", text); }

 private:
  // Enough for six holders with labels of usual length.
  std::array<char, 1280> text_{};
  std::size_t used_ = 0;
};

/// An id that names no living tensor: never given out, or dropped already. Thrown before anything
/// is done. An id that was given out again is not seen: it names a living tensor.
class unknown_tensor : public error {
 public:
  explicit unknown_tensor(tensor_id t) noexcept : tensor(t) {
    print("tensor %u is not known: it was dropped, or never created", index(t));
  }
  /// The id that was given.
  tensor_id tensor;
};

/// A call that the interface forbids; `what()` says which. Thrown before anything is done: from
/// within a kernel or a policy, between begin and end, or with lists that do not match.
class misuse : public error {
 public:
  /// `why` is copied.
  explicit misuse(const char* why) noexcept { print(why); }
};

/// An earlier failure of a storage, a device or a policy left the records and the memory in
/// disagreement. All that is left to do is to destroy the manager.
class poisoned : public error {
 public:
  poisoned() noexcept {
    print("the manager is unusable: its storage failed in the middle of an earlier operation");
  }
};

/// Why a tensor could not leave. The first that applies, in the order of `detail::why_it_stays`.
enum class obstacle : std::uint8_t {
  pinned,         ///< a constant, or pinned by the user
  locked,         ///< in use: an input or output of the operator at hand, or held by a view
  no_way_out,     ///< can't be recomputed, and the policy doesn't offload
  host_full,      ///< can't be recomputed, and the host arena has no room
  decider_keeps,  ///< the decider said keep
  recompute_cap   ///< recomputed too often in this step, and can't be offloaded
};

/// The obstacle as words, as the line of an error says it.
constexpr const char* name(obstacle o) noexcept {
  constexpr std::array<const char*, 6> names{"pinned",
                                             "in use",
                                             "can't be recomputed and the policy doesn't offload",
                                             "can't be recomputed and the host is full",
                                             "kept by the decider",
                                             "recomputed too often in this step"};
  return names[static_cast<std::size_t>(o)];
}

/// A tensor that stayed when room was needed.
struct holder {
  tensor_id tensor = tensor_id::none;
  bytes size{};
  obstacle why = obstacle::pinned;
  const char* label = "";  ///< the operator that made it, or what the program called it
};

/// Who holds the memory: the report that a failed reservation carries (all numbers in bytes). Taken
/// when it failed; O(tensors), no heap.
struct memory_report {
  bytes requested{};      ///< the reservation at hand: outputs, workspace, what must come back
  bytes capacity{};       ///< the budget
  bytes used{};           ///< taken when it failed
  bytes largest_hole{};   ///< the most that was free in one piece
  bytes immovable{};      ///< of what is used, what could not leave
  bytes host_capacity{};  ///< the host budget
  bytes host_used{};      ///< taken of it
  /// The smallest budget with which the operators seen so far would have gone on: the largest need
  /// of any of them, its inputs and the constants included. Later ones may need more.
  bytes smallest_budget{};
  const char* operation = "";       ///< the operator that asked
  std::array<holder, 6> biggest{};  ///< the biggest that stayed, largest first
  std::size_t holders = 0;          ///< how many of `biggest` are set
};

/// The budget can't hold what one operator needs, even with everything else released (repairs P-4:
/// instead of the paper's loop without an exit). Nothing was created; what was released meanwhile
/// stays released, and comes back when it is used. A program may drop something and try again:
///
///   try {
///     y = manager.run(op, kernel);
///   } catch (const delta::budget_exceeded& e) {
///     std::cerr << e.what() << '\n';  // or look at e.report
///   }
class budget_exceeded : public error {
 public:
  /// Two lines: bytes enough, but scattered between what is held; or bytes that can't be freed.
  explicit budget_exceeded(const memory_report& r) noexcept : report(r) {
    const bytes free = saturating_sub(r.capacity, r.used);
    if (r.requested <= free)
      print(
          "operator '%s' needs %llu bytes in one piece; %llu of the budget's %llu are free, but "
          "in pieces of at most %llu, as what lies between them is held where it is",
          r.operation, count(r.requested), count(free), count(r.capacity), count(r.largest_hole));
    else
      print("operator '%s' needs %llu more bytes, but %llu of the budget's %llu can't leave",
            r.operation, count(r.requested), count(r.immovable), count(r.capacity));
    print_holders();
  }

  /// All that is known, as numbers.
  memory_report report;

 protected:
  // For `thrash`, which says something else.
  struct silent {};
  budget_exceeded(const memory_report& r, silent) noexcept : report(r) {}
  static unsigned long long count(bytes b) noexcept { return b.count; }
  void print_holders() noexcept {
    for (std::size_t i = 0; i < report.holders; ++i) {
      const auto& h = report.biggest[i];
      print("%s tensor %u (%s, %llu bytes, %s)", i == 0 ? "; biggest:" : ",", index(h.tensor),
            h.label, count(h.size), name(h.why));
    }
    if (report.host_capacity.count > 0)
      print("; host %llu of %llu bytes", count(report.host_used), count(report.host_capacity));
    print("; smallest budget that would work: %llu bytes", count(report.smallest_budget));
  }
};

/// Recomputation got out of hand: the cap on replays was reached without the operator's inputs ever
/// being together (repairs P-26). A kind of budget_exceeded, as a larger budget helps. Only a
/// restore on demand throws it.
class thrash : public budget_exceeded {
 public:
  /// `done` replays were made where `most` are allowed.
  thrash(const memory_report& r, std::uint64_t done, std::uint64_t most) noexcept
      : budget_exceeded(r, silent{}), replays(done), cap(most) {
    print(
        "recomputation thrashes: %llu replays did not bring the inputs of operator '%s' together "
        "in a budget of %llu bytes, of which %llu can't leave",
        static_cast<unsigned long long>(replays), r.operation, count(r.capacity),
        count(r.immovable));
    print_holders();
  }
  std::uint64_t replays;  ///< done for the operator at hand
  std::uint64_t cap;      ///< of replays, that ended it
};

/// What a checked replay found (replay_check.hpp).
enum class replay_difference : std::uint8_t {
  output,     ///< an output holds other bytes when it is made again
  unwritten,  ///< a byte of an output was not written when it was made again
  input       ///< the operator has changed an input that is not among its updates
};

/// An operator that may be replayed does not keep to what that takes. Thrown by the operator, which
/// has no outputs then, as if its kernel had thrown.
class replay_differs : public error {
 public:
  /// Which operator (`sequence`: call::sequence()), which of its outputs or inputs, and the first
  /// byte there.
  struct place {
    const char* operation = "";
    std::uint64_t sequence = 0;
    replay_difference what = replay_difference::output;
    std::size_t index = 0;
    bytes offset{};
  };
  /// `was`: the byte of the first run, of an input the one before it; `now`: the other.
  replay_differs(const place& p, std::byte was, std::byte now) noexcept
      : where(p), expected(was), found(now) {
    const auto at = static_cast<unsigned long long>(p.offset.count);
    print("operator '%s' (number %llu) ", p.operation, static_cast<unsigned long long>(p.sequence));
    if (p.what == replay_difference::input)
      print("changes its input %zu in secret, from byte %llu on; name it in `updates`", p.index,
            at);
    else if (p.what == replay_difference::unwritten)
      print(
          "does not write its output %zu, from byte %llu on, when it runs again; it may leave "
          "bytes out, or write to an address that it has kept",
          p.index, at);
    else
      print(
          "does not give the same bits when it runs again: output %zu, from byte %llu on (0x%02x, "
          "then 0x%02x); it may read memory before writing it, draw numbers that do not come from "
          "call::sequence(), or use an address that it has kept",
          p.index, at, std::to_integer<unsigned>(was), std::to_integer<unsigned>(now));
    if (p.what != replay_difference::input)
      print("; until it is repaired, give it trait::never_replay");
  }
  place where;
  std::byte expected;
  std::byte found;
};

}  // namespace delta

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

/// Base of all errors that the manager throws by itself. `what()` is one line, kept in the object,
/// as the heap may have run out. The manager can be used on afterwards (unless it is `poisoned`).
/// What a kernel, a storage or a device throws passes through as it is, and is not an `error`.
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
  // In MiB where there is one tenth at least, else in bytes; `exactly`: in both.
  void print_size(bytes n, bool exactly = false) noexcept {
    const auto count = static_cast<unsigned long long>(n.count);
    const double mib = static_cast<double>(n.count) / (1 << 20);
    if (mib < 0.1) return print("%llu bytes", count);
    print("%.1f MiB", mib);
    if (exactly) print(" (%llu bytes)", count);
  }
  // Appends texts, and sizes between them; `exact` ones in both.
  struct exact {
    bytes size;
  };
  template <class... Parts>
  void say(const Parts&... parts) noexcept {
    (put(parts), ...);
  }

 private:
  void put(const char* text) noexcept { print(text); }
  void put(bytes n) noexcept { print_size(n); }
  void put(exact n) noexcept { print_size(n.size, true); }

  std::array<char, 1024> text_{};
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
  no_host,        ///< can't be recomputed, and there is no host memory
  host_full,      ///< can't be recomputed, and the host arena has no room
  decider_keeps,  ///< the decider said keep
  recompute_cap,  ///< recomputed too often in this step, and can't be offloaded
  in_place        ///< it can't move: a view holds it, or `arguments` has shown its address
};

/// The obstacle as words, as the line of an error says it.
constexpr const char* name(obstacle o) noexcept {
  constexpr std::array<const char*, 8> names{
      "pinned",
      "in use",
      "can't be recomputed and the policy doesn't offload",
      "can't be recomputed and there is no host memory to copy it to",
      "can't be recomputed and the host has no room for it",
      "kept by the decider",
      "recomputed too often in this step",
      "its address was shown"};
  return names[static_cast<std::size_t>(o)];
}

/// A tensor that stayed when room was needed.
struct holder {
  tensor_id tensor = tensor_id::none;
  bytes size{};
  obstacle why = obstacle::pinned;
  const char* label = "";  ///< the operator that made it, or what the program called it
};

/// What there was no room for.
enum class shortage : std::uint8_t {
  room,       ///< `requested` more bytes, in however many pieces
  one_piece,  ///< fragmentation: as many bytes are free, but scattered between what can't move
  restoring   ///< what has to come back first: as a plan that recomputes everything once would, it
              ///< adds `requested` bytes, and no other order was found that fits
};

/// What the budget rests on that an error names.
enum class budget_basis : std::uint8_t {
  nothing,       ///< none is known
  no_moving,     ///< none is known, as blocks stay where they are in this storage: where the holes
                 ///< come to lie is another matter under every budget
  largest_need,  ///< the largest operator fits, and all else can always go to the host
  everything,    ///< nothing would have to leave; less may do, too
  trial          ///< it was tried out, by who made the report
};

/// Who held the memory when a reservation failed. Numbers in bytes. O(tensors + blocks), no heap.
struct memory_report {
  shortage what = shortage::room;  ///< what there was too little of
  bytes requested{};      ///< the reservation at hand: outputs, workspace, what must come back
  bytes capacity{};       ///< the budget
  bytes used{};           ///< taken when it failed
  bytes largest_hole{};   ///< the most that was free in one piece
  bytes immovable{};      ///< of what is used, what could not leave
  bytes foreign{};        ///< of that, what no tensor has: blocks that the program itself has taken
  bytes host_capacity{};  ///< the host budget
  bytes host_used{};      ///< taken of it
  /// The smallest budget with which the program, run anew over such a storage, is known to come
  /// past what failed, whatever the policy decides then; 0: none is known, and `basis` says why.
  /// Later operators may need more, and so may a program that has caught such an error before.
  bytes smallest_budget{};
  budget_basis basis = budget_basis::nothing;
  /// Less than that, and enough in the same sense, where the host has `enough_host` bytes; by a
  /// policy that never `copies`, for `online` in its place. 0: nothing less is known.
  bytes budget_with_host{}, enough_host{};
  bool copies = true;               ///< the policy copies tensors to the host
  bool unfinished = false;          ///< no operator has run yet: variables are still made
  const char* operation = "";       ///< the operator that asked
  std::array<holder, 6> biggest{};  ///< the biggest that stayed; one_piece: that can't move
  std::size_t holders = 0;          ///< how many of `biggest` are set
  std::uint64_t held = 0;           ///< times that a view or `arguments` holds a block where it is
};

/// The budget can't hold what one operator needs, even with everything else released (repairs P-4).
/// Nothing was created; what was released comes back when it is used. A program may drop something
/// and try again: `catch (const delta::budget_exceeded& e)`, then `e.what()` or `e.report`.
class budget_exceeded : public error {
 public:
  /// The line says what was wanted, who is in the way, and which budget would do.
  explicit budget_exceeded(const memory_report& r) noexcept : report(r) {
    switch (r.what) {
      case shortage::room:
        say("operator '", r.operation, "' needs ", exact{r.requested}, " more, but ", r.immovable,
            " of the budget of ", exact{r.capacity}, " can't leave");
        break;
      case shortage::one_piece:
        say("operator '", r.operation, "' needs ", exact{r.requested}, " in one piece; ",
            detail::saturating_sub(r.capacity, r.used), " of the budget of ", exact{r.capacity},
            " are free, but in pieces of at most ", r.largest_hole);
        break;
      case shortage::restoring:
        say("operator '", r.operation, "' needs inputs that were evicted; recomputing them takes ",
            exact{r.requested}, " at once, and no other order fits the budget of ",
            exact{r.capacity}, " either, of which ", r.immovable, " can't leave");
        break;
    }
    print_holders();
    print_budget();
  }

  /// All that is known, as numbers.
  memory_report report;

 protected:
  // For `thrash`, which says something else.
  struct silent {};
  budget_exceeded(const memory_report& r, silent) noexcept : report(r) {}
  // The three biggest, and for scattered bytes what to do.
  void print_holders() noexcept {
    const bool scattered = report.what == shortage::one_piece;
    constexpr std::size_t shown = 3;
    for (std::size_t i = 0; i < std::min(report.holders, shown); ++i) {
      const auto& h = report.biggest[i];
      const char* const first = scattered ? "; held in place:" : "; biggest:";
      print("%s tensor %u (%s, ", i == 0 ? first : ",", index(h.tensor), h.label);
      print_size(h.size);
      print(scattered ? ")" : ", %s)", name(h.why));
    }
    if (report.holders > shown) print(" and others");
    if (report.foreign.count > 0) say("; blocks of the program's own: ", report.foreign);
    if (scattered && report.held > 0)
      print(
          "; addresses that were shown keep blocks in place: call allocate before arguments, or "
          "name outputs in begin, or let go of views");
    if (!scattered && report.host_capacity.count > 0)
      say("; host: ", report.host_used, " of ", report.host_capacity);
  }
  void print_budget() noexcept {
    if (report.smallest_budget.count > 0) {
      say(report.unfinished ? "; no operator has run yet, the budget has to be at least "
                            : "; smallest budget known to work: ",
          exact{report.smallest_budget});
      if (report.unfinished) return;
      if (report.basis == budget_basis::everything)
        print(", with which nothing has to leave; less may do");
      return;
    }
    print("; no budget can be named: %s", report.basis == budget_basis::no_moving
                                              ? "blocks stay where they are in this storage"
                                              : "by all that is known this one should have done");
  }
};

/// Recomputation got out of hand: a restore on demand reached the cap on replays before the
/// operator's inputs were together (repairs P-26). A larger budget helps.
class thrash : public budget_exceeded {
 public:
  /// `done` replays were made where `most` are allowed.
  thrash(const memory_report& r, std::uint64_t done, std::uint64_t most) noexcept
      : budget_exceeded(r, silent{}), replays(done), cap(most) {
    print("recomputation thrashes: %llu replays did not bring the inputs of operator '%s' together",
          static_cast<unsigned long long>(replays), r.operation);
    say(" in a budget of ", exact{r.capacity}, ", of which ", r.immovable, " can't leave");
    print_holders();
    print_budget();
  }
  std::uint64_t replays;  ///< done for the operator at hand, in the last try
  std::uint64_t cap;      ///< of replays, that ended it
};

}  // namespace delta

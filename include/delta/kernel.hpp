// delta: an operator as the program states it: what it touches, what a replay must respect, and its
// kernel, which is stored so that the outputs can be made again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "delta/units.hpp"

namespace delta {

/// What a replay must respect (repairs P-23). Combine with |. The program vouches for it: the
/// library can't check that a kernel gives the same bits twice.
enum class trait : std::uint8_t {
  pure = 0,          ///< the same inputs give the same bits
  random = 1,        ///< draws numbers: from `call::sequence()`, so that a replay draws the same
  effect_once = 2,   ///< its updates happen once: a replay gets null for them
  never_replay = 4,  ///< its outputs can't be recomputed
  /// Its kernel still uses its tensors after the operator's end, as a collective does: nothing
  /// leaves or is copied out before the next operator, so that the caller can first `acquire` them.
  asynchronous = 8
};
/// All that either asks for.
constexpr trait operator|(trait a, trait b) noexcept {
  return static_cast<trait>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
/// True if `t` (one or several) is among them.
constexpr bool has(trait set, trait t) noexcept {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(t)) != 0;
}

namespace detail {

/// True if a replay makes the same outputs: not from an input that the operator changed, nor of an
/// update that would happen twice (P-19, P-23). Of tensors or storages. O(inputs x updates).
template <class T>
[[nodiscard]] constexpr bool may_be_replayed(std::span<const T> inputs, std::span<const T> updates,
                                             trait traits) noexcept {
  if (has(traits, trait::never_replay)) return false;
  // In place: only if a replay may leave the update out, and reads nothing that it has changed.
  if (updates.empty()) return true;
  return has(traits, trait::effect_once) &&
         std::ranges::find_first_of(inputs, updates) == inputs.end();
}

}  // namespace detail

/// Tells what an operator will allocate that does not list it, where that can be found out, at a
/// cost: asked, once, only where its inputs can't simply come back.
class outputs_to_come {
 public:
  outputs_to_come() = default;
  outputs_to_come(const outputs_to_come&) = delete;
  outputs_to_come& operator=(const outputs_to_come&) = delete;
  /// Sizes, if known; the list lives until the operator has begun. Must not call the manager.
  [[nodiscard]] virtual std::span<const bytes> sizes() = 0;

 protected:
  ~outputs_to_come() = default;
};

/// An operator whose lists are known at run time. The spans must live until `run` or `begin`
/// returns. A tensor may be among inputs and updates. With updates it is recorded for recomputation
/// only with trait::effect_once, and only if it reads none of them: a replay would start from
/// changed bytes (repairs P-19, P-23).
struct operation_span {
  std::span<const tensor_id> inputs = {};   ///< read
  std::span<const bytes> outputs = {};      ///< sizes; the kernel writes every byte
  std::span<const tensor_id> updates = {};  ///< changed in place: a new version of the same tensor
  bytes workspace{};                        ///< scratch, for the time of the kernel
  trait traits = trait::pure;
  nanoseconds cost{};             ///< what it is expected to take; 0: unknown, measured or guessed
  const char* name = "operator";  ///< for errors and timelines; outlives its outputs
  /// Of one that is begun: it tells what the operator allocates later, so that one which can't fit
  /// says so before anything is run again for it. Null: nobody knows.
  outputs_to_come* later = nullptr;
};

/// The same with literal lists, for use inside a call: `manager.run({.inputs = {x, w}, ...}, f)`.
/// Not to be kept: an initializer list lives until the end of the full expression.
struct operation {
  std::initializer_list<tensor_id> inputs = {};
  std::initializer_list<bytes> outputs = {};
  std::initializer_list<tensor_id> updates = {};
  bytes workspace{};
  trait traits = trait::pure;
  nanoseconds cost{};
  const char* name = "operator";

  /// Views the same lists; lives as long as they do.
  operator operation_span() const noexcept {
    return {{inputs.begin(), inputs.size()},
            {outputs.begin(), outputs.size()},
            {updates.begin(), updates.size()},
            workspace,
            traits,
            cost,
            name,
            nullptr};
  }
};

/// What a kernel sees of the operator that it carries out; one type for every manager. Addresses
/// hold until the kernel returns: later the blocks may be moved, released, or another tensor's.
///   const auto add = [](delta::call& c) { sum(c.in(0), c.in(1), c.out(0)); };
class call {
 public:
  using addresses = std::span<std::byte* const>;
  /// Made by the manager for each run. The spans are its own and live as long as the call is used.
  call(addresses in, addresses out, addresses update, addresses workspaces, void* stream,
       std::uint64_t sequence, bool replaying) noexcept
      : in_(in),
        out_(out),
        update_(update),
        workspaces_(workspaces),
        stream_(stream),
        sequence_(sequence),
        replaying_(replaying) {}

  /// Addresses are in the order of the operator's lists; null where the storage keeps no bytes. An
  /// index past the end of its list is not checked.
  [[nodiscard]] std::byte* in(std::size_t i) const noexcept { return in_[i]; }
  /// Where output `i` goes. The kernel writes every byte: the block holds what was there before.
  [[nodiscard]] std::byte* out(std::size_t i) const noexcept { return out_[i]; }
  /// A tensor updated in place; null when an operator with an effect once is replayed.
  [[nodiscard]] std::byte* update(std::size_t i) const noexcept { return update_[i]; }
  /// Scratch, with any contents: the `i`-th asked for; null where the operator asked for fewer.
  [[nodiscard]] std::byte* workspace(std::size_t i = 0) const noexcept {
    return i < workspaces_.size() ? workspaces_[i] : nullptr;
  }
  /// How many there are of each.
  [[nodiscard]] std::size_t inputs() const noexcept { return in_.size(); }
  [[nodiscard]] std::size_t outputs() const noexcept { return out_.size(); }
  [[nodiscard]] std::size_t updates() const noexcept { return update_.size(); }
  /// How many workspaces the operator asked for.
  [[nodiscard]] std::size_t workspaces() const noexcept { return workspaces_.size(); }
  /// True if the library runs it again, rather than the program for the first time.
  [[nodiscard]] bool replaying() const noexcept { return replaying_; }
  /// The operator's tick, the same in its replays. Seeds counter-based random generators (P-23).
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  /// The same call with other scratch. The list lives as long as the call is used.
  [[nodiscard]] call with_workspaces(addresses scratch) const noexcept {
    return {in_, out_, update_, scratch, stream_, sequence_, replaying_};
  }
  /// What to launch on (the storage's native stream), or null where there is none.
  [[nodiscard]] void* stream() const noexcept { return stream_; }

 private:
  addresses in_, out_, update_, workspaces_;
  void* stream_;
  std::uint64_t sequence_;
  bool replaying_;
};

/// A stored kernel: a callable `void(call&)`, move-only. Captures up to 32 bytes live inside;
/// larger ones, over-aligned ones and ones whose move may throw on the heap.
class kernel {
 public:
  /// Holds nothing; calling it then is undefined.
  kernel() noexcept = default;
  /// Takes any callable by value. Throws what its copy or move throws, or std::bad_alloc.
  template <class F>
    requires(!std::is_same_v<std::decay_t<F>, kernel> &&
             std::is_invocable_v<std::decay_t<F>&, call&>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): not chosen for kernels, see above
  kernel(F&& f) {
    using body = std::decay_t<F>;  // of a function its address
    if constexpr (fits<body>) {
      ::new (static_cast<void*>(cell_)) body(std::forward<F>(f));
      face_ = &inside<body>;
    } else {
      auto* p = new body(std::forward<F>(f));
      std::memcpy(cell_, &p, sizeof(void*));
      face_ = &outside<body>;
    }
  }
  /// Afterwards `o` holds nothing. One call through a pointer, no heap.
  kernel(kernel&& o) noexcept { take(o); }
  kernel& operator=(kernel&& o) noexcept {
    if (this != &o) reset(), take(o);
    return *this;
  }
  ~kernel() { reset(); }

  /// Runs it. Throws what the callable throws. One call through a pointer.
  void operator()(call& c) { face_->invoke(cell_, c); }
  /// True if it holds anything.
  explicit operator bool() const noexcept { return face_ != nullptr; }
  /// Destroys what it holds.
  void reset() noexcept {
    if (face_ != nullptr) std::exchange(face_, nullptr)->destroy(cell_);
  }

 private:
  static constexpr std::size_t inline_bytes = 32;
  // What the stored type can do: one table per type, so a kernel is five words.
  struct face {
    void (*invoke)(void*, call&);
    void (*relocate)(void* to, void* from) noexcept;
    void (*destroy)(void*) noexcept;
  };
  template <class F>
  static constexpr bool fits = sizeof(F) <= inline_bytes && alignof(F) <= alignof(void*) &&
                               std::is_nothrow_move_constructible_v<F>;
  template <class F>
  static F* heaped(void* cell) noexcept {
    F* p;
    std::memcpy(&p, cell, sizeof(void*));
    return p;
  }
  template <class F>
  static constexpr face inside{
      [](void* cell, call& c) { (*std::launder(static_cast<F*>(cell)))(c); },
      [](void* to, void* from) noexcept {
        F* f = std::launder(static_cast<F*>(from));
        ::new (to) F(std::move(*f));
        f->~F();
      },
      [](void* cell) noexcept { std::launder(static_cast<F*>(cell))->~F(); }};
  template <class F>
  static constexpr face outside{
      [](void* cell, call& c) { (*heaped<F>(cell))(c); },
      [](void* to, void* from) noexcept { std::memcpy(to, from, sizeof(void*)); },
      [](void* cell) noexcept { delete heaped<F>(cell); }};
  void take(kernel& o) noexcept {
    if (o.face_ != nullptr) o.face_->relocate(cell_, o.cell_);
    face_ = std::exchange(o.face_, nullptr);
  }

  alignas(void*) std::byte cell_[inline_bytes];
  const face* face_ = nullptr;
};

}  // namespace delta

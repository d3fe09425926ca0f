// delta: who made which tensors from what. Operator records with the kernels that replay them,
// strong edges to their inputs, and the rules by which records come and go.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "delta/error.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta {

/// What a replay must respect (repairs P-23). Combine with |.
enum class trait : std::uint8_t {
  pure = 0,
  random = 1,        ///< draws numbers: from `call::sequence()`, so that a replay draws the same
  effect_once = 2,   ///< its updates happen once: a replay gets null for them
  never_replay = 4,  ///< its outputs can't be recomputed
};
constexpr trait operator|(trait a, trait b) noexcept {
  return static_cast<trait>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has(trait set, trait t) noexcept {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(t)) != 0;
}

/// What a kernel sees of the operator that it carries out. One type for every manager, so that
/// kernels can be stored. Addresses hold until the kernel returns.
class call {
 public:
  using addresses = std::span<std::byte* const>;
  call(addresses in, addresses out, addresses update, std::byte* workspace, void* stream,
       std::uint64_t sequence, bool replaying) noexcept
      : in_(in),
        out_(out),
        update_(update),
        workspace_(workspace),
        stream_(stream),
        sequence_(sequence),
        replaying_(replaying) {}

  /// Addresses are in the order of the operator's lists; null where the storage keeps no bytes.
  [[nodiscard]] std::byte* in(std::size_t i) const noexcept { return in_[i]; }
  [[nodiscard]] std::byte* out(std::size_t i) const noexcept { return out_[i]; }
  /// A tensor updated in place; null when an operator with an effect once is replayed.
  [[nodiscard]] std::byte* update(std::size_t i) const noexcept { return update_[i]; }
  [[nodiscard]] std::byte* workspace() const noexcept { return workspace_; }
  [[nodiscard]] bool replaying() const noexcept { return replaying_; }
  /// The operator's number in the program's order; the same in its replays. Seeds counter-based
  /// random generators.
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  /// What to launch on (the storage's native stream), or null.
  [[nodiscard]] void* stream() const noexcept { return stream_; }

 private:
  addresses in_, out_, update_;
  std::byte* workspace_;
  void* stream_;
  std::uint64_t sequence_;
  bool replaying_;
};

/// A stored kernel: a callable `void(call&)`, move-only. Captures up to 32 bytes live inside;
/// larger ones on the heap.
class kernel {
 public:
  kernel() noexcept = default;
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, kernel> &&
             std::is_invocable_v<std::remove_cvref_t<F>&, call&>)
  kernel(F&& f) {  // NOLINT(google-explicit-constructor): a kernel is what you can call
    using body = std::remove_cvref_t<F>;
    if constexpr (fits<body>) {
      ::new (static_cast<void*>(cell_)) body(std::forward<F>(f));
      face_ = &inside<body>;
    } else {
      auto* p = new body(std::forward<F>(f));
      std::memcpy(cell_, &p, sizeof p);
      face_ = &outside<body>;
    }
  }
  kernel(kernel&& o) noexcept { take(o); }
  kernel& operator=(kernel&& o) noexcept {
    if (this != &o) reset(), take(o);
    return *this;
  }
  ~kernel() { reset(); }

  void operator()(call& c) { face_->invoke(cell_, c); }
  explicit operator bool() const noexcept { return face_ != nullptr; }
  void reset() noexcept {
    if (face_ != nullptr) std::exchange(face_, nullptr)->destroy(cell_);
  }

 private:
  static constexpr std::size_t room = 32;
  struct face {
    void (*invoke)(void*, call&);
    void (*relocate)(void* to, void* from) noexcept;
    void (*destroy)(void*) noexcept;
  };
  template <class F>
  static constexpr bool fits =
      sizeof(F) <= room && alignof(F) <= alignof(void*) && std::is_nothrow_move_constructible_v<F>;
  template <class F>
  static F* heaped(void* cell) noexcept {
    F* p;
    std::memcpy(&p, cell, sizeof p);
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

  alignas(void*) std::byte cell_[room];
  const face* face_ = nullptr;
};

/// The record of one operator that may have to run again.
struct operator_record {
  std::vector<tensor_id> inputs, outputs, updates;
  kernel replay;
  bytes workspace{};
  nanoseconds cost{};              ///< as measured last, or a prior
  std::uint64_t sequence = 0;      ///< its number in the program's order
  mutable std::uint64_t mark = 0;  ///< last walk that visited it
  const char* name = "";
  std::uint32_t replays = 0;  ///< in this step
  trait traits = trait::pure;
  bool in_use = false;
};

/// Tensors and operator records. Invariant: a tensor with a producer can be computed again, because
/// every input of a living record either has its bytes somewhere or has a producer itself; losing
/// the one takes the record away (`sever`). Records and their lists are recycled.
class graph {
 public:
  [[nodiscard]] tensor& operator[](tensor_id t) noexcept { return tensors_[index(t)]; }
  [[nodiscard]] const tensor& operator[](tensor_id t) const noexcept { return tensors_[index(t)]; }
  [[nodiscard]] operator_record& operator[](operator_id o) noexcept { return records_[index(o)]; }
  [[nodiscard]] const operator_record& operator[](operator_id o) const noexcept {
    return records_[index(o)];
  }
  /// Throws unknown_tensor.
  tensor& checked(tensor_id t) {
    return const_cast<tensor&>(static_cast<const graph&>(*this).checked(t));
  }
  [[nodiscard]] const tensor& checked(tensor_id t) const {
    if (index(t) >= tensors_.size() || !(*this)[t].in_use || (*this)[t].references == 0)
      throw unknown_tensor(t);
    return (*this)[t];
  }
  [[nodiscard]] std::size_t tensor_slots() const noexcept { return tensors_.size(); }
  [[nodiscard]] std::size_t record_slots() const noexcept { return records_.size(); }
  [[nodiscard]] std::size_t live_records() const noexcept {
    return records_.size() - free_records_.size();
  }
  [[nodiscard]] std::size_t live_tensors() const noexcept {
    return tensors_.size() - free_tensors_.size();
  }

  /// A fresh tensor with one reference and no bytes. Amortised O(1).
  tensor_id add_tensor(bytes size, bytes footprint) {
    tensor_id t;
    if (free_tensors_.empty()) {
      t = static_cast<tensor_id>(tensors_.size());
      tensors_.emplace_back();
    } else {
      t = free_tensors_.back();
      free_tensors_.pop_back();
    }
    tensor& r = (*this)[t];
    r.size = size;
    r.footprint = footprint;
    r.references = 1;
    r.in_use = true;
    return t;
  }

  /// A fresh record; the caller fills it and calls `connect`.
  operator_id add_record() {
    operator_id o;
    if (free_records_.empty()) {
      o = static_cast<operator_id>(records_.size());
      records_.emplace_back();
    } else {
      o = free_records_.back();
      free_records_.pop_back();
    }
    (*this)[o].in_use = true;
    return o;
  }

  /// Draws the edges of a filled record. O(inputs + outputs).
  void connect(operator_id o) {
    for (tensor_id t : (*this)[o].inputs) (*this)[t].consumers.push_back(o);
    for (tensor_id t : (*this)[o].outputs) (*this)[t].producer = o;
  }

  /// Takes a record away: its outputs can't be computed again, its inputs lose a consumer.
  /// `orphans` receives every tensor that may have become useless. O(edges x consumers).
  void disconnect(operator_id o, std::vector<tensor_id>& orphans) {
    operator_record& r = (*this)[o];
    for (tensor_id t : r.outputs) {
      (*this)[t].producer = operator_id::none;
      orphans.push_back(t);
    }
    for (tensor_id t : r.inputs) {
      auto& c = (*this)[t].consumers;
      if (const auto at = std::find(c.begin(), c.end(), o); at != c.end()) {
        *at = c.back();
        c.pop_back();
      }
      orphans.push_back(t);
    }
    r.inputs.clear(), r.outputs.clear(), r.updates.clear();
    r.replay.reset();
    r.workspace = {}, r.cost = {}, r.replays = 0, r.traits = trait::pure, r.name = "";
    r.in_use = false;
    free_records_.push_back(o);
  }

  /// Gives a tensor's record back; it must have no bytes, references, producer or consumers.
  void recycle(tensor_id t) {
    tensor& r = (*this)[t];
    assert(r.references == 0 && r.locks == 0 && r.consumers.empty() && !r.device && !r.host);
    auto consumers = std::move(r.consumers);
    consumers.clear();
    r = tensor{};
    r.consumers = std::move(consumers);
    free_tensors_.push_back(t);
  }

  /// Is nobody left who could ask for any output of `o`, directly or by recomputing?
  [[nodiscard]] bool useless(operator_id o) const noexcept {
    return std::all_of((*this)[o].outputs.begin(), (*this)[o].outputs.end(), [&](tensor_id t) {
      const tensor& r = (*this)[t];
      return r.references == 0 && r.locks == 0 && r.wanted == 0 && r.consumers.empty();
    });
  }

  /// A number that no earlier walk has used; marks tell visited records.
  std::uint64_t next_mark() const noexcept { return ++mark_; }

 private:
  std::vector<tensor> tensors_;
  std::vector<operator_record> records_;
  std::vector<tensor_id> free_tensors_;
  std::vector<operator_id> free_records_;
  mutable std::uint64_t mark_ = 0;
};

}  // namespace delta

// A program in a steady state, to be run under any manager: what the benchmarks time, and what a
// test counts the heap's calls of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "axes.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"

namespace delta::bench {

/// The policies that are measured, each a function object with a name.
struct lru_evict {
  static constexpr std::string_view name = "lru_evict";
  auto operator()() const { return policy<lru, evict_only, no_prefetch>{}; }
};
struct base_offload {
  static constexpr std::string_view name = "base_offload";
  auto operator()() const { return policy<base, offload_only, no_prefetch>{}; }
};
struct dtr_preset {
  static constexpr std::string_view name = "dtr";
  auto operator()() const { return recompute_only(); }
};
struct online_preset {
  static constexpr std::string_view name = "online";
  auto operator()() const { return online(); }
};
struct paper_preset {
  static constexpr std::string_view name = "paper";
  auto operator()() const { return paper(); }
};

/// A machine whose budget holds `tensors` of them, and whose host holds `on_host`.
inline simulated_options machine(std::uint64_t tensors, std::uint64_t on_host) {
  return {.capacity = bytes{tensors * tensor_bytes},
          .host_capacity = bytes{on_host * tensor_bytes},
          .latency = nanoseconds{copy_latency_ns}};
}

/// A kernel that does nothing and holds `Words` words, as one with pointers and sizes would: with
/// four it takes all of the room that a stored kernel has inside.
template <std::size_t Words>
struct idle_kernel {
  std::array<std::uint64_t, Words> captured{};
  void operator()(call&) const noexcept {}
};

/// `live` tensors, each made by an operator from the three before it, in segments that start at a
/// variable: records are as bounded as a training step's, at most `live` + 2 x `segment` of them.
/// Between the calls exactly `live` tensors are referenced, the variable not counted.
///
///   variable -> x0 -> x1 -> x2 -> ... -> x31     variable -> x32 -> ...
///     (and to x0, x1, x2 for each input that would be in the segment before)
template <class Manager, std::size_t Words = 4>
class steady_program {
 public:
  /// Makes the first `live` tensors; at least four.
  steady_program(Manager& m, std::size_t live) : manager_(&m), ring_(live), random_(seed) {
    variable_ = m.variable(bytes{tensor_bytes});
    for (; made_ < live; ++made_) ring_[made_] = make();
  }

  /// One operator with three inputs and an output; then the oldest tensor is dropped.
  void run() {
    const tensor_id next = make();
    tensor_id& oldest = ring_[made_++ % ring_.size()];
    manager_->drop(oldest);
    oldest = next;
  }
  /// One operator that reads the three newest tensors and makes nothing.
  void read_newest() { read({back(1), back(2), back(3)}); }
  /// One operator that reads a tensor anywhere and makes nothing.
  void read_anywhere() { read({ring_[random_() % ring_.size()]}); }
  /// One operator that reads a tensor of middle age and makes nothing: the same in every segment,
  /// so that the program repeats itself.
  void read_middle() { read({back(ring_.size() / 2)}); }

 private:
  // The n-th newest.
  [[nodiscard]] tensor_id back(std::size_t n) const { return ring_[(made_ - n) % ring_.size()]; }
  tensor_id make() {
    const auto input = [&](std::size_t n) { return made_ % segment < n ? variable_ : back(n); };
    return manager_->run({.inputs = {input(1), input(2), input(3)},
                          .outputs = {bytes{tensor_bytes}},
                          .cost = nanoseconds{operator_ns}},
                         idle_kernel<Words>{});
  }
  void read(std::initializer_list<tensor_id> inputs) {
    manager_->template run<0>({.inputs = inputs, .cost = nanoseconds{operator_ns}},
                              idle_kernel<Words>{});
  }

  Manager* manager_;
  std::vector<tensor_id> ring_;  // the n-th tensor made is at n modulo its size
  std::size_t made_ = 0;
  tensor_id variable_{};
  std::mt19937_64 random_;
};

}  // namespace delta::bench

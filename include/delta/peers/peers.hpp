// delta: what others have published, as compositions of the three roles, for comparison with the
// same manager on the same machine. Each keeps its paper's rule for what leaves, how and when; what
// it leaves aside is said with it. Where memory is short and a rule has nothing more to give, the
// manager takes the other way out, as for every policy.
//
//   vdnn            Rhu et al. 2016     inputs of convolutions go to the host at once
//   superneurons    Wang et al. 2018    by layer: convolutions go to the host, others do not
//   capuchin        Peng et al. 2020    one step is measured, the next ones are planned
//   chen            Chen et al. 2016    every sqrt(n)-th operator's outputs stay
//   swap_lru        -                   swapping alone, the least recently used first
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/manager.hpp"
#include "delta/peers/swap_plan.hpp"
#include "delta/prefetcher.hpp"

namespace delta {

/// Kinds of operators that published rules tell apart.
enum class layer : std::uint8_t {
  other,
  convolution,
  product  ///< of matrices: linear layers
};

/// By an operator's name, as frameworks have them ("aten::cudnn_convolution_backward", "conv2d",
/// "addmm"): one of its words says so. A word is what stands between characters that are not
/// letters; case and an ending "backward" don't count. O(length).
constexpr layer layer_of(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 10> products{
      "mm", "bmm", "addmm", "addbmm", "baddbmm", "gemm", "matmul", "linear", "fc", "dense"};
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const auto letter = [&](char c) { return lower(c) >= 'a' && lower(c) <= 'z'; };
  const auto begins = [&](std::string_view word, std::string_view with) {
    return word.size() >= with.size() &&
           std::ranges::equal(word.substr(0, with.size()), with, {}, lower);
  };
  for (std::size_t i = 0; i < name.size(); ++i) {
    std::size_t end = i;
    while (end < name.size() && letter(name[end])) ++end;
    const std::string_view word = name.substr(i, end - i);
    const auto is = [&](std::string_view what) {
      if (!begins(word, what)) return false;
      const std::string_view rest = word.substr(what.size());
      return rest.empty() || (rest.size() == 8 && begins(rest, "backward"));
    };
    if (is("conv") || begins(word, "convolution")) return layer::convolution;
    if (std::ranges::any_of(products, is)) return layer::product;
    i = end;
  }
  return layer::other;
}

namespace detail {

/// Calls `visit(t)` once for each tensor of the operator that has ended, outputs included, that may
/// be asked to leave. Quadratic, as lists are short.
template <class Visit>
void for_each_of_ended(const context& c, const Visit& visit) {
  const ended_operator& o = c.ended();
  const std::array lists{o.inputs, o.updates, o.outputs};
  for (std::size_t l = 0; l < lists.size(); ++l)
    for (std::size_t i = 0; i < lists[l].size(); ++i) {
      const tensor_id t = lists[l][i];
      bool again = std::ranges::find(lists[l].first(i), t) != lists[l].begin() + std::ptrdiff_t(i);
      for (std::size_t k = 0; k < l; ++k)
        again = again || std::ranges::find(lists[k], t) != lists[k].end();
      if (!again && c.candidates().contains(t)) visit(t);
    }
}

/// The least recently used first, but before all others what the rule wants gone.
inline double first_or_stale(const context& c, tensor_id t, bool first) noexcept {
  return first ? -1.0 : 1.0 / c.staleness(t);
}

}  // namespace detail

/// In the backward pass what was used last in the forward pass, in reverse order: what was
/// offloaded last comes back first, one copy at a time, if it fits beside what the last operator
/// needed. What left in the backward pass comes back on demand. O(offloaded).
struct reverse_prefetch {
  tensor_id next(const context& c) const noexcept {
    if (!c.backward() || c.backlog(direction::in) > 0) return tensor_id::none;
    for (std::size_t i = c.offloaded().size(); i-- > 0;) {
      const tensor_id t = c.offloaded()[i];
      if (c.clock() - c.staleness(t) > forward_until_) continue;
      const double taken = c.used() + c.bytes(t) + c.coming_need();
      return taken <= c.budget() ? t : tensor_id::none;
    }
    return tensor_id::none;
  }
  void end_of_operator(const context& c) noexcept {
    if (!c.backward()) forward_until_ = c.clock();
  }

 private:
  double forward_until_ = 0;  // by the clock
};

/// Back from the host by a copy, even where computing it again would take less. A base of deciders.
struct always_reload {
  restoration restore(const context&, tensor_id) const noexcept { return restoration::reload; }
};

// --- vDNN ----------------------------------------------------------------------------------------

/// vDNN's rule (Rhu et al. 2016, "vDNN conv"): what a convolution has read in the forward pass goes
/// to the host, short of memory or not, once no other operator of that pass needs it. vDNN knows
/// the network; here the step before tells, whose peak stands for the end of the forward pass. In
/// the first step every convolution's input goes. Weights stay. A base of the roles.
struct convolution_inputs {
  static constexpr bool learns = true;

  /// Of a tensor of the operator that has ended. O(inputs).
  static bool leaves(const context& c, tensor_id t) noexcept {
    const ended_operator& o = c.ended();
    if (c.backward() || o.inputs.empty() || layer_of(o.name) != layer::convolution) return false;
    if (std::ranges::find(o.inputs, t) == o.inputs.end() || c.made_by(t).empty()) return false;
    const forecast f = c.next_use(t);
    if (f.what == forecast::kind::never) return false;
    return f.what == forecast::kind::unknown || f.position > c.past().followed().peak_at;
  }
};

/// These first, then the least recently used. O(inputs).
struct convolution_inputs_first : convolution_inputs {
  double score(const context& c, tensor_id t) const noexcept {
    return detail::first_or_stale(c, t, leaves(c, t));
  }
};

/// Out right after their convolution, back in reverse order. vDNN lets the next layer wait for the
/// copy; here it is waited for only when its bytes are needed.
struct convolution_inputs_out : convolution_inputs, reverse_prefetch {
  double early_release_bytes(const context& c) const {
    double sum = 0;
    detail::for_each_of_ended(c, [&](tensor_id t) {
      if (leaves(c, t) && c.can_offload(t)) sum += c.bytes(t);
    });
    return sum;
  }
};

/// vDNN: convolutions' inputs to the host; nothing is recomputed. What else is in the way goes to
/// the host, too, the least recently used first.
inline policy<convolution_inputs_first, offload_only, convolution_inputs_out> vdnn() {
  return {};
}

// --- SuperNeurons --------------------------------------------------------------------------------

/// SuperNeurons' rule (Wang et al. 2018): outputs of convolutions and of matrix products are dear
/// and go to the host; all others are cheap and are recomputed. By the operator's name alone: no
/// cost is asked. O(length of the name).
struct by_layer : always_reload {
  action decide(const context& c, tensor_id t) const noexcept {
    return layer_of(c.made_by(t)) == layer::other ? action::evict : action::offload;
  }
};

/// SuperNeurons: the least recently used leaves, when memory is short (its tensor cache), by its
/// kind of layer; what is on the host comes back in reverse order. Its liveness analysis is the
/// program's drops; its choice among a convolution's algorithms is none of a memory manager's.
inline policy<lru, by_layer, reverse_prefetch> superneurons() {
  return {};
}

// --- Capuchin ------------------------------------------------------------------------------------

/// Leaves first what the plan wants away by now; else the least recently used (its passive mode).
/// O(1).
struct planned_first {
  static constexpr bool learns = true;
  double score(const context& c, tensor_id t) const noexcept {
    return detail::first_or_stale(c, t, plan_.due(c, t) != nullptr);
  }
  void end_of_step(const context& c) { plan_.make(c); }

 private:
  detail::swap_plan plan_;
};

/// The way that is planned; without a plan to the host, and back on demand. O(1).
struct planned_way : always_reload {
  static constexpr bool learns = true;
  action decide(const context& c, tensor_id t) const noexcept {
    const detail::swap_plan::trip* const planned = plan_.due(c, t);
    return planned != nullptr && !planned->swaps ? action::evict : action::offload;
  }
  void end_of_step(const context& c) { plan_.make(c); }

 private:
  detail::swap_plan plan_;
};

/// Out as soon as the plan says so. Back at the last operator's end from which a copy is there in
/// time (its in-trigger); where one was not, it starts a twentieth of a copy earlier from then on.
struct in_triggers {
  static constexpr bool learns = true;

  /// What is planned to be away from the end of this operator on. O(touched).
  double early_release_bytes(const context& c) {
    double sum = 0;
    detail::for_each_of_ended(c, [&](tensor_id t) {
      const detail::swap_plan::trip* const planned = plan_.due(c, t);
      if (planned == nullptr || !(c.can_offload(t) || c.can_evict(t))) return;
      sum += c.bytes(t);
      if (planned->swaps) away_.push_back({t, c.past().storage_of(t)});
    });
    return sum;
  }
  /// Of what is due soon enough, the first. O(planned ones on the host).
  tensor_id next(const context& c) const noexcept {
    tensor_id first = tensor_id::none;
    std::uint32_t at = 0;
    for (const traveller& x : away_) {
      const forecast f = c.next_use(x.tensor);
      if (c.where(x.tensor) != residency::host || f.what != forecast::kind::known) continue;
      const double copy = lead_[x.storage] * c.copy_cost(x.tensor, direction::in);
      if (f.in - c.past().coming_cost() >= copy) continue;  // the next operator's end will do
      if (first == tensor_id::none || f.position < at) first = x.tensor, at = f.position;
    }
    const double taken = c.used() + c.coming_need();
    const bool fits = first != tensor_id::none && taken + c.bytes(first) <= c.budget();
    return fits ? first : tensor_id::none;
  }
  /// Is what the coming operator uses not there yet? O(planned ones on the host).
  void end_of_operator(const context& c) {
    std::erase_if(away_, [&](const traveller& x) {
      const residency where = c.where(x.tensor);
      const bool back = where == residency::resident || where == residency::dead;
      if (back || c.past().storage_of(x.tensor) != x.storage) return true;
      const forecast f = c.next_use(x.tensor);
      if (f.what == forecast::kind::known && f.position == c.past().position())
        lead_[x.storage] += earlier;
      return false;
    });
  }
  void end_of_step(const context& c) {
    away_.clear();
    if (plan_.make(c)) lead_.assign(c.past().last().storages.size(), 1.0);
  }

 private:
  static constexpr double earlier = 0.05;  // of a copy's time, as published
  struct traveller {
    tensor_id tensor;
    std::uint32_t storage;  // of the record
  };
  detail::swap_plan plan_;
  std::vector<traveller> away_;
  std::vector<double> lead_;  // by storage: copies' times before its use
};

/// Capuchin: the first step swaps on demand and is measured; then it is planned once, from the
/// measured times between uses: swaps that they hide, then recomputing by bytes per second. Each
/// role has a plan of its own, and all are the same. What the plan does not cover is swapped on
/// demand. It keeps a plan for one kind of step at a time.
inline policy<planned_first, planned_way, in_triggers> capuchin() {
  return {};
}

// --- Chen et al. ---------------------------------------------------------------------------------

/// Chen et al.'s rule (2016): of the n operators whose outputs the backward pass needs, every
/// ceil(sqrt(n))-th keeps them; of all else, first what the forward pass needs no more. Least
/// recently used within these. The step before tells, whose peak stands for the end of the forward
/// pass; without one it is the least recently used of all. O(1).
struct sqrt_segments {
  static constexpr bool learns = true;

  double score(const context& c, tensor_id t) const noexcept {
    const std::uint32_t s = c.past().storage_of(t);
    double rank = 1;
    if (s < kept_.size() && c.past().followed().operations.back().exact == key_) {
      const forecast f = c.next_use(t);
      const bool over = f.what != forecast::kind::unknown &&
                        (f.what == forecast::kind::never || f.position > peak_at_);
      rank = kept_[s] ? 2 : over ? 0 : 1;
    }
    return rank * longest - c.staleness(t);
  }
  /// O(step).
  void end_of_step(const context& c) {
    if (c.past().steps() == 0) return;
    const step_record& step = c.past().last();
    key_ = step.operations.back().exact;
    peak_at_ = step.peak_at;
    kept_.assign(step.storages.size(), false);
    const auto outlives_peak = [&](std::uint32_t s) {
      const step_record::storage& x = step.storages[s];
      return x.uses > 0 && step.uses[x.first_use + x.uses - 1] > peak_at_;
    };
    std::vector<std::uint32_t> makers;
    for (std::uint32_t i = 0; i <= peak_at_; ++i)
      if (std::ranges::any_of(step.outputs(step.operations[i]), outlives_peak)) makers.push_back(i);
    const auto segment =
        static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(makers.size()))));
    for (std::size_t i = segment; segment > 0 && i <= makers.size(); i += segment)
      for (const std::uint32_t s : step.outputs(step.operations[makers[i - 1]])) kept_[s] = true;
  }

 private:
  static constexpr double longest = 0x1p50;  // ns: thirteen days, which no tensor waits
  std::uint64_t key_ = 0;                    // of the step that it was made for
  std::uint32_t peak_at_ = 0;
  std::vector<bool> kept_;  // by storage of that step
};

/// Chen et al.: recomputing alone. Published as a transformation of the graph; here what is not
/// kept leaves when memory is short, and each tensor is recomputed for itself.
inline policy<sqrt_segments, evict_only, no_prefetch> chen() {
  return {};
}

// --- the plainest --------------------------------------------------------------------------------

/// Swapping alone: the least recently used leaves when memory is short, and comes back on demand.
inline policy<lru, offload_only, no_prefetch> swap_lru() {
  return {};
}

static_assert(Heuristic<convolution_inputs_first> && Heuristic<planned_first> &&
              Heuristic<sqrt_segments>);
static_assert(Decider<by_layer> && Decider<planned_way>);
static_assert(Prefetcher<reverse_prefetch> && Prefetcher<convolution_inputs_out> &&
              Prefetcher<in_triggers>);

}  // namespace delta

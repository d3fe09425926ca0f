// delta executor: L2L (Pudipeddi et al. 2020): only the layer at work is on the device, and the
// next one's parameters on their way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/manager.hpp"
#include "delta/step.hpp"
#include "peers/parts.hpp"

namespace delta::executor {

/// The layers of a step: runs of operators, told by what the step does. A layer begins with an
/// operator that touches something that no operator made (parameters, their state, a batch) which
/// the layer at work has not touched, and goes on through all that need nothing else from there.
/// So forward, backward and update of one published layer are layers of their own here, which is
/// when its parameters have to be there.
class step_layers {
 public:
  /// By the last step. O(step), O(1) where it was the same before.
  void learn(const context& c) {
    if (c.past().steps() == 0) return;
    const step_record& step = c.past().last();
    const std::uint64_t key = step.operations.back().exact;
    if (std::exchange(key_, key) == key) return;
    layer_.assign(step.length(), 0);
    const auto outside = [&](std::size_t s) { return step.storages[s].born == none; };
    border_.resize(step.storages.size());
    for (std::size_t s = 0; s < border_.size(); ++s) border_[s] = outside(s);
    std::vector<std::uint32_t> member(step.storages.size(), none);  // of which layer, last
    std::uint32_t layer = 0;
    bool any = false;  // has the layer at work touched anything from outside?
    for (std::uint32_t i = 0; i < step.length(); ++i) {
      const auto touched = step.touched(step.operations[i]);
      const auto stranger = [&](std::uint32_t s) { return outside(s) && member[s] != layer; };
      const bool has_stranger = std::ranges::any_of(touched, stranger);
      if (has_stranger && any) ++layer;
      any = any || has_stranger;
      for (const std::uint32_t s : touched) {
        if (outside(s)) member[s] = layer;
        const std::uint32_t born = step.storages[s].born;
        if (born != none && i <= step.peak_at && layer_[born] != layer) border_[s] = true;
      }
      layer_[i] = layer;
      // What is made behind the forward pass is a gradient, which nothing makes again.
      if (i > step.peak_at)
        for (const std::uint32_t s : step.outputs(step.operations[i])) border_[s] = true;
    }
    layers_ = layer + 1;
  }
  /// How many layers away is its next use? 0: the one at work, whose operator comes next; `none`:
  /// not known. O(1).
  [[nodiscard]] std::uint32_t away(const context& c, tensor_id t) const noexcept {
    if (!knows(c)) return none;
    const forecast f = c.next_use(t);
    if (f.what != forecast::kind::known) return none;
    const std::uint32_t here = at(c.past().position()), there = at(f.position);
    return there >= here ? there - here : none;
  }
  /// Not the layer at work, nor the next one. O(1).
  [[nodiscard]] bool far(const context& c, tensor_id t) const noexcept {
    const std::uint32_t layers = away(c, t);
    return layers != none && layers > 1;
  }
  /// Has its own layer made it for itself, in the forward pass? Then it can be made again from the
  /// layer's border. O(1).
  [[nodiscard]] bool within(const context& c, tensor_id t) const noexcept {
    const std::uint32_t s = knows(c) ? c.past().storage_of(t) : none;
    return s < border_.size() && !border_[s] && !c.made_by(t).empty();
  }

 private:
  static constexpr std::uint32_t none = step_record::none;

  [[nodiscard]] bool knows(const context& c) const noexcept {
    return c.past().follows() && c.past().followed().operations.back().exact == key_;
  }
  // By position; beyond the step's length the next step's.
  [[nodiscard]] std::uint32_t at(std::size_t position) const noexcept {
    if (position < layer_.size()) return layer_[position];
    position -= layer_.size();
    return layers_ + (position < layer_.size() ? layer_[position] : layers_);
  }

  std::uint64_t key_ = 0;  // of the step that it was learnt from
  std::uint32_t layers_ = 0;
  std::vector<std::uint32_t> layer_;  // by operator of it
  std::vector<bool> border_;          // by storage of it
};

/// L2L (Pudipeddi et al. 2020, "Training Large Neural Networks with Constant Memory using a New
/// Execution Algorithm"): parameters and optimizer state are on the host but for the layers that
/// use them; outputs of layers go there, too (its constant-memory variant), and what is within a
/// layer is recomputed. Short of memory or not. There each layer runs all microbatches before the
/// next one begins, and the host may run the updates: the program's order is kept here, and updates
/// run on the device. There a layer is the model's; here it is an operator with parameters and
/// those behind it, and tensors are recomputed each for itself. The first step is watched: swaps on
/// demand alone. It knows the layers of one kind of step at a time.
struct l2l_policy : always_reload {
  static constexpr bool learns = true;

  /// First what neither the layer at work nor the next one uses, then the least recently used.
  /// O(1).
  double score(const context& c, tensor_id t) const noexcept {
    return first_or_stale(c, t, layers_.far(c, t));
  }
  /// Parameters, and activations at the borders of layers, to the host; what a layer has made for
  /// itself is recomputed. O(1).
  action decide(const context& c, tensor_id t) const noexcept {
    return layers_.within(c, t) ? action::evict : action::offload;
  }
  static constexpr bool may_keep() noexcept { return false; }
  /// Out when the last operator of their layer that uses them has ended, and what the step before
  /// has left here after the first one. O(touched).
  double early_release_bytes(const context& c) const {
    return bytes_to_leave(c, [&](tensor_id t) { return layers_.far(c, t); });
  }
  /// Back while the layer before theirs is at work, if they fit, what is due first, of several
  /// what left last. O(offloaded).
  tensor_id next(const context& c) const noexcept {
    tensor_id t = tensor_id::none;
    std::uint32_t due = none;
    for (const tensor_id x : c.offloaded())
      if (const forecast f = c.next_use(x); f.what == forecast::kind::known && f.position <= due)
        t = x, due = f.position;
    if (t == tensor_id::none || layers_.away(c, t) > 1) return tensor_id::none;
    return fits_early(c, t) ? t : tensor_id::none;
  }
  void end_of_step(const context& c) { layers_.learn(c); }

 private:
  static constexpr std::uint32_t none = step_record::none;

  step_layers layers_;
};
inline l2l_policy l2l() {
  return {};
}

}  // namespace delta::executor

// delta executor: vDNN (Rhu et al. 2016): inputs of convolutions go to the host at once.
#pragma once

#include <algorithm>

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/manager.hpp"
#include "peers/layer.hpp"
#include "peers/parts.hpp"

namespace delta::executor {

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
    return first_or_stale(c, t, leaves(c, t));
  }
};

/// Out right after their convolution, back in reverse order. vDNN lets the next layer wait for the
/// copy; here it is waited for only when its bytes are needed.
struct convolution_inputs_out : convolution_inputs, reverse_prefetch {
  double early_release_bytes(const context& c) const {
    double sum = 0;
    for_each_of_ended(c, [&](tensor_id t) {
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

}  // namespace delta::executor

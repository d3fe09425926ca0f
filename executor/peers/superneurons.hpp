// delta executor: SuperNeurons (Wang et al. 2018): convolutions go to the host, other layers are
// recomputed.
#pragma once

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/manager.hpp"
#include "peers/layer.hpp"
#include "peers/parts.hpp"

namespace delta::executor {

/// SuperNeurons' rule (Wang et al. 2018): outputs of convolutions and of matrix products are dear
/// and go to the host; all others are cheap and are recomputed. By the operator's name alone: no
/// cost is asked. O(length of the name).
struct by_layer : always_reload {
  action decide(const context& c, tensor_id t) const noexcept {
    return layer_of(c.made_by(t)) == layer::other ? action::evict : action::offload;
  }
  static constexpr bool may_keep() noexcept { return false; }
};

/// SuperNeurons: the least recently used leaves, when memory is short (its tensor cache), by its
/// kind of layer; what is on the host comes back in reverse order. Its liveness analysis is the
/// program's drops; its choice among a convolution's algorithms is none of a memory manager's.
inline policy<lru, by_layer, reverse_prefetch> superneurons() {
  return {};
}

}  // namespace delta::executor

// delta tests: training steps of a densely connected network as an eager framework runs them: many
// small operators, thousands of live tensors, and closures of hundreds of operators that share
// their ancestors. What policies pay for their questions about recomputation is measured on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "delta/engine/engine.hpp"
#include "delta/kernel.hpp"
#include "delta/learning_report.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/units.hpp"

namespace delta::test {

/// Four blocks of layers, of which each reads all outputs of its block so far: concatenation, batch
/// norm, relu, convolution, norm, relu, convolution. What is updated in place (relu; gradients that
/// are added up) is a new version, and the old one is dropped at once. On the way back every layer
/// cuts its gradient into pieces, one for each layer before it, and adds each to that one's. Then
/// clipping, weight decay and momentum, parameter by parameter. A step is the same every time.
///
/// With 16 layers a block: 5,320 operators a step and 768 variables; about twice as many tensors
/// besides at the end of the way back.
template <class Manager>
class dense_program {
 public:
  /// `slowness`: of 1 a device reads and writes 500 GB/s.
  explicit dense_program(Manager& m, double slowness = 10, std::size_t layers = 16)
      : m_(&m), slowness_(slowness), per_block_(layers) {
    for (std::size_t i = 0; i < blocks * per_block_; ++i) {
      layer l;
      for (std::size_t p = 0; p < parameters; ++p) {
        const bytes size{p % 3 == 0 ? 128u * 1024 : 4096u};
        l.parameter.push_back(m.variable(size)), l.momentum.push_back(m.variable(size));
      }
      layers_.push_back(std::move(l));
    }
  }
  /// One step; gives how many operators it had.
  std::size_t step() {
    const std::size_t before = operators_;
    forward();
    backward();
    update();
    m_->end_of_step();
    return operators_ - before;
  }

 private:
  static constexpr std::size_t blocks = 4, parameters = 6;
  struct layer {
    std::vector<tensor_id> parameter, momentum, gradient;
    // What the way back needs; in the order in which it was made.
    tensor_id joined = tensor_id::none, norm1 = joined, conv1 = joined, norm2 = joined,
              feature = joined;
    std::vector<tensor_id> saved1, saved2;  // statistics
    tensor_id back = tensor_id::none;       // the feature's gradient
  };

  // Bytes of one feature, by block: images shrink, so do features.
  [[nodiscard]] bytes feature_size(std::size_t block) const { return bytes{(4u << 20) >> block}; }
  // Elementwise operators read and write; a convolution computes ten times as long.
  [[nodiscard]] nanoseconds cost_of(bytes touched, double factor) const {
    const double ns = slowness_ * factor * double(touched.count) / 500;
    return nanoseconds{5'000 + static_cast<std::int64_t>(ns)};
  }
  std::vector<tensor_id> run(std::span<const tensor_id> inputs, std::span<const bytes> outputs,
                             double factor, std::span<const tensor_id> updates = {}) {
    bytes touched{};
    for (const bytes b : outputs) touched += b;
    std::vector<tensor_id> made(outputs.size());
    m_->run(operation_span{.inputs = inputs,
                           .outputs = outputs,
                           .updates = updates,
                           .cost = cost_of(touched, factor),
                           .name = "op"},
            made, [](call&) {});
    ++operators_;
    return made;
  }
  tensor_id one(std::initializer_list<tensor_id> inputs, bytes size, double factor = 1) {
    return run(std::span(inputs.begin(), inputs.size()), std::span(&size, 1), factor)[0];
  }
  void update(std::initializer_list<tensor_id> inputs, tensor_id updated) {
    run(std::span(inputs.begin(), inputs.size()), {}, 1, std::span(&updated, 1));
  }
  void drop(tensor_id t) { m_->drop(t); }
  // A new version: the old one is dropped.
  tensor_id renewed(tensor_id t, bytes size, std::initializer_list<tensor_id> with = {}) {
    std::vector<tensor_id> inputs{t};
    inputs.insert(inputs.end(), with);
    const tensor_id made = run(inputs, std::span(&size, 1), 1)[0];
    drop(t);
    return made;
  }
  // Its output, and three statistics that the way back needs.
  tensor_id norm(tensor_id x, tensor_id weight, tensor_id bias, bytes size,
                 std::vector<tensor_id>& saved) {
    const bytes sizes[]{size, bytes{4096}, bytes{4096}, bytes{8192}};
    const tensor_id inputs[]{x, weight, bias};
    const auto made = run(inputs, sizes, 1);
    saved.assign(made.begin() + 1, made.end());
    return made[0];
  }

  void forward() {
    for (std::size_t b = 0; b < blocks; ++b) {
      const bytes size = feature_size(b);
      for (std::size_t k = 0; k < per_block_; ++k) {
        layer& l = at(b, k);
        std::vector<tensor_id> before;
        if (k == 0) before.push_back(b == 0 ? l.parameter[0] : at(b - 1, per_block_ - 1).feature);
        for (std::size_t j = 0; j < k; ++j) before.push_back(at(b, j).feature);
        const bytes joined = size * (k + 1);
        l.joined = run(before, std::span(&joined, 1), 1)[0];
        l.norm1 = norm(l.joined, l.parameter[1], l.parameter[2], joined, l.saved1);
        l.norm1 = renewed(l.norm1, joined);
        l.conv1 = one({l.norm1, l.parameter[0]}, size * 4, 10);
        l.norm2 = norm(l.conv1, l.parameter[4], l.parameter[5], size * 4, l.saved2);
        l.norm2 = renewed(l.norm2, size * 4);
        l.feature = one({l.norm2, l.parameter[3]}, size, 40);
      }
    }
  }
  void backward() {
    at(blocks - 1, per_block_ - 1).back =
        one({at(blocks - 1, per_block_ - 1).feature}, feature_size(blocks - 1));
    for (std::size_t b = blocks; b-- > 0;) {
      const bytes size = feature_size(b);
      for (std::size_t k = per_block_; k-- > 0;) {
        layer& l = at(b, k);
        const bytes joined = size * (k + 1);
        const auto parameter_gradient = [&](tensor_id g, tensor_id x, bytes n, double f) {
          l.gradient.push_back(one({g, x}, n, f));
        };
        parameter_gradient(l.back, l.norm2, bytes{128 * 1024}, 400);
        tensor_id g = one({l.back, l.parameter[3]}, size * 4, 10);
        drop(l.back);
        g = renewed(g, size * 4, {l.norm2});
        drop(l.norm2);
        g = norm_back(l, g, l.conv1, l.parameter[4], size * 4, l.saved2);
        drop(l.conv1);
        parameter_gradient(g, l.norm1, bytes{128 * 1024}, 400);
        g = renewed(g, joined, {l.parameter[0]});
        g = renewed(g, joined, {l.norm1});
        drop(l.norm1);
        g = norm_back(l, g, l.joined, l.parameter[1], joined, l.saved1);
        drop(l.joined);
        // A piece for every feature that was read.
        if (k == 0 && b > 0) add_to(at(b - 1, per_block_ - 1), g, feature_size(b - 1));
        for (std::size_t j = 0; j < k; ++j) add_to(at(b, j), g, size);
        drop(g);
        drop(l.feature);
      }
    }
  }
  tensor_id norm_back(layer& l, tensor_id g, tensor_id x, tensor_id weight, bytes size,
                      std::vector<tensor_id>& saved) {
    const bytes sizes[]{size, bytes{4096}, bytes{4096}};
    const tensor_id inputs[]{g, x, weight, saved[0], saved[1], saved[2]};
    const auto made = run(inputs, sizes, 1);
    l.gradient.insert(l.gradient.end(), made.begin() + 1, made.end());
    drop(g);
    for (const tensor_id s : saved) drop(s);
    return made[0];
  }
  void add_to(layer& l, tensor_id gradient, bytes size) {
    const tensor_id piece = one({gradient}, size);
    if (l.back == tensor_id::none) return void(l.back = piece);
    l.back = renewed(l.back, size, {piece});
    drop(piece);
  }
  void update() {
    for (layer& l : layers_) {
      for (std::size_t p = 0; p < parameters; ++p) {
        // Gradients come in another order than parameters, and of two sizes.
        const bytes size{p % 3 == 0 ? 128u * 1024 : 4096u};
        const std::size_t of[]{0, 4, 5, 3, 1, 2};
        tensor_id g = l.gradient[of[p]];
        const tensor_id length = one({g}, bytes{512});
        g = renewed(g, size, {length});
        drop(length);
        const tensor_id decay = one({l.parameter[p]}, size);
        g = renewed(g, size, {decay});
        drop(decay);
        update({}, l.momentum[p]);
        update({g}, l.momentum[p]);
        const tensor_id ahead = one({g, l.momentum[p]}, size);
        drop(g);
        const tensor_id scaled = one({ahead}, size);
        drop(ahead);
        update({scaled}, l.parameter[p]);
        drop(scaled);
      }
      l.gradient.clear();
      l.back = tensor_id::none;
    }
  }
  layer& at(std::size_t block, std::size_t k) { return layers_[block * per_block_ + k]; }

  Manager* m_;
  double slowness_;
  std::size_t per_block_;
  std::vector<layer> layers_;
  std::size_t operators_ = 0;
};

/// A manager with more room than any program takes, which therefore releases nothing; it learns, so
/// that it can tell what a step holds at most.
inline std::unique_ptr<manager_interface> with_ample_room(simulated& storage) {
  return make_manager("adaptive", over(storage));
}
inline constexpr simulated_options ample_room{.capacity = bytes{std::uint64_t{1} << 40}};

/// The most bytes that a step of the dense program holds. Two steps.
inline bytes dense_peak() {
  simulated storage(ample_room);
  const auto alone = with_ample_room(storage);
  dense_program program(*alone);
  (void)program.step(), (void)program.step();
  return alone->learned().peak;
}

}  // namespace delta::test

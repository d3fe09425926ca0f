// Operators of every type with shapes and inputs to run them on: what one executor makes of them
// can be held against what another does.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu_backend.hpp"
#include "dice.hpp"
#include "kernel_testing.hpp"
#include "model/graph.hpp"

namespace operator_cases {

using namespace delta::executor;
using contents = std::vector<std::byte>;

/// What an operand holds: floats are compared within a tolerance, bytes and words exactly.
enum class element { floats, small_bytes, words };

struct operand {
  std::vector<int> shape;
  element what = element::floats;
  float offset = 0.0f;  ///< floats are uniform in offset - 1 .. offset + 1
  int below = 2;        ///< bytes and words are in [0, below)

  [[nodiscard]] std::size_t count() const {
    std::size_t n = 1;
    for (const int length : shape) n *= std::size_t(length);
    return n;
  }
  [[nodiscard]] std::size_t bytes() const {
    return count() * (what == element::small_bytes ? 1 : 4);
  }
  [[nodiscard]] contents draw(std::uint32_t seed) const {
    contents made(bytes());
    const auto floats = kernel_testing::random_floats(count(), seed, offset);
    if (what == element::floats) std::memcpy(made.data(), floats.data(), made.size());
    for (std::size_t i = 0; what != element::floats && i < count(); ++i) {
      const auto value =
          std::min(std::int32_t((floats[i] + 1.0f - offset) / 2 * float(below)), below - 1);
      if (what == element::words) std::memcpy(made.data() + 4 * i, &value, 4);
      if (what == element::small_bytes) made[i] = std::byte(value);
    }
    return made;
  }
};

/// One operator, as the only node of a graph, with what it is called with.
struct operator_case {
  operator_type type;
  operator_shape shape;
  std::string text;  ///< names it where a check fails
  std::vector<operand> inputs, outputs, updates = {};

  [[nodiscard]] graph make_graph() const {
    graph g;
    node n{.name = text, .type = type, .shape = shape};
    const auto add = [&](const std::vector<operand>& operands, std::vector<value_id>& ids) {
      for (const auto& o : operands) {
        ids.push_back(value_id(g.values.size()));
        g.values.push_back(
            {.name = std::to_string(g.values.size()), .shape = o.shape, .bytes = o.bytes()});
      }
    };
    add(inputs, n.inputs);
    add(outputs, n.outputs);
    add(updates, n.updates);
    g.nodes.push_back(std::move(n));
    *g.hyper = {
        .learning_rate = 0.05f, .momentum = 0.8f, .decay = 0.01f, .seed = 0x123456789, .step = 3};
    return g;
  }
};

/// What an operator left: its outputs, then its updates.
using results = std::vector<contents>;

/// Memory between two guards, at a multiple of 256 bytes or `shift` beyond one.
class guarded {
 public:
  guarded(std::size_t bytes, std::size_t shift) : bytes_(bytes), shift_(shift) {
    std::memset(whole(), 0xA5, whole_bytes());
    std::memset(data(), 0xFF, bytes);  // floats: NaN
  }
  guarded(const contents& c, std::size_t shift) : guarded(c.size(), shift) {
    if (!c.empty()) std::memcpy(data(), c.data(), c.size());
  }
  guarded(guarded&& from) noexcept
      : bytes_(from.bytes_), shift_(from.shift_), memory_(std::exchange(from.memory_, nullptr)) {}
  guarded& operator=(guarded&&) = delete;
  ~guarded() { ::operator delete[](memory_, std::align_val_t{256}); }

  std::byte* data() { return whole() + 256 + shift_; }
  [[nodiscard]] contents copy() { return {data(), data() + bytes_}; }
  [[nodiscard]] bool intact() {
    const auto mark = [](std::byte b) { return b == std::byte{0xA5}; };
    return std::all_of(whole(), data(), mark) &&
           std::all_of(data() + bytes_, whole() + whole_bytes(), mark);
  }

 private:
  std::byte* whole() { return static_cast<std::byte*>(memory_); }
  [[nodiscard]] std::size_t whole_bytes() const { return bytes_ + shift_ + 512; }

  std::size_t bytes_, shift_;
  void* memory_ = ::operator new[](whole_bytes(), std::align_val_t{256});
};

/// Runs an operator in the host's memory, and checks that it stayed within it. `shift`: bytes by
/// which operands are off their alignment, times the size of their elements; `replay`: with nulls
/// for updates.
inline results run_on_host(const operator_case& c, std::size_t workspace,
                           const std::function<void(const kernel_args&)>& run,
                           std::size_t shift = 0, bool replay = false) {
  std::vector<guarded> in, out, update;
  std::uint32_t seed = 1;
  const auto place = [&](const operand& o) {
    return shift * (o.what == element::small_bytes ? 1 : 4);
  };
  for (const auto& o : c.inputs) in.emplace_back(o.draw(seed++), place(o));
  for (const auto& o : c.updates) update.emplace_back(o.draw(seed++), place(o));
  for (const auto& o : c.outputs) out.emplace_back(o.bytes(), place(o));
  guarded scratch(workspace, 0);
  std::vector<const std::byte*> in_at;
  std::vector<std::byte*> out_at, update_at;
  for (auto& m : in) in_at.push_back(m.data());
  for (auto& m : out) out_at.push_back(m.data());
  for (auto& m : update) update_at.push_back(replay ? nullptr : m.data());
  static thread_pool pool(1);
  run({in_at.data(), out_at.data(), update_at.data(), scratch.data(), replay, 77, pool});
  CHECK(scratch.intact());
  for (auto* all : {&in, &out, &update}) {
    for (auto& m : *all) CHECK(m.intact());
  }
  for (std::size_t i = 0; i < in.size(); ++i)
    CHECK(in[i].copy() == c.inputs[i].draw(std::uint32_t(i) + 1));
  results all;
  for (auto* some : {&out, &update}) {
    for (auto& m : *some) all.push_back(m.copy());
  }
  return all;
}

inline results run_on_cpu(const operator_case& c, bool replay = false) {
  graph g = c.make_graph();
  bind_cpu(g, 1);
  return run_on_host(c, g.nodes[0].workspace, g.nodes[0].run, 0, replay);
}

/// The largest difference of any float, relative to the largest of its tensor; infinite where bytes
/// or words differ.
inline double difference(const operator_case& c, const results& got, const results& expected) {
  double worst = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const operand& o = i < c.outputs.size() ? c.outputs[i] : c.updates[i - c.outputs.size()];
    if (o.what != element::floats) {
      if (got[i] != expected[i]) return std::numeric_limits<double>::infinity();
      continue;
    }
    kernel_testing::floats a(o.count()), b(o.count());
    std::memcpy(a.data(), got[i].data(), o.bytes());
    std::memcpy(b.data(), expected[i].data(), o.bytes());
    worst = std::max(worst, kernel_testing::relative_error(a, b));
  }
  return worst;
}

// Cases of every type, by shape.

inline void add_convolution(std::vector<operator_case>& to, const conv_shape& s) {
  const operand x{{s.n, s.h, s.w, s.c}}, filter{{s.k, s.kh, s.kw, s.c / s.groups}};
  const operand y{{s.n, s.oh(), s.ow(), s.k}};
  std::string text = "convolution";
  for (const int v : {s.n, s.h, s.w, s.c, s.k, s.kh, s.kw, s.stride, s.pad, s.groups}) {
    text += " " + std::to_string(v);
  }
  to.push_back({operator_type::conv_forward, s, text + " forward", {x, filter}, {y}});
  to.push_back({operator_type::conv_backward_data, s, text + " data", {y, filter}, {x}});
  to.push_back({operator_type::conv_backward_filter, s, text + " filter", {x, y}, {filter}});
}

inline void add_batch_norm(std::vector<operator_case>& to, int n, int h, int w, int c) {
  const bn_shape s{std::size_t(n) * std::size_t(h) * std::size_t(w), c};
  const operand x{{n, h, w, c}, element::floats, 0.5f}, dy{{n, h, w, c}}, any{{c}};
  const operand above{{c}, element::floats, 1.5f};
  const std::string text = "batch norm " + std::to_string(s.rows) + " x " + std::to_string(c);
  to.push_back({operator_type::bn_forward,
                s,
                text + " forward",
                {x, above, any},
                {x, any, any},
                {any, above}});
  to.push_back(
      {operator_type::bn_inference, s, text + " inference", {x, above, any, any, above}, {x}});
  to.push_back({operator_type::bn_backward,
                s,
                text + " backward",
                {x, dy, above, any, above},
                {x, any, any}});
  to.push_back({operator_type::bn_relu_forward,
                s,
                text + " with ReLU forward",
                {x, above, any},
                {x, any, any},
                {any, above}});
  to.push_back({operator_type::bn_add_relu_forward,
                s,
                text + " with addition and ReLU forward",
                {x, above, any, dy},
                {x, any, any},
                {any, above}});
  to.push_back({operator_type::bn_add_relu_backward,
                s,
                text + " with addition and ReLU backward",
                {x, dy, dy, above, any, above},
                {x, x, any, any}});
  // Its gate is computed again: where that is a rounding error away from zero, executors may
  // differ. With a mean far below, no element is near it, and all gates are open.
  const operand far{{c}, element::floats, -9.0f};
  to.push_back({operator_type::bn_relu_backward,
                s,
                text + " with ReLU backward",
                {x, dy, above, above, far, above},
                {x, any, any}});
}

inline void add_pool(std::vector<operator_case>& to, const pool_shape& s) {
  const operand x{{s.n, s.h, s.w, s.c}}, y{{s.n, s.oh(), s.ow(), s.c}};
  const operand argmax{{s.n, s.oh(), s.ow(), s.c}, element::small_bytes, 0.0f, s.window * s.window};
  std::string text = "max pooling";
  for (const int v : {s.n, s.h, s.w, s.c, s.window, s.stride, s.pad})
    text += " " + std::to_string(v);
  to.push_back({operator_type::max_pool_forward, s, text + " forward", {x}, {y, argmax}});
  to.push_back({operator_type::max_pool_backward, s, text + " backward", {y, argmax}, {x}});
}

inline void add_average(std::vector<operator_case>& to, const average_shape& s) {
  const operand x{{s.n, s.pixels, 1, s.c}}, y{{s.n, s.c}};
  const std::string text = "average " + std::to_string(s.n) + " x " + std::to_string(s.pixels) +
                           " x " + std::to_string(s.c);
  to.push_back({operator_type::global_avg_pool_forward, s, text + " forward", {x}, {y}});
  to.push_back({operator_type::global_avg_pool_backward, s, text + " backward", {y}, {x}});
}

inline void add_linear(std::vector<operator_case>& to, const linear_shape& s) {
  const operand x{{s.n, s.in}}, y{{s.n, s.out}}, weight{{s.out, s.in}}, bias{{s.out}};
  const operand labels{{s.n}, element::words, 0.0f, s.out}, loss{{1}};
  const std::string text = "linear " + std::to_string(s.n) + " x " + std::to_string(s.in) + " x " +
                           std::to_string(s.out);
  to.push_back({operator_type::linear_forward, s, text + " forward", {x, weight, bias}, {y}});
  to.push_back({operator_type::linear_backward_data, s, text + " data", {y, weight}, {x}});
  to.push_back(
      {operator_type::linear_backward_weight, s, text + " weight", {x, y}, {weight, bias}});
  to.push_back(
      {operator_type::softmax_cross_entropy_forward, s, text + " loss", {y, labels}, {loss, y}});
  to.push_back({operator_type::softmax_cross_entropy_backward,
                s,
                text + " gradient of loss",
                {y, labels},
                {y}});
}

inline void add_elements(std::vector<operator_case>& to, int n) {
  const operand x{{n}}, above{{n}, element::floats, 1.0f};
  const operand mask{{n}, element::small_bytes};
  const element_count s{std::size_t(n)};
  const std::string text = " of " + std::to_string(n);
  to.push_back({operator_type::relu_forward, s, "relu" + text, {x}, {x}});
  to.push_back({operator_type::relu_backward, s, "relu backward" + text, {x, x}, {x}});
  to.push_back({operator_type::add, s, "add" + text, {x, x}, {x}});
  to.push_back({operator_type::sgd_update, s, "sgd" + text, {x}, {}, {x, x}});
  to.push_back({operator_type::adam_update, s, "adam" + text, {x}, {}, {x, x, above}});
  for (const float p : {0.0f, 0.3f, 0.5f, 1.0f}) {
    const dropout_shape d{std::size_t(n), p};
    to.push_back({operator_type::dropout_forward, d, "dropout" + text, {x}, {x, mask}});
    to.push_back({operator_type::dropout_backward, d, "dropout backward" + text, {x, mask}, {x}});
  }
}

/// A convolution that exists; a third has groups, of which some are depthwise.
inline conv_shape random_convolution(delta::test::dice& d) {
  const auto upto = [&](int most) { return 1 + int(d.below(std::uint64_t(most))); };
  conv_shape s{upto(3), upto(11), upto(11), upto(12), upto(12), upto(4), upto(4), upto(3), 0};
  if (d.one_in(3)) s.kh = s.kw = 1;
  if (d.one_in(3)) s.c *= 4, s.k *= 4;
  s.pad = int(d.below(std::uint64_t(std::max(s.kh, s.kw))));
  s.h = std::max(s.h, s.kh);
  s.w = std::max(s.w, s.kw);
  if (d.one_in(3)) {
    s.groups = d.one_in(2) ? s.c : upto(4);
    if (s.groups != s.c) s.c *= s.groups;
    s.k = d.one_in(2) ? s.groups : s.groups * upto(4);
  }
  return s;
}

/// Shapes that were thought of: a single element, a single row, sizes around the launches' widths,
/// and those of real networks made small.
inline std::vector<operator_case> fixed_cases() {
  std::vector<operator_case> all;
  for (const conv_shape& s : {
           conv_shape{1, 1, 1, 1, 1, 1, 1, 1, 0},
           conv_shape{2, 9, 9, 3, 8, 7, 7, 2, 3},
           conv_shape{2, 8, 8, 16, 16, 3, 3, 1, 1},
           conv_shape{2, 8, 8, 16, 16, 3, 3, 2, 1},
           conv_shape{2, 7, 7, 16, 8, 1, 1, 1, 0},
           conv_shape{2, 7, 7, 16, 8, 1, 1, 2, 0},
           conv_shape{1, 6, 5, 8, 8, 1, 1, 1, 1},
           conv_shape{2, 8, 8, 16, 16, 3, 3, 1, 1, 4},
           conv_shape{2, 8, 8, 16, 16, 3, 3, 2, 1, 16},
           conv_shape{2, 5, 6, 7, 7, 5, 5, 1, 2, 7},
           conv_shape{2, 6, 6, 8, 8, 1, 1, 1, 0, 2},
           conv_shape{1, 6, 6, 4, 12, 3, 3, 1, 1, 4},
           conv_shape{3, 5, 4, 5, 3, 2, 3, 3, 0},
           conv_shape{1, 40, 40, 64, 64, 3, 3, 1, 1},
       }) {
    add_convolution(all, s);
  }
  add_batch_norm(all, 1, 1, 1, 4);
  add_batch_norm(all, 1, 1, 3, 5);
  add_batch_norm(all, 2, 5, 7, 33);
  add_batch_norm(all, 3, 16, 16, 64);
  add_batch_norm(all, 4, 33, 31, 8);
  add_batch_norm(all, 8, 64, 64, 3);
  for (const pool_shape& s : {pool_shape{1, 1, 1, 1, 1, 1, 0}, pool_shape{2, 9, 9, 8, 3, 2, 1},
                              pool_shape{2, 8, 8, 5, 2, 2, 0}, pool_shape{1, 7, 5, 12, 3, 1, 1},
                              pool_shape{2, 6, 6, 4, 2, 3, 0}, pool_shape{1, 12, 12, 7, 5, 3, 2}}) {
    add_pool(all, s);
  }
  for (const average_shape& s : {average_shape{1, 1, 1}, average_shape{3, 49, 20},
                                 average_shape{2, 7, 5}, average_shape{1, 1000, 4}}) {
    add_average(all, s);
  }
  for (const linear_shape& s : {linear_shape{1, 1, 1}, linear_shape{4, 20, 10},
                                linear_shape{7, 33, 130}, linear_shape{130, 16, 1000}}) {
    add_linear(all, s);
  }
  for (const int n : {1, 2, 3, 4, 5, 7, 8, 1023, 4096, 4099}) add_elements(all, n);
  return all;
}

/// One of each operator that has a shape of more than a length.
inline std::vector<operator_case> random_cases(std::uint64_t seed) {
  delta::test::dice d(seed);
  const auto upto = [&](int most) { return 1 + int(d.below(std::uint64_t(most))); };
  std::vector<operator_case> all;
  add_convolution(all, random_convolution(d));
  add_batch_norm(all, upto(4), upto(12), upto(12), upto(70));
  pool_shape p{upto(3), upto(10), upto(10), upto(13), upto(4), upto(3), 0};
  p.h = std::max(p.h, p.window);
  p.w = std::max(p.w, p.window);
  p.pad = int(d.below(std::uint64_t(p.window / 2 + 1)));
  add_pool(all, p);
  add_average(all, {upto(4), upto(60), upto(30)});
  add_linear(all, {upto(20), upto(40), upto(300)});
  add_elements(all, upto(3000));
  return all;
}

}  // namespace operator_cases

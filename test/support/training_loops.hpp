// delta tests: random training loops, made from a seed: networks of usual layers, trained,
// evaluated and accumulated as people write it. No bytes: for virtual time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dice.hpp"
#include "step_script.hpp"

namespace delta::test {

/// A loop: passes over one or two networks, and the order in which they come.
struct training_loop {
  struct turn {
    std::size_t pass = 0;
    bool ends = true;  ///< does the program call end_of_step behind it?
  };
  std::vector<std::uint64_t> variables;  ///< parameters and optimizer state, in bytes
  std::vector<action_list> passes;       ///< numbered alike: what one keeps another may use
  std::vector<std::string> names;        ///< of the passes
  std::vector<turn> turns;
  std::string text;  ///< what kind of loop it is
};

/// Writes the passes of one network, forward and back, with what each layer saves for its gradient.
/// Drops follow the last use, as under reference counting.
class network {
 public:
  /// How an evaluation lets its values go.
  enum class letting_go : std::uint8_t { at_last_use, at_the_end };

  network(dice& roll, std::vector<std::uint64_t>& sizes) : sizes_(&sizes) {
    const std::uint64_t width = (64 + roll.below(2048)) << 10;
    const double speed = roll.any(std::vector<double>{0.2, 0.5, 1, 3});
    const auto depth = 3 + roll.below(14);
    adam_ = !roll.one_in(3);
    residual_ = roll.one_in(2);
    for (std::uint64_t i = 0; i < depth; ++i) {
      const std::uint64_t out = std::max<std::uint64_t>(width >> roll.below(3), 4096);
      layer l{.kind = static_cast<layer_kind>(roll.below(4)), .out = out};
      if (l.kind == layer_kind::dense) {
        l.weight = add(std::max<std::uint64_t>(out >> roll.below(5), 512));
        l.workspace = roll.one_in(3) ? out / 2 : 0;
      }
      if (l.kind == layer_kind::norm) l.weight = add(512 + roll.below(4096));
      const double per_byte = l.kind == layer_kind::dense       ? 1.0 + double(roll.below(8))
                              : l.kind == layer_kind::attention ? 2.0
                                                                : 0.15;
      l.cost = 2'000 + std::int64_t(speed * per_byte * double(out) * 0.1);
      layers_.push_back(l);
    }
    if (adam_)
      for (layer& l : layers_)
        if (l.weight >= 0) l.first = add(size(l.weight)), l.second = add(size(l.weight));
    for (layer& l : layers_) l.gradient = -1;
  }
  /// Gradients that outlive a pass: numbered once all variables are.
  void number_gradients() {
    for (layer& l : layers_)
      if (l.weight >= 0) l.gradient = add(size(l.weight));
  }
  /// Without gradients. `scale`: of the batch.
  action_list evaluation(double scale, letting_go how) {
    begin();
    const int batch = make(bytes_of(layers_[0], scale));
    (void)forward(batch, scale);
    return end(how, {});
  }
  /// Forward and back. The gradients stay, added to those of the pass before unless it is the
  /// first.
  action_list micro_batch(double scale, bool first) {
    begin();
    backward(scale, first);
    return end(letting_go::at_last_use, gradients());
  }
  /// The optimizer; gradients go.
  action_list update() {
    begin();
    optimize();
    return end(letting_go::at_last_use, {});
  }
  /// Forward, back and the optimizer.
  action_list training(double scale) {
    begin();
    backward(scale, true);
    optimize();
    return end(letting_go::at_last_use, {});
  }

 private:
  enum class layer_kind : std::uint8_t { dense, norm, pointwise, attention };
  struct layer {
    layer_kind kind = layer_kind::dense;
    std::uint64_t out = 0, workspace = 0;  // bytes, at scale 1
    std::int64_t cost = 0;                 // ns, at scale 1
    int weight = -1, first = -1, second = -1, gradient = -1;
  };
  struct saved {
    int in, out, extra;
  };

  [[nodiscard]] std::uint64_t size(int v) const { return (*sizes_)[std::size_t(v)]; }
  int add(std::uint64_t n) { return sizes_->push_back(n), int(sizes_->size()) - 1; }
  static std::uint64_t bytes_of(const layer& l, double scale) {
    return std::max<std::uint64_t>(std::uint64_t(scale * double(l.out)), 64);
  }
  static std::int64_t time_of(double ns, double scale) {
    return std::max<std::int64_t>(std::int64_t(scale * ns), 500);
  }
  void begin() { acts_.clear(); }
  int make(std::uint64_t n) {
    acts_.push_back({.what = action_list::kind::make, .outputs = {add(n)}});
    return acts_.back().outputs[0];
  }
  void operate(std::vector<int> inputs, std::vector<int> outputs, std::int64_t cost,
               std::uint64_t workspace = 0, std::vector<int> updates = {}) {
    acts_.push_back({.inputs = std::move(inputs),
                     .updates = std::move(updates),
                     .outputs = std::move(outputs),
                     .cost = cost,
                     .workspace = workspace});
  }
  std::vector<saved> forward(int x, double scale) {
    std::vector<saved> all;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const layer& l = layers_[i];
      saved s{x, add(bytes_of(l, scale)), -1};
      std::vector<int> inputs{x}, outputs{s.out};
      if (l.weight >= 0) inputs.push_back(l.weight);
      if (l.kind == layer_kind::norm) s.extra = add(2048);
      if (l.kind == layer_kind::attention) s.extra = add(bytes_of(l, scale) / 2 + 64);
      if (s.extra >= 0) outputs.push_back(s.extra);
      if (residual_ && i % 4 == 3) inputs.push_back(all[i - 2].out);
      const auto space = std::uint64_t(scale * double(l.workspace));
      operate(std::move(inputs), std::move(outputs), time_of(double(l.cost), scale), space);
      all.push_back(s), x = s.out;
    }
    return all;
  }
  void backward(double scale, bool first) {
    const int batch = make(bytes_of(layers_[0], scale));
    const std::vector<saved> all = forward(batch, scale);
    int d = add(bytes_of(layers_.back(), scale));
    operate({all.back().out}, {d}, 2'000);
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const layer& l = layers_[i];
      const saved& s = all[i];
      std::vector<int> inputs{d, l.kind == layer_kind::pointwise ? s.out : s.in}, outputs;
      if (l.weight >= 0) inputs.push_back(l.weight);
      if (s.extra >= 0) inputs.push_back(s.extra);
      if (i > 0) outputs.push_back(add(bytes_of(layers_[i - 1], scale)));
      const int next = i > 0 ? outputs[0] : -1;
      const int own = l.weight < 0 ? -1 : first ? l.gradient : add(size(l.weight));
      if (own >= 0) outputs.push_back(own);
      if (outputs.empty()) break;
      const auto space = std::uint64_t(scale * double(l.workspace));
      operate(std::move(inputs), std::move(outputs), time_of(2.0 * double(l.cost), scale), space);
      if (own >= 0 && !first) operate({own}, {}, 1'000, 0, {l.gradient});
      d = next;
    }
  }
  void optimize() {
    for (const layer& l : layers_) {
      if (l.weight < 0) continue;
      std::vector<int> updates{l.weight};
      if (adam_) updates.push_back(l.first), updates.push_back(l.second);
      operate({l.gradient}, {}, 1'000 + std::int64_t(size(l.weight) / 100), 0, std::move(updates));
    }
  }
  [[nodiscard]] std::vector<int> gradients() const {
    std::vector<int> all;
    for (const layer& l : layers_)
      if (l.gradient >= 0) all.push_back(l.gradient);
    return all;
  }
  // The pass with its drops: of all that it touches but variables and `kept`.
  action_list end(letting_go how, const std::vector<int>& kept) {
    using kind = action_list::kind;
    std::vector<std::size_t> last(sizes_->size(), 0);
    std::vector<int> seen;
    const auto touch = [&](int v, std::size_t at) {
      if (v < variables_end()) return;
      if (std::ranges::find(kept, v) != kept.end()) return;
      if (last[std::size_t(v)] == 0) seen.push_back(v);
      last[std::size_t(v)] = (how == letting_go::at_the_end ? acts_.size() - 1 : at) + 1;
    };
    for (std::size_t i = 0; i < acts_.size(); ++i)
      for (const auto* list : {&acts_[i].inputs, &acts_[i].outputs})
        for (const int v : *list) touch(v, i);
    action_list made;
    for (std::size_t i = 0; i < acts_.size(); ++i) {
      made.acts.push_back(acts_[i]);
      for (const int v : seen)
        if (last[std::size_t(v)] == i + 1)
          made.acts.push_back({.what = kind::drop, .outputs = {v}});
    }
    return made;
  }
  [[nodiscard]] int variables_end() const {
    int end = 0;
    for (const layer& l : layers_) end = std::max({end, l.weight + 1, l.second + 1});
    return end;
  }

  std::vector<std::uint64_t>* sizes_;
  std::vector<layer> layers_;
  std::vector<action_list::act> acts_;
  bool adam_ = true, residual_ = false;
};

/// A loop as people write it: plain, with evaluation passes, two networks by turns, gradients
/// accumulated, batches of several lengths, of lengths that grow, or with a small last one.
inline training_loop random_training_loop(std::uint64_t seed) {
  dice roll(seed);
  training_loop loop;
  std::vector<std::uint64_t> sizes;
  const auto kind = roll.below(7);
  std::vector<network> nets;
  for (int i = 0; i < (kind == 2 ? 2 : 1); ++i) nets.emplace_back(roll, sizes);
  loop.variables = sizes;
  for (network& n : nets) n.number_gradients();
  const auto pass = [&](std::string name, action_list a) {
    loop.passes.push_back(std::move(a)), loop.names.push_back(std::move(name));
    return loop.passes.size() - 1;
  };
  const auto how =
      roll.one_in(2) ? network::letting_go::at_last_use : network::letting_go::at_the_end;
  const bool ends_evaluations = !roll.one_in(3);
  const std::size_t evaluate =
      pass("evaluation", nets[0].evaluation(roll.one_in(3) ? 2.0 : 1.0, how));
  const auto evaluations = [&](std::uint64_t n) {
    for (; n-- > 0;) loop.turns.push_back({evaluate, ends_evaluations});
  };
  constexpr int steps = 12;
  const auto each = 1 + roll.below(5), passes = roll.below(6);
  const bool behind = roll.one_in(2);
  const auto train = [&](int step, const auto& body) {
    const bool now = kind != 0 && std::uint64_t(step) % each == (behind ? each - 1 : 0);
    if (now && !behind) evaluations(passes);
    body();
    if (now && behind) evaluations(passes);
  };
  switch (kind) {
    case 0:
    case 1: {
      loop.text = kind == 0 ? "training alone" : "evaluation";
      const std::size_t t = pass("training", nets[0].training(1));
      for (int i = 0; i < steps; ++i) train(i, [&] { loop.turns.push_back({t}); });
      break;
    }
    case 2: {
      loop.text = "two networks by turns";
      const std::size_t a = pass("first", nets[0].training(1)),
                        b = pass("second", nets[1].training(1));
      const auto more = 1 + roll.below(3);
      const bool one_step = roll.one_in(3);
      for (int i = 0; i < steps; ++i)
        train(i, [&] {
          for (std::uint64_t k = 0; k < more; ++k) loop.turns.push_back({a, !one_step});
          loop.turns.push_back({b});
        });
      break;
    }
    case 3: {
      const auto of = 1 + roll.below(8);
      const bool each_ends = roll.one_in(3);
      loop.text = "gradients of " + std::to_string(of) + " accumulated";
      const std::size_t first = pass("first of some", nets[0].micro_batch(1, true)),
                        later = pass("one more", nets[0].micro_batch(1, false)),
                        update = pass("update", nets[0].update());
      for (int i = 0; i < steps; ++i)
        train(i, [&] {
          for (std::uint64_t k = 0; k < of; ++k)
            loop.turns.push_back({k == 0 ? first : later, each_ends});
          loop.turns.push_back({update});
        });
      break;
    }
    case 4: {
      loop.text = "lengths of five sizes";
      std::vector<std::size_t> lengths;
      for (const double s : {0.4, 0.55, 0.7, 0.85, 1.0})
        lengths.push_back(pass("length " + std::to_string(s), nets[0].training(s)));
      for (int i = 0; i < 2 * steps; ++i)
        train(i, [&] { loop.turns.push_back({roll.any(lengths)}); });
      break;
    }
    case 5: {
      loop.text = "lengths that grow";
      double scale = 0.4;
      std::size_t now = pass("growing", nets[0].training(scale));
      const auto every = 2 + roll.below(4);
      for (int i = 0; i < 2 * steps; ++i) {
        if (i > 0 && std::uint64_t(i) % every == 0 && scale < 1)
          scale += 0.1, now = pass("growing", nets[0].training(scale));
        train(i, [&] { loop.turns.push_back({now}); });
      }
      break;
    }
    default: {
      loop.text = "a small last batch";
      const std::size_t whole = pass("whole", nets[0].training(1)),
                        last = pass("last", nets[0].training(0.3));
      const auto epoch = 3 + roll.below(4);
      for (int i = 0; i < 2 * steps; ++i)
        train(i, [&] {
          loop.turns.push_back({std::uint64_t(i) % epoch == epoch - 1 ? last : whole});
        });
    }
  }
  // One pass without gradients somewhere.
  if (roll.one_in(4))
    loop.turns.insert(loop.turns.begin() + std::ptrdiff_t(roll.below(loop.turns.size())),
                      {evaluate, true});
  for (action_list& a : loop.passes) a.sizes = sizes;
  return loop;
}

}  // namespace delta::test

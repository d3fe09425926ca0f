// delta tests: a history that is told of programs step by step, without a manager; and what it
// should answer, read off the program itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "delta/detail/history/step_recorder.hpp"
#include "random_program.hpp"

namespace delta::test {

/// One step of a program, which can be repeated: values are numbered as in `program`.
struct step_script {
  program what;
  std::vector<std::string> names;  ///< of the operators

  [[nodiscard]] std::size_t length() const { return what.ops.size(); }
  /// Does the operator read or update the value?
  [[nodiscard]] bool uses(std::size_t op, int value) const {
    const program::op& o = what.ops[op];
    return std::ranges::find(o.inputs, value) != o.inputs.end() ||
           std::ranges::find(o.updates, value) != o.updates.end();
  }
  /// The first operator at or after `from` that uses the value; the length if there is none.
  [[nodiscard]] std::size_t use_from(std::size_t from, int value) const {
    while (from < length() && !uses(from, value)) ++from;
    return from;
  }
  [[nodiscard]] bool drops(int value) const {
    return std::ranges::any_of(what.ops, [&](const program::op& o) {
      return std::ranges::find(o.drops, value) != o.drops.end();
    });
  }
  /// ns of the operators from one to before another.
  [[nodiscard]] double time(std::size_t from, std::size_t to) const {
    double sum = 0;
    for (; from < to; ++from) sum += static_cast<double>(what.ops[from].cost);
    return sum;
  }
  /// The most that the program holds at once, in bytes, besides `others`.
  [[nodiscard]] double peak(double others = 0) const {
    std::map<int, double> live;
    int next = 0;
    for (const auto n : what.constants) live[next++] = n;
    for (const auto n : what.variables) live[next++] = n;
    double most = 0;
    for (const program::op& o : what.ops) {
      for (const auto n : o.outputs) live[next++] = n;
      double sum = others + o.workspace;
      for (const auto& [v, n] : live) sum += n;
      most = std::max(most, sum);
      for (const int v : o.drops) live.erase(v);
    }
    return most;
  }
};

/// A random step, all of whose operators are called after `dialect`: scripts of two dialects have
/// no operator in common.
inline step_script random_script(std::uint64_t seed, const std::string& dialect = "",
                                 const program_shape& shape = {.operators = 24, .steps = 1}) {
  step_script s{random_program(seed, shape), {}};
  for (const program::op& o : s.what.ops)
    s.names.push_back(dialect + std::to_string(mix(seed, std::uint64_t(o.cost)) % 4));
  return s;
}

/// Tells a history what a manager would tell it, with ids that are used again.
class history_player {
 public:
  detail::step_recorder past;

  /// The sources of a script, which live until the player does.
  std::vector<tensor_id> sources_of(const step_script& s, std::uint64_t scale = 1) {
    std::vector<tensor_id> made;
    for (const auto n : s.what.constants) made.push_back(make(n * scale));
    for (const auto n : s.what.variables) made.push_back(make(n * scale));
    return made;
  }
  tensor_id make(std::uint64_t size) {
    std::uint32_t row = 0;
    while (sizes_.contains(row)) ++row;
    sizes_[row] = size;
    past.created(static_cast<tensor_id>(row), bytes{size}, false, false);
    return static_cast<tensor_id>(row);
  }
  void drop(tensor_id t) {
    past.dropped(t, table{&sizes_}[t]);
    sizes_.erase(index(t));
  }
  /// One operator on tensors; gives its outputs.
  std::vector<tensor_id> operate(const std::string& name, const std::vector<tensor_id>& inputs,
                                 const std::vector<tensor_id>& updates,
                                 const std::vector<std::uint64_t>& outputs,
                                 std::uint64_t workspace = 0, double cost = 1) {
    begin(name, inputs, updates);
    return end(outputs, workspace, cost);
  }
  void begin(const std::string& name, const std::vector<tensor_id>& inputs,
             const std::vector<tensor_id>& updates) {
    std::vector<tensor_id> touched(inputs);
    touched.insert(touched.end(), updates.begin(), updates.end());
    past.begin(name, touched, inputs.size(), {}, table{&sizes_});
  }
  std::vector<tensor_id> end(const std::vector<std::uint64_t>& outputs, std::uint64_t workspace = 0,
                             double cost = 1) {
    std::vector<tensor_id> made;
    for (const std::uint64_t n : outputs) made.push_back(make(n));
    past.end(made, bytes{workspace}, trait::pure, cost, table{&sizes_});
    clock_ += cost;
    return made;
  }
  void end_of_step() {
    past.end_of_step(nanoseconds{static_cast<std::int64_t>(clock_)}, table{});
    // What outlives its step is dropped early in the next one.
    left_.clear();
    for (const auto& [value, t] : living)
      if (value >= sources_) left_.push_back(t);
    living.clear();
  }
  void drop_what_is_left() {
    for (const tensor_id t : left_) drop(t);
    left_.clear();
  }
  /// The tensors of the step under way, by value.
  std::map<int, tensor_id> living;

  /// Operators [from, to) of a step. `check(done, running)`: after an operator has begun, and after
  /// it has ended and what it drops is gone.
  template <class Check>
  void play(const step_script& s, const std::vector<tensor_id>& sources, std::uint64_t scale,
            const Check& check, std::size_t from = 0, std::size_t to = ~std::size_t{}) {
    if (from == 0) {
      living.clear();
      sources_ = s.what.sources();
      for (int v = 0; v < sources_; ++v) living[v] = sources[std::size_t(v)];
      next_ = sources_;
    }
    for (std::size_t i = from; i < std::min(to, s.length()); ++i) {
      const program::op& o = s.what.ops[i];
      const auto list = [&](const std::vector<int>& values) {
        std::vector<tensor_id> ids;
        for (const int v : values) ids.push_back(living.at(v));
        return ids;
      };
      begin(s.names[i], list(o.inputs), list(o.updates));
      check(i + 1, true);
      std::vector<std::uint64_t> scaled;
      for (const auto n : o.outputs) scaled.push_back(n * scale);
      for (const tensor_id t :
           end(scaled, o.workspace * scale, static_cast<double>(o.cost) * double(scale)))
        living[next_++] = t;
      for (const int v : o.drops) drop(living.at(v)), living.erase(v);
      if (i == 0) drop_what_is_left();
      check(i + 1, false);
    }
  }
  void play(const step_script& s, const std::vector<tensor_id>& sources, std::uint64_t scale = 1) {
    play(s, sources, scale, [](std::size_t, bool) {});
    end_of_step();
  }

 private:
  struct table {
    detail::tensor_record operator[](tensor_id t) const {
      detail::tensor_record r;
      r.footprint = bytes{of->at(index(t))};
      return r;
    }
    // What is held without being touched is left out.
    static std::size_t tensor_slots() { return 0; }
    const std::map<std::uint32_t, std::uint64_t>* of = nullptr;
  };
  std::map<std::uint32_t, std::uint64_t> sizes_;  // of living tensors
  std::vector<tensor_id> left_;
  int sources_ = 0, next_ = 0;
  double clock_ = 0;
};

/// What a history that knows the script should say of a value when `done` operators have begun or
/// ended, of which the last is running or not. `after`: the script of the next step, which has the
/// same sources.
inline forecast truth(const step_script& s, int value, std::size_t done, bool running,
                      const step_script& after) {
  const std::size_t now = running ? done - 1 : done, use = s.use_from(done, value);
  const auto known = [](std::size_t position, double in) {
    return forecast{forecast::kind::known, static_cast<std::uint32_t>(position), in};
  };
  if (use < s.length()) return known(use, s.time(now, use));
  if (s.drops(value)) return {forecast::kind::never, 0, 0};
  const std::size_t first = after.use_from(0, value);
  // What outlives its step is not used in the next one; a source may be used by neither.
  if (value >= s.what.sources() || first == after.length()) return {};
  return known(s.length() + first, s.time(now, s.length()) + after.time(0, first));
}

}  // namespace delta::test

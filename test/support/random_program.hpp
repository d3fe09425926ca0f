// Random training-like programs, made from a seed, and what they compute: every tensor's contents
// are a function of its operator's inputs, so a byte that was lost, stale or torn shows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "delta/manager.hpp"

namespace delta::test {

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + (b ^ (b >> 29)) * 0xbf58476d1ce4e5b9u + 1;
  return x ^ (x >> 31);
}
/// Contents of a tensor that stand for `value`: every byte depends on it.
inline void expand(std::uint64_t value, std::span<std::byte> to) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = std::byte(mix(value, i) >> 24);
}
inline std::uint64_t hash(std::span<const std::byte> data) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const std::byte b : data) h = (h ^ std::uint64_t(b)) * 0x100000001b3u;
  return h;
}

struct program {
  struct op {
    std::vector<int> inputs{}, updates{};
    std::vector<std::uint32_t> outputs{};  ///< sizes; they become the next values
    std::uint32_t workspace = 0;
    trait traits = trait::pure;
    std::int64_t cost = 1;
    std::vector<int> drops{};  ///< after it
    bool backward = false;     ///< mark before it
    bool step = false;         ///< end_of_step after it
  };
  std::vector<std::uint32_t> constants, variables;  ///< sizes; values 0, 1, ... in this order
  std::vector<op> ops;

  [[nodiscard]] int sources() const { return int(constants.size() + variables.size()); }
};

struct program_shape {
  int operators = 24;
  int steps = 2;
  std::uint32_t largest = 64;  ///< bytes of a tensor, at least 8
  bool updates = true, effects = true, several_outputs = true;
  bool updates_made = false;  ///< also in place: what operators made, and what is read beside
};

/// A program that drops everything it makes, mostly in backward order.
inline program random_program(std::uint64_t seed, const program_shape& shape = {}) {
  std::mt19937_64 rng(seed);
  const auto below = [&](std::uint64_t n) { return n == 0 ? 0 : rng() % n; };
  const auto size = [&] { return std::uint32_t(8 + below(shape.largest - 7)); };
  program p;
  for (std::uint64_t i = below(3); i-- > 0;) p.constants.push_back(size());
  for (std::uint64_t i = 1 + below(4); i-- > 0;) p.variables.push_back(size());
  int next = p.sources();
  const int first_variable = int(p.constants.size());
  for (int step = 0; step < shape.steps; ++step) {
    std::vector<int> live;
    const int n = shape.operators / 2 + int(below(std::uint64_t(shape.operators) / 2 + 1));
    for (int i = 0; i < n; ++i) {
      program::op o;
      o.backward = i == n / 2;
      o.cost = 1 + std::int64_t(below(20));
      o.workspace = below(3) == 0 ? size() : 0;
      const auto pick = [&] {
        if (!live.empty() && below(4) != 0) {  // the second half looks back, newest first
          const auto near = std::min<std::uint64_t>(live.size(), 4);
          return i < n / 2 ? live[live.size() - 1 - below(near)] : live[below(live.size())];
        }
        return int(below(std::uint64_t(p.sources())));
      };
      for (std::uint64_t k = below(4); k-- > 0;) o.inputs.push_back(pick());
      if (shape.updates && below(6) == 0) {
        const int v = first_variable + int(below(p.variables.size()));
        o.updates.push_back(v);
        std::erase(o.inputs, v);
      }
      if (shape.updates_made && !live.empty() && below(3) == 0) {
        o.updates.push_back(live[below(live.size())]);
        if (below(3) == 0) o.inputs.push_back(o.updates.back());
      }
      if (o.updates.empty() || below(2) == 0)
        for (std::uint64_t k = shape.several_outputs ? 1 + below(3) / 2 : 1; k-- > 0;)
          o.outputs.push_back(size());
      if (!o.updates.empty() && !o.outputs.empty() && shape.effects && below(2) == 0)
        o.traits = o.traits | trait::effect_once;
      if (below(5) == 0) o.traits = o.traits | trait::random;
      for (std::size_t k = 0; k < o.outputs.size(); ++k) live.push_back(next++);
      for (std::uint64_t k = i < n / 2 ? (below(5) == 0 ? 1u : 0u) : below(3); k-- > 0;) {
        if (live.size() < 2) break;
        const auto at = live.begin() + std::ptrdiff_t(i < n / 2 ? below(live.size() - 1)
                                                                : live.size() - 1 - below(2));
        o.drops.push_back(*at);
        live.erase(at);
      }
      if (i + 1 == n) {
        if (below(2) == 0 && !live.empty()) live.erase(live.begin());  // it lives on as a variable
        o.drops.insert(o.drops.end(), live.begin(), live.end());
        live.clear();
        o.step = true;
      }
      p.ops.push_back(std::move(o));
    }
  }
  return p;
}

/// Programs on the same sources one behind the other: at each turn the one of that number. What
/// outlives a turn is dropped after the first operator of the next.
inline program in_turns(std::span<const program> kinds, std::span<const std::size_t> turns) {
  program all{kinds.front().constants, kinds.front().variables, {}};
  int next = all.sources();
  std::vector<int> left;  // of the turn before
  for (const std::size_t turn : turns) {
    const program& p = kinds[turn];
    const int moved = next - p.sources();
    std::vector<int> drops = std::exchange(left, {});
    for (program::op o : p.ops) {
      for (auto* list : {&o.inputs, &o.updates, &o.drops})
        for (int& v : *list) v += v < p.sources() ? 0 : moved;
      for (std::size_t k = 0; k < o.outputs.size(); ++k) left.push_back(next++);
      for (const int v : o.drops) std::erase(left, v);
      o.drops.insert(o.drops.end(), drops.begin(), drops.end());
      drops.clear();
      all.ops.push_back(std::move(o));
    }
  }
  return all;
}

/// The same steps so many times.
inline program repeated(const program& p, std::size_t times) {
  return in_turns({&p, 1}, std::vector<std::size_t>(times));
}

/// What every value holds at the end of the program (those never dropped), by plain evaluation.
inline std::map<int, std::uint64_t> evaluate(const program& p) {
  std::map<int, std::vector<std::byte>> live;
  int next = 0;
  const auto make = [&](int id, std::size_t size, std::uint64_t value) {
    live[id].resize(size);
    expand(value, live[id]);
  };
  for (const auto n : p.constants) make(next, n, std::uint64_t(next)), ++next;
  for (const auto n : p.variables) make(next, n, std::uint64_t(next)), ++next;
  std::uint64_t sequence = 0;
  for (const program::op& o : p.ops) {
    std::uint64_t h = ++sequence;
    for (const int v : o.inputs) h = mix(h, hash(live.at(v)));
    const bool reads_updates = !has(o.traits, trait::effect_once);
    if (reads_updates)
      for (const int v : o.updates) h = mix(h, hash(live.at(v)));
    for (std::size_t k = 0; k < o.outputs.size(); ++k) make(next++, o.outputs[k], mix(h, k));
    for (const int v : o.updates) expand(mix(h, hash(live.at(v))), live.at(v));
    for (const int v : o.drops) live.erase(v);
  }
  std::map<int, std::uint64_t> result;
  for (const auto& [v, data] : live) result[v] = hash(data);
  return result;
}

/// The largest operator: inputs, outputs, updates, workspace, and all constants.
inline bytes largest_footprint(const program& p, std::uint64_t granularity = 1) {
  std::vector<std::uint32_t> sizes(p.constants);
  sizes.insert(sizes.end(), p.variables.begin(), p.variables.end());
  for (const auto& o : p.ops) sizes.insert(sizes.end(), o.outputs.begin(), o.outputs.end());
  const auto rounded = [&](std::uint64_t n) { return round_up(bytes{n}, granularity).count; };
  std::uint64_t pinned = 0, most = 0;
  for (const auto n : p.constants) pinned += rounded(n);
  for (const auto n : p.variables) most = std::max(most, rounded(n));
  for (const auto& o : p.ops) {
    std::vector<int> touched(o.inputs);
    touched.insert(touched.end(), o.updates.begin(), o.updates.end());
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    std::uint64_t sum = rounded(o.workspace);
    for (const int v : touched)
      if (v >= int(p.constants.size())) sum += rounded(sizes[std::size_t(v)]);
    for (const auto n : o.outputs) sum += rounded(n);
    most = std::max(most, sum);
  }
  return bytes{pinned + most};
}

/// Runs kernels at once: for storages whose compute is done at return.
struct run_now {
  template <class F>
  void operator()(std::span<const std::span<std::byte>>, std::span<const std::span<std::byte>>,
                  F&& body) const {
    body();
  }
};

/// The host touches the bytes of a tensor where they are: `f` gets them.
struct touch_directly {
  template <class F>
  void operator()(std::byte* at, std::size_t, bool /*writing*/, F&& f) const {
    f(at);
  }
};

/// How operators are stated: with all their lists; begun and ended, with sizes on the way; with a
/// look at the addresses before each size is known; begun and ended, but some write what they make
/// only behind their end, while it is held, as collectives do; and whole, while the program looks
/// at tensors between them, or writes variables anew, and has some twice, as views.
enum class manner : std::uint8_t { whole, open, looking, late, holding };
inline constexpr std::size_t manners = 5;

/// Runs one operator, either way.
template <class Manager, class Kernel>
void run_operator(Manager& m, const operation_span& op, std::span<tensor_id> ids,
                  const Kernel& kernel, manner how) {
  if (how == manner::whole || how == manner::holding) return m.run(op, ids, kernel);
  operation_span known = op;
  known.outputs = {};
  known.workspace = {};
  auto open = m.begin(known);
  for (const bytes size : op.outputs) {
    if (how == manner::looking) (void)open.arguments();
    open.allocate(size);
  }
  if (op.workspace.count > 0) open.workspace(op.workspace);
  call arguments = open.arguments();
  kernel(arguments);
  if (has(op.traits, trait::asynchronous)) return open.end(ids);
  open.end(ids, kernel);
}

/// Tensors that are held between operators: in the manner `late` what operators have made, and has
/// yet to be written; in the manner `holding` what must not change meanwhile.
template <class Manager>
class held_tensors {
 public:
  using contents = std::shared_ptr<std::vector<std::byte>>;

  void await(Manager& m, int value, tensor_id t, contents result) {
    held_.push_back({value, m.acquire(t), std::move(result), true});
  }
  /// Looks at its bytes; a variable has the same written into it when it is let go.
  template <class Touch>
  void watch(Manager& m, int value, tensor_id t, std::size_t size, bool writes,
             const Touch& touch) {
    auto view = m.acquire(t, writes ? access::write : access::read);
    if (view.data() == nullptr) return;  // the storage keeps no bytes
    auto seen = std::make_shared<std::vector<std::byte>>(size);
    touch(view.data(), size, false, [&](std::byte* at) { std::copy_n(at, size, seen->data()); });
    held_.push_back({value, std::move(view), std::move(seen), writes});
  }
  /// Another operator begins: what it changes or drops is let go, where the host writes also what
  /// it reads, and all before the third.
  template <class Touch>
  void before(const program::op& o, const Touch& touch) {
    const auto uses = [&](const held& h) {
      return (h.writes && std::ranges::count(o.inputs, h.value) > 0) ||
             std::ranges::count(o.updates, h.value) + std::ranges::count(o.drops, h.value) > 0;
    };
    if (o.step || ++operators_ % 3 == 0 || std::ranges::any_of(held_, uses)) let_go(touch);
  }
  /// Throws where bytes have changed that had not to.
  template <class Touch>
  void let_go(const Touch& touch) {
    for (const held& h : held_)
      if (std::byte* const to = h.view.data(); to != nullptr)
        touch(to, h.bytes->size(), h.writes, [&](std::byte* at) {
          if (h.writes) return void(std::ranges::copy(*h.bytes, at));
          if (!std::equal(h.bytes->begin(), h.bytes->end(), at))
            throw std::runtime_error("the bytes of a held tensor have changed");
        });
    held_.clear();
  }

 private:
  struct held {
    int value;
    decltype(std::declval<Manager&>().acquire(tensor_id{})) view;
    contents bytes;
    bool writes;
  };
  std::vector<held> held_;
  std::size_t operators_ = 0;
};

/// Runs the program through a manager. `launch(reads, writes, body)` queues a kernel's body.
/// `check()` is called after every operator; `touch` as touch_directly. Gives the contents left at
/// the end, as `evaluate` does (none where the storage keeps no bytes).
template <class Manager, class Launch, class Check, class Touch = touch_directly>
std::map<int, std::uint64_t> run_program(Manager& m, const program& p, const Launch& launch,
                                         const Check& check, manner how = manner::whole,
                                         const Touch& touch = {}) {
  std::vector<tensor_id> ids;
  std::map<int, std::uint32_t> live;
  const auto source = [&](std::uint32_t size, bool pinned) {
    const tensor_id t = pinned ? m.constant(bytes{size}) : m.variable(bytes{size});
    if (auto view = m.acquire(t, access::write); view.data() != nullptr)
      touch(view.data(), size, true, [&](std::byte* at) { expand(ids.size(), {at, size}); });
    live[int(ids.size())] = size;
    ids.push_back(t);
  };
  for (const auto n : p.constants) source(n, true);
  for (const auto n : p.variables) source(n, false);
  std::vector<tensor_id> inputs, updates, outputs;
  std::vector<bytes> sizes;
  held_tensors<Manager> held;
  std::vector<tensor_id> views;  // one reference more than the program has
  std::size_t number = 0;
  const auto hold_some = [&](const program::op& o) {
    if (++number % 4 == 0 && !views.empty()) m.drop(views.front()), views.erase(views.begin());
    const auto watch = [&](int v, bool writes) {
      if (const auto it = live.find(v); it != live.end())
        held.watch(m, v, ids[std::size_t(v)], it->second, writes, touch);
    };
    const int last = int(ids.size()) - 1;
    if (number % 3 == 1) watch(o.outputs.empty() ? 0 : last, false);
    if (number % 5 == 1 && !o.inputs.empty()) watch(o.inputs.back(), false);
    if (number % 7 == 1 && !p.variables.empty()) watch(p.sources() - 1, true);
    if (number % 6 == 1 && !o.outputs.empty() && live.contains(last))
      views.push_back(m.share(ids.back()));
  };
  for (const program::op& o : p.ops) {
    held.before(o, touch);
    if (o.backward) m.backward();
    inputs.clear(), updates.clear(), sizes.clear();
    std::vector<std::uint32_t> in_sizes, update_sizes;
    for (const int v : o.inputs)
      inputs.push_back(ids[std::size_t(v)]), in_sizes.push_back(live.at(v));
    for (const int v : o.updates)
      updates.push_back(ids[std::size_t(v)]), update_sizes.push_back(live.at(v));
    for (const auto n : o.outputs) sizes.emplace_back(n);
    outputs.resize(sizes.size());
    const auto* spec = &o;
    trait traits = o.traits;
    std::vector<typename held_tensors<Manager>::contents> later;
    const bool stays =
        !o.step && std::ranges::all_of(o.drops, [&](int v) { return v < int(ids.size()); });
    if (how == manner::late && stays && updates.empty() && ids.size() % 2 == 0) {
      traits = traits | trait::never_replay | trait::asynchronous;
      for (const auto n : o.outputs) later.push_back(std::make_shared<std::vector<std::byte>>(n));
    }
    const auto kernel = [spec, in_sizes, update_sizes, launch, later](call& c) {
      std::vector<std::span<std::byte>> reads, writes, changed;
      for (std::size_t i = 0; i < in_sizes.size(); ++i)
        if (c.in(i) != nullptr) reads.emplace_back(c.in(i), in_sizes[i]);
      for (std::size_t i = 0; i < spec->outputs.size(); ++i)
        if (c.out(i) != nullptr) writes.emplace_back(c.out(i), spec->outputs[i]);
      for (std::size_t i = 0; i < update_sizes.size(); ++i)
        if (c.update(i) != nullptr) changed.emplace_back(c.update(i), update_sizes[i]);
      if (writes.size() != spec->outputs.size() || reads.size() != in_sizes.size()) return;
      std::vector<std::span<std::byte>> all(writes);
      all.insert(all.end(), changed.begin(), changed.end());
      if (c.workspace() != nullptr) all.emplace_back(c.workspace(), spec->workspace);
      launch(
          reads, all,
          [reads, writes, changed, spec, later, sequence = c.sequence(), scratch = c.workspace()] {
            std::uint64_t h = sequence;
            for (const auto& r : reads) h = mix(h, hash(r));
            if (!has(spec->traits, trait::effect_once))
              for (const auto& u : changed) h = mix(h, hash(u));
            if (scratch != nullptr) expand(~h, {scratch, spec->workspace});
            for (std::size_t k = 0; k < writes.size(); ++k)
              expand(mix(h, k), later.empty() ? writes[k] : std::span(*later[k]));
            for (const auto& u : changed) expand(mix(h, hash(u)), u);
          });
    };
    run_operator(m,
                 operation_span{.inputs = inputs,
                                .outputs = sizes,
                                .updates = updates,
                                .workspace = bytes{o.workspace},
                                .traits = traits,
                                .cost = nanoseconds{o.cost},
                                .name = "random operator"},
                 outputs, kernel, how);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      live[int(ids.size())] = o.outputs[k];
      ids.push_back(outputs[k]);
    }
    for (std::size_t k = 0; k < later.size(); ++k)
      held.await(m, int(ids.size() - outputs.size() + k), outputs[k], later[k]);
    for (const int v : o.drops) {
      m.drop(ids[std::size_t(v)]);
      live.erase(v);
    }
    if (how == manner::holding && !o.step) hold_some(o);
    if (o.step) m.end_of_step();
    check();
  }
  held.let_go(touch);
  for (const tensor_id t : views) m.drop(t);
  std::map<int, std::uint64_t> result;
  for (const auto& [v, size] : live)
    if (const auto view = m.acquire(ids[std::size_t(v)]); view.data() != nullptr)
      touch(view.data(), size, false, [&](std::byte* at) { result[v] = hash({at, size}); });
  return result;
}

}  // namespace delta::test

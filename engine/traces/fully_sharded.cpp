#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "traces/collectives.hpp"
#include "traces/trace_builder.hpp"

namespace delta::detail {
namespace {

/// Parameters that are gathered together, or gradients that are scattered together.
struct unit {
  ids tensors{};  // of the old trace
  bytes size{};
};
/// Where a pass reads a unit: its first and last operation. none: it does not.
struct reads {
  std::uint32_t first = trace::none, last = trace::none;
};
enum pass : std::uint8_t { forward, backward };

/// The step of one rank in the making.
class sharded_step {
 public:
  sharded_step(const trace& t, const rank_group& on)
      : trace_(&t), group_(&on), made_(t), last_(t.gradients.back().after) {
    unit_of_.assign(t.tensors.size(), trace::none);
    read_uses();
    for (const pass p : {forward, backward}) {
      ids& order = order_[p];
      for (std::uint32_t u = 0; u < units_.size(); ++u)
        if (uses_[p][u].first != trace::none) order.push_back(u);
      std::ranges::sort(order, {}, [&](std::uint32_t u) { return uses_[p][u].first; });
    }
  }

  trace made() && {
    for (const trace::event& e : trace_->events) {
      if (e.what == trace::kind::run)
        copy_operation(e);
      else if (is_source(e.what) && is_sharded(e.index))
        add_shard(e);
      else
        made_.copy(e);
    }
    return made_.take();
  }

 private:
  [[nodiscard]] std::string_view role(std::uint32_t tensor) const {
    const std::uint32_t name = trace_->tensors[tensor].name;
    return name == trace::none ? std::string_view() : trace_->names[name];
  }
  [[nodiscard]] bool is_parameter(std::uint32_t tensor) const {
    return role(tensor) == "parameters";
  }
  [[nodiscard]] bool is_sharded(std::uint32_t tensor) const {
    return is_parameter(tensor) || role(tensor) == "optimizer state" || role(tensor) == "gradients";
  }
  [[nodiscard]] bytes shard_of(bytes size) const {
    return bytes{part_of(size.count, group_->ranks)};
  }

  /// Units are closed once they have their size, in the order of their first reads.
  void read_uses() {
    pass now = forward;
    bool open = false, known = false;
    const auto unit_with = [&](std::uint32_t p) {
      if (unit_of_[p] != trace::none) return unit_of_[p];
      if (!std::exchange(open, true)) {
        units_.emplace_back();
        for (auto& of_pass : uses_) of_pass.emplace_back();
      }
      unit& u = units_.back();
      u.tensors.push_back(p);
      u.size += trace_->tensors[p].size;
      open = u.size < group_->unit;
      return unit_of_[p] = static_cast<std::uint32_t>(units_.size() - 1);
    };
    for (const trace::event& e : trace_->events) {
      if (e.what == trace::kind::backward) now = backward;
      if (is_source(e.what)) known = known || is_parameter(e.index);
      if (e.what != trace::kind::run || e.index > last_) continue;
      const trace::operation& o = trace_->operations[e.index];
      for (const std::uint32_t p : trace_->updates(o))
        if (is_parameter(p))
          throw std::invalid_argument(
              "a parameter is changed before the last gradient is complete");
      for (const std::uint32_t p : trace_->inputs(o)) {
        if (!is_parameter(p)) continue;
        reads& r = uses_[now][unit_with(p)];
        r.first = std::min(r.first, e.index);
        r.last = e.index;
      }
    }
    if (!known) throw std::invalid_argument("the trace does not name its parameters");
    if (now == forward)
      throw std::invalid_argument("the trace does not say where its backward pass begins");
  }

  void add_shard(const trace::event& e) {
    trace::tensor shard = trace_->tensors[e.index];
    shard.size = shard_of(shard.size);
    made_.rename(e.index, made_.source(e.what, shard));
    if (!is_parameter(e.index)) return;
    shards_.resize(trace_->tensors.size(), trace::none);
    shards_[e.index] = made_.number(e.index);
  }

  void copy_operation(const trace::event& e) {
    if (e.index > last_) return made_.copy(e);
    // Every unit is gathered when the one before it is read first.
    for (const pass p : {forward, backward})
      for (std::size_t k = 0; k < order_[p].size(); ++k) {
        if (uses_[p][order_[p][k]].first != e.index) continue;
        gather(p, k);
        gather(p, k + 1);
      }
    made_.copy(e);
    for (std::uint32_t u = 0; u < units_.size(); ++u) {
      if (uses_[forward][u].last == e.index) let_go(u);
      if (uses_[backward][u].last == e.index) read_.push_back(u);
    }
    for (; gradients_ < trace_->gradients.size() && trace_->gradients[gradients_].after == e.index;
         ++gradients_)
      add_gradient(trace_->gradients[gradients_].tensor);
    if (e.index != last_) return;
    scatter();
    wait_for_scattered();
    made_.divide_by(group_->ranks);
  }

  void gather(pass p, std::size_t k) {
    if (k >= order_[p].size() || k < gathered_[p]) return;
    gathered_[p] = k + 1;
    const unit& u = units_[order_[p][k]];
    ids shards;
    for (const std::uint32_t t : u.tensors) shards.push_back(shards_[t]);
    const std::uint32_t whole = made_.run("all_gather", shard_time(u.size, *group_), shards, {},
                                          trait::asynchronous, {u.size});
    for (const std::uint32_t t : u.tensors) made_.rename(t, whole);
  }
  void let_go(std::uint32_t u) {
    made_.drop(made_.number(units_[u].tensors.front()));
    for (const std::uint32_t t : units_[u].tensors) made_.rename(t, shards_[t]);
  }

  void add_gradient(std::uint32_t g) {
    complete_.tensors.push_back(g);
    complete_.size += trace_->tensors[g].size;
    if (complete_.size >= group_->unit) scatter();
  }
  void scatter() {
    for (const std::uint32_t u : std::exchange(read_, {})) let_go(u);
    if (complete_.tensors.empty()) return;
    wait_for_scattered();
    const ids whole = made_.numbers(complete_.tensors);
    const nanoseconds copy = in_time(complete_.size, group_->copy_rate);
    scattered_ = made_.run("to_bucket", copy, whole, {}, trait::pure, {complete_.size});
    for (const std::uint32_t t : whole) made_.drop(t);
    std::vector<bytes> sizes;
    for (const std::uint32_t g : complete_.tensors)
      sizes.push_back(shard_of(trace_->tensors[g].size));
    std::uint32_t shard = made_.run("reduce_scatter", shard_time(complete_.size, *group_),
                                    {scattered_}, {}, trait::asynchronous, sizes);
    for (const std::uint32_t g : complete_.tensors) made_.rename(g, shard++);
    complete_ = {};
  }
  void wait_for_scattered() {
    if (scattered_ == trace::none) return;
    made_.run("reduced", {}, {scattered_}, {});
    made_.drop(std::exchange(scattered_, trace::none));
  }

  const trace* trace_;
  const rank_group* group_;
  trace_builder made_;
  std::uint32_t last_;  // the operation with which the last gradient is complete
  std::vector<unit> units_;
  ids unit_of_;                             // by tensor
  std::array<std::vector<reads>, 2> uses_;  // by pass and unit
  std::array<ids, 2> order_;                // by pass: units by their first read
  std::array<std::size_t, 2> gathered_{};   // by pass: how many of them were gathered
  ids shards_;                              // by parameter of the old trace, in the new one
  ids read_;                                // units that the backward pass needs no more
  std::size_t gradients_ = 0;               // how many are complete
  unit complete_{};                         // of them, those that are not scattered yet
  std::uint32_t scattered_ = trace::none;   // what is being scattered
};

}  // namespace

trace with_shards(const trace& t, const rank_group& on) {
  for (const trace::tensor& made : t.tensors)
    if (made.view_of != trace::none)
      throw std::invalid_argument("the trace has views, and not storages alone");
  return sharded_step(t, on).made();
}

}  // namespace delta::detail

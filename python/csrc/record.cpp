// delta_torch: the record of a run.
#include "record.hpp"

#include <algorithm>
#include <utility>

#include "tensors.hpp"

namespace delta_torch {

void record::start(const managed_memory& memory, std::size_t budget) {
  for (module_record& m : modules_) {
    std::string name = std::move(m.name);
    m = {};
    m.name = std::move(name);
  }
  samples_.clear();
  addresses_.clear();
  failure_ = {};
  own = {};
  last = {};
  last.budget = budget;
  since_sample_ = skipped_ = by_module_at_ = 0;
  stride_ = 1;
  began_ = memory.now();
}

std::uint32_t record::module(const std::string& name) {
  // Asked once per module of the program.
  const auto at = std::ranges::find(modules_, name, &module_record::name);
  if (at != modules_.end()) return static_cast<std::uint32_t>(at - modules_.begin());
  modules_.emplace_back().name = name;
  return static_cast<std::uint32_t>(modules_.size() - 1);
}

void record::moved(const entry& e, bool here) {
  module_record& m = modules_[e.module];
  if (here) {
    m.here_bytes += e.size;
    return;
  }
  m.here_bytes -= std::min<std::uint64_t>(m.here_bytes, e.size);
  ++m.left;
  m.left_bytes += e.size;
}

void record::forgotten(const entry& e) {
  module_record& m = modules_[e.module];
  if (e.at != nullptr) m.here_bytes -= std::min<std::uint64_t>(m.here_bytes, e.size);
}

void record::replayed(std::uint32_t module, std::int64_t took) {
  ++modules_[module].recomputes;
  modules_[module].recompute_ns += took;
}

void record::address_taken(const char* label) {
  const auto known = std::ranges::find(addresses_, label, &address_count::label);
  if (known != addresses_.end())
    ++known->times;
  else if (addresses_.size() < most_labels)
    addresses_.push_back({label, 1});
  ++own.addresses;
}

void record::failed(std::string message, const delta::memory_report& r, bool thrashes,
                    std::vector<named_holder> holders) {
  failure_ = {thrashes ? "thrash" : "budget_exceeded", std::move(message), r, r.operation,
              std::move(holders)};
}

void record::look(const managed_memory& memory, const delta::counters& counts,
                  bool operator_ended) {
  const std::uint64_t used = memory.used().count;
  since_sample_ = std::max(since_sample_, used);
  if (!operator_ended) return;
  // The peak by module: copied again only where it has grown by a hundredth.
  if (since_sample_ > by_module_at_ + by_module_at_ / 100) {
    by_module_at_ = since_sample_;
    for (module_record& m : modules_) m.at_peak_bytes = m.here_bytes;
  }
  if (++skipped_ < stride_) return;
  skipped_ = 0;
  samples_.push_back({(memory.now() - began_).count(), since_sample_, memory.host_used().count,
                      counts.evictions, counts.offloads, counts.reloads, counts.recomputes});
  since_sample_ = used;
  if (samples_.size() < most_samples) return;
  // Every second one goes; of two neighbours the higher mark stays.
  for (std::size_t i = 0; i < most_samples / 2; ++i) {
    const std::uint64_t most = std::max(samples_[2 * i].used, samples_[2 * i + 1].used);
    samples_[i] = samples_[2 * i + 1];
    samples_[i].used = most;
  }
  samples_.resize(most_samples / 2);
  stride_ *= 2;
}

void record::stop(const managed_memory& memory, const delta::counters& counts, std::size_t tensors,
                  std::size_t records) {
  last.counts = counts;
  last.budget = memory.capacity().count;
  last.host = memory.host_capacity().count;
  last.used = memory.used().count;
  last.host_used = memory.host_used().count;
  last.host_peak = memory.host_peak().count;
  last.peak = memory.peak().count;
  last.tensors = tensors;
  last.records = records;
}

}  // namespace delta_torch

// delta_torch: what a run has done, for its report: counts, memory over time, and by module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "delta/error.hpp"
#include "delta/observer.hpp"
#include "managed_memory.hpp"

namespace delta_torch {

struct entry;

/// Of the operators within one module (bytes, ns).
struct module_record {
  std::string name;
  std::uint64_t made_bytes = 0, at_peak_bytes = 0, left = 0, left_bytes = 0, recomputes = 0;
  std::int64_t recompute_ns = 0;
  std::uint64_t here_bytes = 0;  ///< on the device now
};

/// The run at one instant: ns since its start, bytes taken (the most since the last sample) and of
/// the host, and counts since its start.
struct sample {
  std::int64_t time = 0;
  std::uint64_t used = 0, host_used = 0, evictions = 0, offloads = 0, reloads = 0, recomputes = 0;
};

/// What the program calls a tensor, "1.weight", and what it is: "parameter", "buffer", "optimizer
/// state" or "".
struct tensor_name {
  std::string name;
  const char* role = "";
};

/// Who holds memory, as an error says it.
struct named_holder {
  tensor_name tensor;
  const char* why = "";
};

/// How often the address of a tensor with that label was taken past PyTorch's dispatcher.
struct address_count {
  const char* label;  ///< lives for ever
  std::uint64_t times;
};

/// Memory that was short, as the error said.
struct failure {
  std::string kind, message;
  delta::memory_report report;
  std::string operation;
  std::vector<named_holder> names;  ///< of the holders: the report's labels may be gone
};

/// Under the session's lock `state`.
class record {
 public:
  record() : modules_(1) {}
  /// Begins anew; names of modules stay.
  void start(const managed_memory&, std::size_t budget);
  /// A module's number, the same for the same name; 0 for "".
  std::uint32_t module(const std::string& name);
  [[nodiscard]] const std::string& name_of(std::uint32_t module) const {
    return modules_[module].name;
  }
  void made(std::uint32_t module, std::size_t size) { modules_[module].made_bytes += size; }
  void moved(const entry&, bool here);
  void forgotten(const entry&);
  void replayed(std::uint32_t module, std::int64_t took);
  /// Somebody has taken the address of a tensor that this operator has made. O(labels).
  void address_taken(const char* label);
  void failed(std::string message, const delta::memory_report&, bool thrashes,
              std::vector<named_holder> holders);
  /// After an operator, or an allocation: O(1), seldom O(modules).
  void look(const managed_memory& memory, const delta::counters& counts, bool operator_ended);
  /// The peak by module begins anew.
  void reset_peak() noexcept { by_module_at_ = since_sample_ = 0; }
  /// The run is over: what it has counted stays to be read.
  void stop(const managed_memory&, const delta::counters&, std::size_t tensors,
            std::size_t records);

  [[nodiscard]] const std::vector<module_record>& modules() const noexcept { return modules_; }
  [[nodiscard]] const std::vector<sample>& samples() const noexcept { return samples_; }
  [[nodiscard]] const std::vector<address_count>& addresses() const noexcept { return addresses_; }
  [[nodiscard]] const failure* last_failure() const noexcept {
    return failure_.kind.empty() ? nullptr : &failure_;
  }
  /// What is counted here, as the manager does not.
  struct counts_here {
    std::uint64_t steps = 0, adopted = 0, in_place = 0, updates = 0, not_replayable = 0,
                  refused = 0, replay_copies = 0, addresses = 0;
    /// Collectives that were waited for to make room; and what process groups took beyond the
    /// budget, in bytes, all together.
    std::uint64_t collective_waits = 0, collective_over = 0;
    /// Collectives that have begun, and the bytes of the tensors that they were given.
    std::uint64_t collectives = 0, collective_bytes = 0;
    /// What the program takes at most without a budget (bytes), where that is one's measure; else
    /// 0.
    std::uint64_t unmanaged_peak = 0;
    std::uint64_t tensors_compared = 0;  ///< by their hashes, until the run ended
  } own;
  /// As they were when the run ended.
  struct totals {
    delta::counters counts{};
    std::uint64_t budget = 0, host = 0, used = 0, peak = 0, host_used = 0, host_peak = 0,
                  tensors = 0, records = 0;
  } last;

 private:
  static constexpr std::size_t most_samples = 4096, most_labels = 64;

  std::vector<module_record> modules_;
  std::vector<sample> samples_;
  failure failure_;
  std::vector<address_count> addresses_;
  std::uint64_t since_sample_ = 0, stride_ = 1, skipped_ = 0, by_module_at_ = 0;
  delta::nanoseconds began_{};
};

}  // namespace delta_torch

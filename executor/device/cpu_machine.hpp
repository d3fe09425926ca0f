// delta executor: the CPU device as a machine.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "device/cpu.hpp"
#include "device/machine.hpp"

namespace delta::executor {

/// Passes everything on to a cpu_device. Its memory is the host's own: map gives the bytes
/// themselves, and nothing is copied.
class cpu_machine : public machine {
 public:
  /// `overlap`: false: each copy is over when copy() returns; to measure what overlap gains.
  explicit cpu_machine(const cpu_options& o, bool overlap = true) : device_(o), overlap_(overlap) {}

  std::byte* device_memory(bytes n) override { return device_.device_memory(n); }
  std::byte* host_memory(bytes n) override { return device_.host_memory(n); }
  stamp copy(direction d, std::byte* to, const std::byte* from, bytes n,
             const fence& after) override {
    const stamp s = device_.copy(d, to, from, n, after);
    if (!overlap_) device_.wait(s);
    return s;
  }
  void begin(const fence& after) override { device_.begin(after); }
  void move(std::byte* to, const std::byte* from, bytes n) override { device_.move(to, from, n); }
  stamp end() override { return device_.end(); }
  bool reached(stamp s) override { return device_.reached(s); }
  void wait(stamp s) override { device_.wait(s); }
  std::optional<nanoseconds> elapsed(stamp s) override { return device_.elapsed(s); }
  std::optional<nanoseconds> began(stamp s) override { return device_.began(s); }
  [[nodiscard]] nanoseconds now() const override { return device_.now(); }
  [[nodiscard]] nanoseconds waited() const override { return device_.waited(); }
  [[nodiscard]] double rate(direction d) const override { return device_.rate(d); }
  [[nodiscard]] nanoseconds latency(direction d) const override { return device_.latency(d); }
  [[nodiscard]] nanoseconds backlog(direction d) const override { return device_.backlog(d); }
  [[nodiscard]] double move_rate() const override;
  [[nodiscard]] double burden(direction d) const override { return device_.burden(d); }
  std::optional<nanoseconds> alone(stamp s) override { return device_.alone(s); }
  [[nodiscard]] std::optional<int> copy_threads() const override { return device_.copy_threads(); }
  [[nodiscard]] void* native_stream() override { return nullptr; }

  /// The calling thread computes, so its waits for copies are all the waits that there are.
  [[nodiscard]] nanoseconds host_waited() const override { return device_.waited(); }
  [[nodiscard]] std::string name() const override { return cpu_name(); }
  [[nodiscard]] bool computes_at_once() const override { return true; }

  void lend(thread_pool& idle) override { device_.lend(&idle); }
  nanoseconds stand_still(const std::function<void()>& f) override {
    return device_.stand_still(f);
  }

  std::byte* map(std::byte* device, bytes n, bool reading) override;
  void unmap(bool writing) override;

 private:
  cpu_device device_;
  bool overlap_;
};

}  // namespace delta::executor

// The Python module.
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "current_stream.hpp"
#include "device_allocator.hpp"
#include "generator.hpp"
#include "host_allocator.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "scheduler.hpp"

namespace {

using simulated::DeviceAllocator;
using simulated::Scheduler;

pybind11::dict statistics() {
  const simulated::Counters counters = Scheduler::instance().counters();
  const simulated::KernelCounters kernels = simulated::kernel_counters();
  pybind11::dict all;
  all["queued"] = counters.queued;
  all["ran"] = counters.ran;
  all["dropped"] = counters.dropped;
  all["host_waits"] = counters.host_waits;
  all["needless"] = counters.needless;
  all["deferred_operators"] = kernels.deferred;
  all["immediate_operators"] = kernels.immediate;
  all["events"] = simulated::living_events.load();
  all["timed_events"] = simulated::timed_events.load();
  all["pinned"] = simulated::HostAllocator::instance().get_stats().allocated_bytes.current;
  all["seconds"] = Scheduler::instance().host_time();
  return all;
}

// What a kernel writes that was launched by an address: nobody but the caller knows of it.
void fill(std::uintptr_t address, std::int64_t count, float value) {
  auto* const memory = reinterpret_cast<float*>(simulated::DeviceMemory::instance().real(
      reinterpret_cast<void*>(address), static_cast<std::size_t>(count) * sizeof(float)));
  Scheduler::instance().enqueue(
      simulated::current_stream(), [=] { std::fill_n(memory, count, value); }, 1e-6);
}

bool is_seeded_anew() {
  at::Generator generator = simulated::default_generator();
  const std::lock_guard lock(generator.mutex());
  return generator.get<simulated::DeviceGenerator>()->is_seeded_anew();
}

void set_seed(std::uint64_t seed) {
  at::Generator generator = simulated::default_generator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

at::Tensor get_state() {
  at::Generator generator = simulated::default_generator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(const at::Tensor& state) {
  at::Generator generator = simulated::default_generator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

// None of these keeps the GIL from a thread that the device needs: the device needs none.
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("set_schedule", [](std::uint64_t seed, double laziness) {
    Scheduler::instance().set_schedule(seed, laziness);
  });
  m.def("pending", [] { return Scheduler::instance().pending(); });
  m.def("statistics", &statistics);
  m.def("set_capacity", [](std::size_t bytes) { DeviceAllocator::instance().set_capacity(bytes); });
  m.def("set_failure",
        [](const std::string& sentence) { DeviceAllocator::instance().set_failure(sentence); });
  m.def("fill", &fill);
  m.def("is_seeded_anew", &is_seeded_anew);
  m.def("memory_allocated", [] { return DeviceAllocator::instance().allocated(); });
  m.def("max_memory_allocated", [] { return DeviceAllocator::instance().peak(); });
  m.def("reset_peak_memory_stats", [] { DeviceAllocator::instance().resetPeakStats(0); });
  m.def("empty_cache", [] { DeviceAllocator::instance().emptyCache(); });
  m.def("set_seed", &set_seed);
  m.def("get_state", &get_state);
  m.def("set_state", &set_state);
}

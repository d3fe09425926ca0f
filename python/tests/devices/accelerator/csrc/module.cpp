// The Python module.
#include <torch/extension.h>

#include "current_stream.hpp"
#include "device_allocator.hpp"
#include "generator.hpp"
#include "kernels.hpp"
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
  all["seconds"] = Scheduler::instance().host_time();
  return all;
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
  m.def("memory_allocated", [] { return DeviceAllocator::instance().allocated(); });
  m.def("max_memory_allocated", [] { return DeviceAllocator::instance().peak(); });
  m.def("reset_peak_memory_stats", [] { DeviceAllocator::instance().resetPeakStats(0); });
  m.def("empty_cache", [] { DeviceAllocator::instance().emptyCache(); });
  m.def("set_seed", &set_seed);
  m.def("get_state", &get_state);
  m.def("set_state", &set_state);
}

#include "device/cpu_machine.hpp"

namespace delta::executor {

// What one core of a current machine reaches, which is what an arena takes where a device says
// nothing: decisions are those of an arena over the device itself.
double cpu_machine::move_rate() const {
  return 8e9;
}

std::byte* cpu_machine::map(std::byte* device, bytes, bool) {
  return device;
}

void cpu_machine::unmap(bool) {}

}  // namespace delta::executor

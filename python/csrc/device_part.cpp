// delta_torch: the part that does for every accelerator.
#include "device_part.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "bytes_as_tensor.hpp"

namespace delta_torch {

namespace {

class any_device final : public device_part {
 public:
  explicit any_device(c10::DeviceType type) : type_(type) {}

  [[nodiscard]] c10::Allocator& own() override {
    return before_ != nullptr ? *before_ : *c10::GetAllocator(type_);
  }
  void install(run_allocator& ours, c10::Device) override {
    if (before_ != nullptr) return;
    before_ = c10::GetAllocator(type_);
    c10::SetAllocator(type_, &ours, highest);
  }
  void remove() override {
    if (before_ != nullptr) c10::SetAllocator(type_, std::exchange(before_, nullptr), highest);
  }
  void copy(copied way, void* to, const void* from, std::size_t size, c10::Stream s) override {
    const unmanaged_calls plain;
    const c10::Device cpu{c10::kCPU};
    const auto target = bytes_at(to, size, way == copied::to_host ? cpu : s.device());
    target.copy_(
        bytes_at(const_cast<void*>(from), size, way == copied::to_device ? cpu : s.device()), true);
  }
  void limit(c10::Device, std::size_t, std::size_t) override {}
  void unlimit(c10::Device) noexcept override {}
  void prepare(c10::Stream) override {}

 private:
  static constexpr std::uint8_t highest = 255;
  c10::DeviceType type_;
  c10::Allocator* before_ = nullptr;
};

using parts = std::array<device_part*, c10::COMPILE_TIME_MAX_DEVICE_TYPES>;
parts& all() {
  static parts of_types{};
  return of_types;
}

}  // namespace

device_part& generic_part(c10::DeviceType type) {
  return *new any_device(type);
}
void use_part(c10::DeviceType type, device_part& part) {
  all()[static_cast<std::size_t>(type)] = &part;
}
device_part& part_of(c10::DeviceType type) {
  device_part*& known = all()[static_cast<std::size_t>(type)];
  if (known == nullptr) known = &generic_part(type);
  return *known;
}

}  // namespace delta_torch

// What PyTorch asks an accelerator for.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <cstring>

#include "current_stream.hpp"
#include "generator.hpp"
#include "host_allocator.hpp"
#include "memory.hpp"

namespace simulated {

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    TORCH_CHECK(device == 0, "there is one simulated device");
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    setCurrentDevice(device);
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*device*/) const override { return 0; }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex /*device*/) const override {
    return new_generator();
  }

  bool isPinnedPtr(const void* data) const override { return HostAllocator::instance().owns(data); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(at::kPrivateUse1);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    TORCH_CHECK(DeviceMemory::instance().contains(data), "not an address of the simulated device");
    return the_device;
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    c10::DataPtr data = c10::GetAllocator(at::kPrivateUse1)->allocate(bytes);
    if (const std::size_t kept = std::min(bytes, storage.nbytes()); kept > 0) {
      const DeviceMemory& memory = DeviceMemory::instance();
      std::byte* const to = memory.real(data.get(), kept);
      const std::byte* const from = memory.real(storage.data(), kept);
      Scheduler::instance().enqueue(
          current_stream(), [=] { std::memcpy(to, from, kept); }, 1e-6);
    }
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    impl->set_data_ptr_noswap(std::move(data));
    impl->set_nbytes(bytes);
  }
};

[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

}  // namespace simulated

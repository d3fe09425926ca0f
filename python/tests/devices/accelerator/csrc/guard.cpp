// Streams and events as PyTorch's device-independent code knows them.
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "current_stream.hpp"

namespace simulated {

namespace {

struct Event {
  MarkerPtr marker;  // of the latest record()
  bool timed = false;
};

Event* as_event(void* event) {
  return static_cast<Event*>(event);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    setDevice(device);
    return the_device;
  }
  c10::Device getDevice() const override { return the_device; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.is_privateuseone() && device.index() <= 0, "there is one simulated device, ",
                "not ", device);
  }
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override { return {}; }

  c10::Stream getStream(c10::Device /*device*/) const override {
    return as_stream(current_stream());
  }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override { return as_stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*urgent*/) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device /*device*/, int /*priority*/) const override {
    return as_stream(Scheduler::instance().new_stream());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return as_stream(exchange_current_stream(stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Scheduler::instance().query(stream.id());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Scheduler::instance().synchronize(stream.id());
  }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override {
    Scheduler::instance().synchronize_all();
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag flag) const override {
    if (*event == nullptr) {
      *event = new Event{nullptr, flag == c10::EventFlag::BACKEND_DEFAULT};
      ++living_events;
      timed_events += as_event(*event)->timed ? 1 : 0;
    }
    as_event(*event)->marker = Scheduler::instance().record(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      Scheduler::instance().wait(stream.id(), as_event(event)->marker);
    }
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Scheduler::instance().query(as_event(event)->marker);
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      Scheduler::instance().synchronize(as_event(event)->marker);
    }
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    if (event == nullptr) {
      return;
    }
    --living_events;
    timed_events -= as_event(event)->timed ? 1 : 0;
    delete as_event(event);
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(first != nullptr && second != nullptr, "both events must be recorded");
    const Event& from = *as_event(first);
    const Event& to = *as_event(second);
    TORCH_CHECK(from.timed && to.timed, "both events must be made with enable_timing=True");
    TORCH_CHECK(
        Scheduler::instance().is_done(from.marker) && Scheduler::instance().is_done(to.marker),
        "both events must have happened");
    constexpr double milliseconds = 1e3;
    return (to.marker->time - from.marker->time) * milliseconds;
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    // Whoever allocates now, since another allocator may have been put in the place of ours.
    auto* const allocator = c10::GetAllocator(c10::DeviceType::PrivateUse1);
    if (auto* const device = dynamic_cast<c10::DeviceAllocator*>(allocator)) {
      device->recordStream(data, stream);
    }
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

}  // namespace simulated

// A device's part from an extension of its own, as CUDA's is, for the simulated accelerator: it
// does what the generic one does, and remembers what it was told.
#include <torch/csrc/utils/pybind.h>

#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bytes_as_tensor.hpp"
#include "device_part.hpp"

namespace py = pybind11;

namespace {

using namespace delta_torch;

class recording_part final : public device_part {
 public:
  [[nodiscard]] c10::Allocator& own() override {
    return before_ != nullptr ? *before_ : *c10::GetAllocator(c10::kPrivateUse1);
  }
  void install(run_allocator& ours, c10::Device d) override {
    tell("install " + d.str());
    before_ = c10::GetAllocator(c10::kPrivateUse1);
    c10::SetAllocator(c10::kPrivateUse1, &ours, 255);
  }
  void remove() override {
    tell("remove");
    c10::SetAllocator(c10::kPrivateUse1, std::exchange(before_, nullptr), 255);
  }
  void copy(copied way, void* to, const void* from, std::size_t size, c10::Stream s) override {
    const unmanaged_calls plain;
    const c10::Device cpu{c10::kCPU};
    tell(way == copied::to_host ? "out" : way == copied::to_device ? "in" : "within");
    bytes_at(to, size, way == copied::to_host ? cpu : s.device())
        .copy_(bytes_at(const_cast<void*>(from), size, way == copied::to_device ? cpu : s.device()),
               true);
  }
  void limit(c10::Device d, std::size_t bytes, std::size_t counted) override {
    tell("limit " + d.str() + " " + std::to_string(bytes) + (counted > 0 ? " of some" : ""));
  }
  void unlimit(c10::Device d) noexcept override { tell("unlimit " + d.str()); }
  void prepare(c10::Stream s) override {
    thread_local bool before = false;
    if (!std::exchange(before, true)) tell("prepare " + s.device().str());
  }
  std::vector<std::string> told() {
    const std::lock_guard hold(lock_);
    return std::exchange(told_, {});
  }

 private:
  void tell(std::string what) {
    const std::lock_guard hold(lock_);
    told_.push_back(std::move(what));
  }
  c10::Allocator* before_ = nullptr;
  std::mutex lock_;
  std::vector<std::string> told_;
};

recording_part& part = *new recording_part;

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("use", [] {
    const py::capsule capsule(static_cast<device_part*>(&part), device_part_capsule);
    py::module_::import("delta_torch._C").attr("adopt_part")(capsule, "privateuseone");
  });
  m.def("told", [] { return part.told(); });
}

// A fake of PyTorch's allocator of CUDA, over the host's memory, and of delta's, with the gate
// between them: for tests without a GPU. Memory is numbers here; nobody touches it.
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "cuda_part.hpp"
#include "gate.hpp"
#include "segments.hpp"

namespace py = pybind11;

namespace {

using delta_torch::CUDAAllocator;

/// How often each was called, and what is out.
std::map<std::string, int> calls;

void* fresh(const char* who) {
  ++calls[std::string(who) + ".out"];
  return std::malloc(16);
}
void gone(const char* who, void* p) {
  --calls[std::string(who) + ".out"];
  std::free(p);
}

c10::Device gpu(c10::DeviceIndex i) {
  return {c10::kCUDA, i};
}
struct world final : delta_torch::surroundings {
  c10::DeviceIndex current = 0;
  std::uintptr_t queue = 0;
  bool records = false;
  [[nodiscard]] c10::DeviceIndex device() const override { return current; }
  [[nodiscard]] cudaStream_t stream(c10::DeviceIndex) const override {
    return reinterpret_cast<cudaStream_t>(queue);
  }
  [[nodiscard]] bool capturing(cudaStream_t) const override { return records; }
};

/// What it does not say itself would be asked of an allocator that there is not.
struct fake final : delta_torch::forwarding {
  c10::DataPtr allocate(std::size_t n) override {
    ++calls["native.allocate"];
    void* const p = n > 0 ? fresh("native") : nullptr;
    return {p, p,
            [](void* at) {
              if (at != nullptr) gone("native", at);
            },
            gpu(0)};
  }
  void* raw_alloc(std::size_t) override {
    ++calls["native.raw_alloc"];
    return fresh("native");
  }
  void* raw_alloc_with_stream(std::size_t, cudaStream_t) override {
    ++calls["native.raw_alloc_with_stream"];
    return fresh("native");
  }
  void raw_delete(void* p) override {
    ++calls["native.raw_delete"];
    gone("native", p);
  }
  void emptyCache(c10::MempoolId_t) override { ++calls["native.emptyCache"]; }
  void recordStream(const c10::DataPtr&, c10::Stream) override { ++calls["native.recordStream"]; }
  void recordStream(const c10::DataPtr&, c10::cuda::CUDAStream) override {
    ++calls["native.recordStream"];
  }
  void setMemoryFraction(double, c10::DeviceIndex) override { ++calls["native.setMemoryFraction"]; }
  void beginAllocateToPool(c10::DeviceIndex, c10::MempoolId_t,
                           std::function<bool(cudaStream_t)>) override {
    ++calls["native.begin"];
  }
  void endAllocateToPool(c10::DeviceIndex, c10::MempoolId_t) override { ++calls["native.end"]; }
  std::string name() override { return "native"; }
};

/// Its DataPtrs are owned by something else than their bytes, as delta's are.
struct delta_s final : delta_torch::run_allocator {
  bool full = false;
  std::map<const void*, int> known;
  bool used_by(const c10::DataPtr& data, c10::Stream) override {
    const bool mine = known.contains(data.get());
    if (mine) ++calls["ours.used_by"];
    return mine;
  }
  c10::DataPtr allocate(std::size_t n) override {
    ++calls["ours.allocate"];
    if (full) TORCH_CHECK_WITH(OutOfMemoryError, false, "delta: full");
    if (n == 0) return {nullptr, gpu(0)};
    void* const p = fresh("ours");
    known[p] = 1;
    return {p, new void*(p),
            [](void* context) {
              auto* const owner = static_cast<void**>(context);
              gone("ours", *owner);
              delete owner;
            },
            gpu(0)};
  }
  void copy_data(void*, const void*, std::size_t) const override {}
};

// Never destroyed, as the real ones are not.
world& here = *new world;
fake& native = *new fake;
delta_s& ours = *new delta_s;
delta_torch::gate& tested = *new delta_torch::gate(here);
CUDAAllocator* real = nullptr;
c10::Allocator* real_of_c10 = nullptr;
std::map<std::uintptr_t, c10::DataPtr> held;

std::atomic<CUDAAllocator*>& installed() {
  return c10::cuda::CUDACachingAllocator::allocator;
}
void* address(std::uintptr_t p) {
  return reinterpret_cast<void*>(p);
}
std::uintptr_t number(void* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

void begin() {
  calls.clear();
  ours.known.clear();
  here.current = 0, here.queue = 0, here.records = false, ours.full = false;
  real = installed();
  real_of_c10 = c10::GetAllocator(c10::kCUDA);
  installed() = &native;
  c10::SetAllocator(c10::kCUDA, &native, 255);
}
void end() {
  held.clear();
  tested.remove();
  installed() = real;
  c10::SetAllocator(c10::kCUDA, real_of_c10, 255);
}
std::string standing() {
  CUDAAllocator* const one = installed();
  c10::Allocator* const other = c10::GetAllocator(c10::kCUDA);
  if (one == &tested && other == &tested) return "gate";
  return one == &native && other == &native ? "native" : "mixed";
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("begin", begin);
  m.def("end", end);
  m.def("standing", standing);
  m.def("calls", [] { return calls; });
  m.def("install", [](c10::DeviceIndex device) { tested.install(ours, device); });
  m.def("remove", [] { tested.remove(); });
  m.def("share_in_a_run", delta_torch::share_in_a_run, py::arg("bytes"), py::arg("others"),
        py::arg("total"), py::arg("before"));
  static delta_torch::expandable_segments segments;
  m.def("segments", [](bool on) { on ? segments.turn_on(native) : segments.turn_off(native); });
  m.def("own_is_native", [] { return &tested.own() == &native; });
  m.def("set_device", [](c10::DeviceIndex d) { here.current = d; });
  m.def("set_stream", [](std::uintptr_t s) { here.queue = s; });
  m.def("set_capturing", [](bool on) { here.records = on; });
  m.def("set_full", [](bool on) { ours.full = on; });
  m.def("allocate", [](std::size_t n) {
    c10::DataPtr data = c10::GetAllocator(c10::kCUDA)->allocate(n);
    const std::uintptr_t p = number(data.get());
    held[p] = std::move(data);
    return p;
  });
  m.def("allocate_uncounted", [](std::size_t n) {
    const delta_torch::uncounted_here plain;
    held[0] = installed().load()->allocate(n);
  });
  m.def("free", [](std::uintptr_t p) { held.erase(p); });
  // By the functions that PyTorch's kernels call.
  namespace cuda = c10::cuda::CUDACachingAllocator;
  m.def("raw_alloc", [](std::size_t n) { return number(cuda::raw_alloc(n)); });
  m.def("raw_alloc_with_stream", [](std::size_t n, std::uintptr_t s) {
    return number(cuda::raw_alloc_with_stream(n, reinterpret_cast<cudaStream_t>(s)));
  });
  m.def("raw_delete", [](std::uintptr_t p) { cuda::raw_delete(address(p)); });
  m.def("begin_pool", [](c10::DeviceIndex d, std::uintptr_t of_stream) {
    cuda::beginAllocateToPool(d, {0, 7}, [=](cudaStream_t s) {
      return reinterpret_cast<std::uintptr_t>(s) == of_stream;
    });
  });
  m.def("end_pool", [](c10::DeviceIndex d) { cuda::endAllocateToPool(d, {0, 7}); });
  m.def("others", [] {
    cuda::emptyCache();
    cuda::setMemoryFraction(0.5, 0);
    installed().load()->recordStream(c10::DataPtr(), c10::Stream(c10::Stream::DEFAULT, gpu(0)));
    return cuda::name();
  });
  m.def("record_stream", [](std::uintptr_t p) {
    const c10::Stream s(c10::Stream::DEFAULT, gpu(0));
    cuda::recordStream(held.at(p), c10::cuda::CUDAStream(s));
    installed().load()->recordStream(held.at(p), s);
  });
  m.def("raw_deleter_is_none", [] { return installed().load()->raw_deleter() == nullptr; });
}

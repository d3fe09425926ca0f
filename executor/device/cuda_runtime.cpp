// The calls of cuda_api on CUDA's runtime. The driver's virtual memory functions are looked up when
// they are needed, so that nothing has to be linked that a machine without a driver lacks.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <string>
#include <thread>

#include "device/cuda_api.hpp"

namespace delta::executor {
namespace {

cudaStream_t real(cuda_stream s) {
  return reinterpret_cast<cudaStream_t>(s);
}
cudaEvent_t real(cuda_event e) {
  return reinterpret_cast<cudaEvent_t>(e);
}

/// A failed call also leaves its error for cudaGetLastError, where the next launch would find it.
cuda_status status(cudaError_t e) {
  if (e == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  return {static_cast<int>(e), cudaGetErrorName(e), cudaGetErrorString(e)};
}
/// The driver's numbers are the runtime's for all that its memory functions can say.
cuda_status status(CUresult r) {
  return status(static_cast<cudaError_t>(r));
}

/// A function of the driver, null where the driver has none of that name.
template <class F>
F driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const auto e = cudaGetDriverEntryPointByVersion(name, &found, 10020, cudaEnableDefault, &result);
#else
  const auto e = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (!status(e).ok() || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<F>(found);
}

struct virtual_memory {
  PFN_cuDeviceGetAttribute_v2000 attribute =
      driver_function<PFN_cuDeviceGetAttribute_v2000>("cuDeviceGetAttribute");
  PFN_cuMemGetAllocationGranularity_v10020 granularity =
      driver_function<PFN_cuMemGetAllocationGranularity_v10020>("cuMemGetAllocationGranularity");
  PFN_cuMemAddressReserve_v10020 reserve =
      driver_function<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve");
  PFN_cuMemAddressFree_v10020 unreserve =
      driver_function<PFN_cuMemAddressFree_v10020>("cuMemAddressFree");
  PFN_cuMemCreate_v10020 create = driver_function<PFN_cuMemCreate_v10020>("cuMemCreate");
  PFN_cuMemRelease_v10020 release = driver_function<PFN_cuMemRelease_v10020>("cuMemRelease");
  PFN_cuMemMap_v10020 map = driver_function<PFN_cuMemMap_v10020>("cuMemMap");
  PFN_cuMemUnmap_v10020 unmap = driver_function<PFN_cuMemUnmap_v10020>("cuMemUnmap");
  PFN_cuMemSetAccess_v10020 access = driver_function<PFN_cuMemSetAccess_v10020>("cuMemSetAccess");

  [[nodiscard]] bool complete() const {
    return attribute && granularity && reserve && unreserve && create && release && map && unmap &&
           access;
  }
};

CUmemAllocationProp pinned_on(int device) {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = device;
  return p;
}

/// Multiply-adds in fp32 that a multiprocessor begins in a cycle, by compute capability: the CUDA
/// programming guide's table of arithmetic throughput.
int lanes_of(int major, int minor) {
  return major == 7 || (major == 8 && minor == 0) ? 64 : 128;
}

class cuda_runtime final : public cuda_api {
 public:
  cuda_status device_count(int* count) override { return status(cudaGetDeviceCount(count)); }
  cuda_status driver_version(int* version) override {
    return status(cudaDriverGetVersion(version));
  }
  cuda_status set_device(int device) override { return status(cudaSetDevice(device)); }
  cuda_status current_device(int* device) override { return status(cudaGetDevice(device)); }
  cuda_status properties(int device, cuda_device_properties* to) override {
    cudaDeviceProp p{};
    if (const auto s = status(cudaGetDeviceProperties(&p, device)); !s.ok()) return s;
    cuda_device_properties known;
    known.name = p.name;
    known.major = p.major;
    known.minor = p.minor;
    known.total = bytes{p.totalGlobalMem};
    // What is not known stays 0.
    int kilohertz = 0, bits = 0;
    if (status(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device)).ok() &&
        status(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device)).ok())
      known.memory_rate = 2e3 * kilohertz * bits / 8;  // two transfers a cycle
    if (status(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device)).ok())
      known.flops = 2e3 * kilohertz * p.multiProcessorCount * lanes_of(p.major, p.minor);
    for (const auto& s : {status(cudaDriverGetVersion(&known.driver)),
                          status(cudaRuntimeGetVersion(&known.runtime))})
      if (!s.ok()) return s;
    *to = known;
    return {};
  }
  cuda_status memory_info(bytes* free, bytes* total) override {
    std::size_t f = 0, t = 0;
    const auto s = status(cudaMemGetInfo(&f, &t));
    if (s.ok()) *free = bytes{f}, *total = bytes{t};
    return s;
  }

  cuda_status malloc(std::byte** to, bytes n) override {
    void* p = nullptr;
    return take(status(cudaMalloc(&p, n.count)), p, to);
  }
  cuda_status free(std::byte* at) override { return status(cudaFree(at)); }
  cuda_status malloc_host(std::byte** to, bytes n) override {
    void* p = nullptr;
    return take(status(cudaHostAlloc(&p, n.count, cudaHostAllocDefault)), p, to);
  }
  cuda_status free_host(std::byte* at) override { return status(cudaFreeHost(at)); }

  cuda_status map_virtual(std::byte** to, bytes n) override {
    int device = 0, supported = 0;
    if (const auto s = status(cudaGetDevice(&device)); !s.ok()) return s;
    const virtual_memory driver;
    if (!driver.complete()) return status(cudaErrorNotSupported);
    if (const auto s = status(driver.attribute(
            &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
        !s.ok())
      return s;
    if (supported == 0) return status(cudaErrorNotSupported);
    std::size_t size = 0;
    if (const auto s = whole(driver, device, n, &size); !s.ok()) return s;
    CUdeviceptr at = 0;
    if (const auto s = status(driver.reserve(&at, size, 0, 0, 0)); !s.ok()) return s;
    const auto s = back(driver, device, at, size);
    if (!s.ok()) {
      driver.unreserve(at, size);
      return s;
    }
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver gives addresses as numbers
    *to = reinterpret_cast<std::byte*>(at);
    return {};
  }
  cuda_status unmap_virtual(std::byte* at, bytes n) override {
    int device = 0;
    if (const auto s = status(cudaGetDevice(&device)); !s.ok()) return s;
    const virtual_memory driver;
    if (!driver.complete()) return status(cudaErrorNotSupported);
    std::size_t size = 0;
    if (const auto s = whole(driver, device, n, &size); !s.ok()) return s;
    const auto address = reinterpret_cast<CUdeviceptr>(at);
    const auto unmapped = status(driver.unmap(address, size));
    const auto gone = status(driver.unreserve(address, size));
    return unmapped.ok() ? gone : unmapped;
  }

  cuda_status stream_create(cuda_stream* to, bool high_priority) override {
    int least = 0, greatest = 0;
    if (const auto s = status(cudaDeviceGetStreamPriorityRange(&least, &greatest)); !s.ok())
      return s;
    cudaStream_t made = nullptr;
    const auto s = status(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking,
                                                       high_priority ? greatest : least));
    if (s.ok()) *to = reinterpret_cast<cuda_stream>(made);
    return s;
  }
  cuda_status stream_destroy(cuda_stream s) override { return status(cudaStreamDestroy(real(s))); }
  cuda_status stream_wait_event(cuda_stream s, cuda_event e) override {
    return status(cudaStreamWaitEvent(real(s), real(e), 0));
  }
  cuda_status stream_synchronize(cuda_stream s) override {
    return status(cudaStreamSynchronize(real(s)));
  }
  cuda_status stream_query(cuda_stream s, bool* done) override {
    return answer(cudaStreamQuery(real(s)), done);
  }

  cuda_status stream_pause(cuda_stream s, nanoseconds t) override {
    const auto sleep = [](void* length) {
      std::this_thread::sleep_for(nanoseconds{reinterpret_cast<std::intptr_t>(length)});
    };
    // NOLINTNEXTLINE(performance-no-int-to-ptr): so that nothing has to live until then
    return status(cudaLaunchHostFunc(real(s), sleep, reinterpret_cast<void*>(t.count())));
  }

  cuda_status event_create(cuda_event* to) override {
    cudaEvent_t made = nullptr;
    const auto s = status(cudaEventCreateWithFlags(&made, cudaEventDefault));
    if (s.ok()) *to = reinterpret_cast<cuda_event>(made);
    return s;
  }
  cuda_status event_destroy(cuda_event e) override { return status(cudaEventDestroy(real(e))); }
  cuda_status event_record(cuda_event e, cuda_stream s) override {
    return status(cudaEventRecord(real(e), real(s)));
  }
  cuda_status event_query(cuda_event e, bool* done) override {
    return answer(cudaEventQuery(real(e)), done);
  }
  cuda_status event_synchronize(cuda_event e) override {
    return status(cudaEventSynchronize(real(e)));
  }
  cuda_status event_elapsed(cuda_event from, cuda_event to, float* milliseconds) override {
    float ms = 0;
    const auto s = status(cudaEventElapsedTime(&ms, real(from), real(to)));
    if (s.ok()) *milliseconds = ms;
    return s;
  }

  cuda_status memcpy_async(std::byte* to, const std::byte* from, bytes n, cuda_copy kind,
                           cuda_stream s) override {
    constexpr cudaMemcpyKind kinds[] = {cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice,
                                        cudaMemcpyDeviceToDevice};
    return status(
        cudaMemcpyAsync(to, from, n.count, kinds[static_cast<std::size_t>(kind)], real(s)));
  }
  cuda_status memset_async(std::byte* at, int value, bytes n, cuda_stream s) override {
    return status(cudaMemsetAsync(at, value, n.count, real(s)));
  }
  cuda_status device_synchronize() override { return status(cudaDeviceSynchronize()); }
  cuda_status last_error() override { return status(cudaGetLastError()); }

  void range_push(const char* text) override { nvtxRangePushA(text); }
  void range_pop() override { nvtxRangePop(); }
  void mark(const char* text) override { nvtxMarkA(text); }

 private:
  /// A query's: "not ready" is left behind like an error.
  static cuda_status answer(cudaError_t e, bool* done) {
    const auto s = status(e);
    if (e != cudaSuccess && e != cudaErrorNotReady) return s;
    *done = e == cudaSuccess;
    return {};
  }
  static cuda_status take(const cuda_status& s, void* p, std::byte** to) {
    if (s.ok()) *to = static_cast<std::byte*>(p);
    return s;
  }
  /// `n` in whole pieces of the device's.
  static cuda_status whole(const virtual_memory& driver, int device, bytes n, std::size_t* size) {
    const auto kind = pinned_on(device);
    std::size_t piece = 0;
    const auto s = status(driver.granularity(&piece, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    if (s.ok()) *size = (n.count + piece - 1) / piece * piece;
    return s;
  }
  /// Physical memory behind a reserved range, which the device may read and write.
  static cuda_status back(const virtual_memory& driver, int device, CUdeviceptr at,
                          std::size_t size) {
    const auto kind = pinned_on(device);
    CUmemGenericAllocationHandle memory{};
    if (const auto s = status(driver.create(&memory, size, &kind, 0)); !s.ok()) return s;
    const auto mapped = status(driver.map(at, size, 0, memory, 0));
    // The mapping keeps the memory from here on; without one it goes at once.
    const auto released = status(driver.release(memory));
    if (!mapped.ok()) return mapped;
    CUmemAccessDesc access{};
    access.location = kind.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const auto allowed = released.ok() ? status(driver.access(at, size, &access, 1)) : released;
    if (!allowed.ok()) driver.unmap(at, size);
    return allowed;
  }
};

}  // namespace

std::unique_ptr<cuda_api> make_cuda_runtime() {
  return std::make_unique<cuda_runtime>();
}

}  // namespace delta::executor

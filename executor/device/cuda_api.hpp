// delta executor: the calls that the CUDA device makes of CUDA, behind virtual functions. The real
// ones are in cuda_runtime.cpp, which alone includes CUDA's headers; tests put a machine of their
// own behind it, so everything above is compiled, run and checked where there is no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "delta/units.hpp"

namespace delta::executor {

/// What a call came to: CUDA's own number (0: success), name and text. The texts are static.
struct cuda_status {
  int code = 0;
  const char* name = "cudaSuccess";
  const char* text = "no error";
  [[nodiscard]] bool ok() const noexcept { return code == 0; }
};

/// CUDA's streams and events, whose insides nobody here looks at.
using cuda_stream = struct cuda_stream_tag*;
using cuda_event = struct cuda_event_tag*;

/// Copies, as cudaMemcpyKind has them.
enum class cuda_copy : std::uint8_t { to_host, to_device, on_device };

/// What is known of a GPU.
struct cuda_device_properties {
  std::string name;             ///< "NVIDIA H100 80GB HBM3"
  int major = 0, minor = 0;     ///< compute capability
  int driver = 0, runtime = 0;  ///< 13000: 13.0
  bytes total{};                ///< of device memory
  double memory_rate = 0;       ///< bytes per second, as specified; 0: not known
  double flops = 0;             ///< per second in fp32, without tensor cores, likewise
};

/// One virtual function per CUDA call that is made, named after it; none throws. `bool` answers of
/// queries come back through pointers. A failed call's pointers are not written, and it leaves no
/// error behind for last_error() to find: whether the context is lost, stream_query() tells.
class cuda_api {
 public:
  cuda_api() = default;
  cuda_api(const cuda_api&) = delete;
  cuda_api& operator=(const cuda_api&) = delete;
  virtual ~cuda_api() = default;

  virtual cuda_status device_count(int* count) = 0;      ///< also finds a driver that is too old
  virtual cuda_status driver_version(int* version) = 0;  ///< 13000: 13.0; 0: there is no driver
  virtual cuda_status set_device(int device) = 0;        ///< the calling thread's
  virtual cuda_status current_device(int* device) = 0;   ///< likewise: cudaGetDevice
  virtual cuda_status properties(int device, cuda_device_properties* to) = 0;
  virtual cuda_status memory_info(bytes* free, bytes* total) = 0;

  virtual cuda_status malloc(std::byte** to, bytes n) = 0;
  virtual cuda_status free(std::byte* at) = 0;
  virtual cuda_status malloc_host(std::byte** to, bytes n) = 0;  ///< pinned
  virtual cuda_status free_host(std::byte* at) = 0;
  /// The driver's virtual memory API: a range of addresses, with physical memory behind all of it,
  /// in pieces of the device's own granularity. One call here for the driver's reserve, create, map
  /// and set-access; `unmap` undoes it. Not supported: an error of that name.
  virtual cuda_status map_virtual(std::byte** to, bytes n) = 0;
  virtual cuda_status unmap_virtual(std::byte* at, bytes n) = 0;

  virtual cuda_status stream_create(cuda_stream* to, bool high_priority) = 0;  ///< non-blocking
  virtual cuda_status stream_destroy(cuda_stream) = 0;
  virtual cuda_status stream_wait_event(cuda_stream, cuda_event) = 0;
  virtual cuda_status stream_synchronize(cuda_stream) = 0;
  /// Not ready is a success; a failure is the context's, of work that was queued before.
  virtual cuda_status stream_query(cuda_stream, bool* done) = 0;

  /// What is queued behind waits for so long, by the host's clock, as nearly as it sleeps:
  /// cudaLaunchHostFunc.
  virtual cuda_status stream_pause(cuda_stream, nanoseconds) = 0;

  virtual cuda_status event_create(cuda_event* to) = 0;  ///< with timing
  virtual cuda_status event_destroy(cuda_event) = 0;
  virtual cuda_status event_record(cuda_event, cuda_stream) = 0;
  virtual cuda_status event_query(cuda_event, bool* done) = 0;  ///< not ready is a success
  virtual cuda_status event_synchronize(cuda_event) = 0;
  virtual cuda_status event_elapsed(cuda_event from, cuda_event to, float* milliseconds) = 0;

  /// Asynchronous, on that stream. Ranges do not overlap.
  virtual cuda_status memcpy_async(std::byte* to, const std::byte* from, bytes n, cuda_copy kind,
                                   cuda_stream) = 0;
  virtual cuda_status memset_async(std::byte* at, int value, bytes n, cuda_stream) = 0;
  virtual cuda_status device_synchronize() = 0;
  /// The last error of a launch, which it forgets: cudaGetLastError.
  virtual cuda_status last_error() = 0;

  /// NVTX: a range of the calling thread in Nsight's timeline; nothing without NVTX.
  virtual void range_push(const char* text) = 0;
  virtual void range_pop() = 0;
  virtual void mark(const char* text) = 0;  ///< a moment
};

/// CUDA's runtime; null in a build without CUDA (cuda_absent.cpp).
std::unique_ptr<cuda_api> make_cuda_runtime();

}  // namespace delta::executor

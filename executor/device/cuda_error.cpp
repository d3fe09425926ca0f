#include "device/cuda_error.hpp"

#include <algorithm>

namespace delta::executor {
namespace {

using kind = cuda_failure::kind;

const char* advice(kind k) noexcept {
  switch (k) {
    case kind::absent:
      return "this build has no CUDA: configure it where a CUDA toolkit is installed, or use "
             "--device cpu";
    case kind::no_device:
      return "no CUDA device can be used: check that nvidia-smi lists one and that "
             "CUDA_VISIBLE_DEVICES does not hide it, or use --device cpu";
    case kind::no_such_device:
      return "take one of those: nvidia-smi -L lists them, less those that CUDA_VISIBLE_DEVICES "
             "hides";
    case kind::driver_too_old:
      return "the NVIDIA driver is older than the CUDA runtime of this build: install a newer "
             "driver, or build with an older toolkit";
    case kind::out_of_memory:
      return "free memory by ending other programs on the GPU, or ask for a smaller budget";
    case kind::unsupported:
      return "this GPU or its driver can't do that: leave the option out that asks for it, or "
             "build for this GPU's architecture";
    case kind::lost:
      return "the GPU's context is lost and no later call can succeed: end this program and start "
             "it again; compute-sanitizer tells which kernel did it, dmesg whether the GPU did";
    case kind::failed:
      break;
  }
  return "nothing is known to help: run it again under compute-sanitizer to see where it begins";
}

/// One line, whatever the texts hold.
std::string in_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return text;
}

}  // namespace

cuda_failure::kind kind_of(int code) noexcept {
  switch (code) {
    case 2:  // cudaErrorMemoryAllocation
      return kind::out_of_memory;
    case 35:   // cudaErrorInsufficientDriver
    case 803:  // cudaErrorSystemDriverMismatch
      return kind::driver_too_old;
    case 34:   // cudaErrorStubLibrary
    case 100:  // cudaErrorNoDevice
    case 101:  // cudaErrorInvalidDevice
    case 802:  // cudaErrorSystemNotReady
      return kind::no_device;
    case 200:  // cudaErrorInvalidKernelImage
    case 209:  // cudaErrorNoKernelImageForDevice
    case 222:  // cudaErrorUnsupportedPtxVersion
    case 500:  // cudaErrorSymbolNotFound
    case 800:  // cudaErrorNotPermitted
    case 801:  // cudaErrorNotSupported
    case 804:  // cudaErrorCompatNotSupportedOnDevice
      return kind::unsupported;
    case 4:    // cudaErrorCudartUnloading
    case 46:   // cudaErrorDevicesUnavailable
    case 201:  // cudaErrorDeviceUninitialized
    case 214:  // cudaErrorECCUncorrectable
    case 220:  // cudaErrorNvlinkUncorrectable
    case 226:  // cudaErrorContained
    case 700:  // cudaErrorIllegalAddress
    case 702:  // cudaErrorLaunchTimeout
    case 709:  // cudaErrorContextIsDestroyed
    case 710:  // cudaErrorAssert
    case 714:  // cudaErrorHardwareStackError
    case 715:  // cudaErrorIllegalInstruction
    case 716:  // cudaErrorMisalignedAddress
    case 717:  // cudaErrorInvalidAddressSpace
    case 718:  // cudaErrorInvalidPc
    case 719:  // cudaErrorLaunchFailure
    case 721:  // cudaErrorTensorMemoryLeak
    case 911:  // cudaErrorExternalDevice
    case 999:  // cudaErrorUnknown
      return kind::lost;
    default:
      return kind::failed;
  }
}

void raise(cuda_failure::kind k, const char* call, const cuda_status& s, std::string_view extra) {
  std::string line(call);
  line += " failed: " + std::to_string(s.code) + " (" + s.name + "): " + s.text;
  if (!extra.empty()) line += "; " + std::string(extra);
  line += "; ";
  line += advice(k);
  throw cuda_error({.what = k, .call = call, .code = s.code, .name = s.name},
                   in_one_line(std::move(line)));
}

void raise(const char* call, const cuda_status& s, std::string_view extra) {
  raise(kind_of(s.code), call, s, extra);
}

void raise_if_lost(cuda_api& api, const cuda_error& e) {
  if (e.failure.what == kind::lost) return;
  const cuda_status s = api.device_synchronize();
  if (s.ok()) return;
  raise(kind::lost, e.failure.call.c_str(), {e.failure.code, e.failure.name.c_str(), s.text},
        "the device says " + std::to_string(s.code) + " (" + s.name + ")");
}

void make_current(cuda_api& api, int device) {
  int now = -1;
  check("cudaGetDevice", api.current_device(&now));
  if (now != device) check("cudaSetDevice", api.set_device(device));
}

void check_device(cuda_api& api, int device) {
  const int count = count_devices(api);
  if (device >= 0 && device < count) return;
  raise(kind::no_such_device, "cudaSetDevice",
        {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
        "cuda:" + std::to_string(device) + " was asked for, and there " +
            (count == 1 ? "is 1 device: cuda:0"
                        : "are " + std::to_string(count) +
                              " devices: cuda:0 to cuda:" + std::to_string(count - 1)));
}

int count_devices(cuda_api& api) {
  int count = 0;
  if (const cuda_status s = api.device_count(&count); !s.ok()) {
    // The runtime says "too old" also where there is no driver at all.
    int driver = 0;
    if (kind_of(s.code) == kind::driver_too_old && api.driver_version(&driver).ok() && driver == 0)
      raise(kind::no_device, "cudaGetDeviceCount", s, "no NVIDIA driver is installed");
    raise("cudaGetDeviceCount", s);
  }
  if (count == 0)
    raise(kind::no_device, "cudaGetDeviceCount",
          {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"});
  return count;
}

}  // namespace delta::executor

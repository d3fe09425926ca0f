// delta executor: what a graph runs on: whose kernels its operators call, and in whose memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "delta/units.hpp"
#include "device/machine.hpp"
#include "model/graph.hpp"

namespace delta::executor {

/// A kind of machine, opened. It outlives the graphs that it has bound and the machines that it has
/// made.
class backend {
 public:
  backend() = default;
  backend(const backend&) = delete;
  backend& operator=(const backend&) = delete;
  virtual ~backend() = default;

  /// Sets node::run and node::workspace of every node. Algorithms are chosen here, once: the bits
  /// of a run depend on them. Throws what the machine throws.
  virtual void bind(graph&) = 0;
  /// A machine for one run. Throws what it throws.
  virtual std::unique_ptr<machine> open() = 0;
  /// To which sizes and addresses are rounded, in bytes; a power of two.
  [[nodiscard]] virtual std::uint64_t granularity() const = 0;
  /// "cpu" or "cuda", as --device has it; and what it is in full, in one line, for reports.
  [[nodiscard]] virtual std::string_view kind() const = 0;
  [[nodiscard]] virtual std::string description() const = 0;
  /// Bytes that an arena could have now; 0: not known.
  [[nodiscard]] virtual bytes free_memory() const = 0;
};

struct cpu_backend_options {
  int threads = 1;
  double copy_rate = 0;                 ///< as cpu_options
  std::optional<int> copy_threads = 2;  ///< likewise; absent: measured, and the better way is taken
  bool overlap = true;                  ///< false: copies are waited for at once
};
/// This build has none of the CPU's operators. what() is one line, as usage_error's.
struct no_cpu_backend : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Whether this build has the CPU's operators.
[[nodiscard]] bool cpu_support() noexcept;
/// Throws no_cpu_backend.
std::unique_ptr<backend> make_cpu_backend(const cpu_backend_options&);

struct cuda_backend_options {
  int device = 0;               ///< which GPU, as CUDA counts them
  bool tf32 = false;            ///< tensor cores on rounded inputs in convolutions and products
  bool cudnn = true;            ///< where it was found; false: our own kernels
  bool cudnn_norm = false;      ///< batch norm by cuDNN, too, where it takes the shape
  bool legacy = false;          ///< cuDNN's convolutions by its older API
  bool virtual_memory = false;  ///< the arena from the driver's virtual memory API
  /// For any one operator: algorithms that need more are not taken. Absent: what the graph's memory
  /// has room for at that operator (backend/engine_choice.hpp).
  std::optional<bytes> workspace_cap{};
  bool overlap = true;  ///< false: copies on the compute stream; to measure what overlap gains
  /// What rounding adds to a tensor is written, too, and no rates are measured. initcheck of
  /// compute-sanitizer then finds reads of what was never written, and nothing else.
  bool fill_rounding = false;
  /// Is told, in one line, of what goes on but not as it should. Empty: nobody is.
  std::function<void(std::string_view)> warn{};
};
/// What was built in: "CUDA 13.0, cuDNN 9.19"; empty: this is a build without CUDA.
[[nodiscard]] std::string_view cuda_support() noexcept;
/// Whether a GPU answers; false in a build without CUDA. Never throws.
[[nodiscard]] bool cuda_answers() noexcept;
/// Several may be in one process, for one GPU each or for the same: each makes its own the thread's
/// current one whenever it is called, and leaves it so. Throws cuda_error (device/cuda_error.hpp):
/// no driver, no device, none of that number, or a build without CUDA.
std::unique_ptr<backend> make_cuda_backend(const cuda_backend_options&);

}  // namespace delta::executor

// A GPU as a backend: cuDNN's operators where it takes them, and our own.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "backend/backend.hpp"
#include "backend/engine_choice.hpp"
#include "cuda/cuda_handles.hpp"
#include "cuda/cudnn_engines.hpp"
#include "cuda/cudnn_operators.hpp"
#include "cuda/own_operators.hpp"
#include "device/cuda_device.hpp"
#include "device/cuda_error.hpp"
#include "device/cuda_fill.hpp"
#include "device/cuda_reserve.hpp"
#include "model/live_bytes.hpp"

#if defined(DELTA_HAS_CUDNN)
#include <cudnn_version.h>
#endif

namespace delta::executor {
namespace {

using gpu::bound_operator;

/// Of sizes and, from the arena's beginning, of addresses.
constexpr std::uint64_t granule = 512;
/// Of the arena itself: what CUDA promises at the least, and cuBLAS wants for its workspace.
constexpr std::uint64_t alignment = 256;
static_assert(granule % alignment == 0);
/// For kernels of ours and of the libraries, which are loaded when they are first called.
constexpr bytes late_kernels = 512_MiB;
/// What a device takes beside its arena, rounded as the driver may.
constexpr bytes beside_arena = 8_MiB;

/// 13000: "13.0", as CUDA counts.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// The compute stream, which dies last.
class stream {
 public:
  explicit stream(cuda_api& api) : api_(api) {
    check("cudaStreamCreateWithPriority", api_.stream_create(&stream_, false));
  }
  ~stream() { api_.stream_destroy(stream_); }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  [[nodiscard]] cuda_stream get() const noexcept { return stream_; }

 private:
  cuda_api& api_;
  cuda_stream stream_ = nullptr;
};

/// A range of the timeline with the operator's name, over what the host does for it; a profiler
/// draws it over the kernels, too. Without one, NVTX is two calls of nothing.
class range {
 public:
  range(cuda_api& api, const std::string& name) : api_(api) { api_.range_push(name.c_str()); }
  ~range() { api_.range_pop(); }
  range(const range&) = delete;
  range& operator=(const range&) = delete;

 private:
  cuda_api& api_;
};

class cuda_backend final : public backend {
 public:
  cuda_backend(std::unique_ptr<cuda_api> api, const cuda_backend_options& options)
      : api_(std::move(api)), options_(options) {
    check_device(*api_, options_.device);
    here();
    check("cudaGetDeviceProperties", api_->properties(options_.device, &properties_));
    compute_.emplace(*api_);
    handles_ = std::make_shared<cuda_handles>(compute_->get(), properties_.major, options_.tf32,
                                              options_.workspace_cap.value_or(most_workspace));
    if (options_.cudnn) cudnn_ = make_cudnn(compute_->get());
  }
  // What the members give back is of this device.
  ~cuda_backend() override { static_cast<void>(api_->set_device(options_.device)); }

  void bind(graph& g) override {
    here();
    g.threads = 1;
    const auto live = live_bytes(g, granule);
    for (std::size_t at = 0; at < g.nodes.size(); ++at) {
      node& n = g.nodes[at];
      const bytes room =
          options_.workspace_cap.value_or(workspace_room(bytes{g.memory}, bytes{live[at]}));
      bound_operator chosen = naming_loss(*api_, [&] { return bound(g, n, room); });
      n.workspace = chosen.workspace;
      n.algorithm = std::move(chosen.algorithm);
      n.expected_ns = expected(n);
      // By pointer, as the backend outlives what it has bound.
      n.run = [this, name = n.name, sizes = sizes_to_fill(g, n),
               run = std::move(chosen.run)](const kernel_args& a) {
        here();
        if (reserve_) reserve_->give_back();
        for (std::size_t i = 0; i < sizes.size(); ++i)
          check("cudaMemsetAsync",
                fill_rounding(*api_, a.out[i], bytes{sizes[i]}, bytes{granule}, compute_->get()));
        const range named(*api_, name);
        naming_loss(*api_, [&] { run(a); });
      };
    }
  }

  std::unique_ptr<machine> open() override {
    here();
    reserve_.reset();
    reserve_.emplace(*api_, late_kernels);
    cuda_device_options options;
    options.device = options_.device;
    if (options_.fill_rounding) options.filled_to = bytes{granule};
    options.virtual_memory = options_.virtual_memory;
    options.overlap = options_.overlap;
    options.alignment = alignment;
    options.warn = options_.warn;
    return std::make_unique<cuda_device>(*api_, compute_->get(), options);
  }

  [[nodiscard]] std::uint64_t granularity() const override { return granule; }
  [[nodiscard]] std::string_view kind() const override { return "cuda"; }

  [[nodiscard]] std::string description() const override {
    std::string line = properties_.name + ", driver for CUDA " + version_text(properties_.driver) +
                       ", runtime " + version_text(properties_.runtime);
    line += cudnn_ ? ", cuDNN " + cudnn_version() : ", without cuDNN";
    if (options_.tf32) line += ", TF32";
    if (options_.device != 0) line += ", cuda:" + std::to_string(options_.device);
    return line;
  }

  /// Less the reserve that every run begins with.
  [[nodiscard]] bytes free_memory() const override {
    here();
    bytes free{}, total{};
    check("cudaMemGetInfo", api_->memory_info(&free, &total));
    const bool held = reserve_ && reserve_->held();
    return delta::detail::saturating_sub(free, beside_arena + (held ? bytes{} : late_kernels));
  }

 private:
  void here() const { make_current(*api_, options_.device); }

  /// The outputs' bytes where what rounding adds to them is to be written, else none.
  [[nodiscard]] std::vector<std::size_t> sizes_to_fill(const graph& g, const node& n) const {
    std::vector<std::size_t> sizes;
    if (options_.fill_rounding)
      for (const value_id v : n.outputs) sizes.push_back(g[v].bytes);
    return sizes;
  }

  [[nodiscard]] bound_operator bound(const graph& g, const node& n, bytes room) const {
    if (cudnn_) {
      if (const auto* s = std::get_if<conv_shape>(&n.shape)) {
        auto found = by_graph() ? graph_convolution(cudnn_, {options_.tf32, room}, n.type, *s)
                                : cudnn_convolution(cudnn_, {options_.tf32, room}, n.type, *s);
        if (found) return *std::move(found);
      }
      if (const auto* s = std::get_if<bn_shape>(&n.shape); s && options_.cudnn_norm) {
        auto found = cudnn_batch_norm(cudnn_, n.type, *s, g[n.inputs[0]].shape);
        if (found) return *std::move(found);
      }
    }
    return std::visit(
        [&](const auto& shape) { return gpu::own_operator(handles_, g.hyper, n.type, shape); },
        n.shape);
  }

  // cuDNN before 9.8 has the older API alone, as far as we use it.
  [[nodiscard]] bool by_graph() const {
    return !options_.legacy && !cudnn_engines_version().empty();
  }

  // A launch, and the work at a share of what the GPU is specified for; 0 where that is not known.
  // Only the first step goes by it.
  [[nodiscard]] double expected(const node& n) const {
    constexpr double launch_ns = 4000, reached = 0.6;
    const auto& p = properties_;
    if (!(p.flops > 0) || !(p.memory_rate > 0)) return 0;
    return launch_ns + std::max(n.flops / p.flops, n.moved_bytes / p.memory_rate) * 1e9 / reached;
  }

  std::unique_ptr<cuda_api> api_;
  cuda_backend_options options_;
  cuda_device_properties properties_;
  std::optional<stream> compute_;
  std::optional<cuda_reserve> reserve_;  // of the machine that was opened last
  std::shared_ptr<cuda_handles> handles_;
  std::shared_ptr<cudnn_handle> cudnn_;
};

}  // namespace

std::string_view cuda_support() noexcept {
#define DELTA_TEXT_OF(x) #x
#define DELTA_TEXT(x) DELTA_TEXT_OF(x)
#if defined(DELTA_HAS_CUDNN)
#define DELTA_CUDNN_TEXT ", cuDNN " DELTA_TEXT(CUDNN_MAJOR) "." DELTA_TEXT(CUDNN_MINOR)
#else
#define DELTA_CUDNN_TEXT ""
#endif
  static const std::string text = "CUDA " + version_text(CUDART_VERSION) + DELTA_CUDNN_TEXT;
  return text;
}

bool cuda_answers() noexcept {
  try {
    const auto api = make_cuda_runtime();
    return api && count_devices(*api) > 0 && api->set_device(0).ok();
  } catch (...) {
    return false;
  }
}

std::unique_ptr<backend> make_cuda_backend(const cuda_backend_options& options) {
  auto api = make_cuda_runtime();
  if (!api) {
    raise(cuda_failure::kind::absent, "opening the GPU", {0, "none", "there is nothing to call"});
  }
  return std::make_unique<cuda_backend>(std::move(api), options);
}

}  // namespace delta::executor

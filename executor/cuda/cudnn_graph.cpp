// cuDNN's graph API by its C interface, which comes with cuDNN itself. A graph is here one
// convolution, so what the C++ front end adds (tensors by name, fusion, a cache of plans) is not
// needed, and what it decides on its own (which plans to try) is decided by engine_choice.hpp.
#include "cuda/cudnn_engines.hpp"

#if defined(DELTA_HAS_CUDNN)
#include <cudnn_version.h>
#if CUDNN_VERSION >= 90800
#define DELTA_CUDNN_ENGINES
#endif
#endif

#if defined(DELTA_CUDNN_ENGINES)

#include <algorithm>
#include <array>
#include <utility>

#include "cuda/cudnn_backend_descriptor.hpp"

namespace delta::executor {

/// Either a handle, and so the current device, or a description.
class cudnn_gpu {
 public:
  explicit cudnn_gpu(std::shared_ptr<cudnn_handle> handle) : handle_(std::move(handle)) {}
  explicit cudnn_gpu(const std::string& json) {
    properties_.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    properties_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                     std::span<const char>(json.c_str(), json.size() + 1));
    properties_->finalize();
  }
  /// Says to a descriptor that it is about this GPU.
  void tell(backend_descriptor& d, cudnnBackendAttributeName_t by_handle,
            cudnnBackendAttributeName_t by_properties) const {
    if (properties_)
      d.set(by_properties, *properties_);
    else
      d.set(by_handle, CUDNN_TYPE_HANDLE, handle_->get());
  }
  [[nodiscard]] bool is_described() const noexcept { return properties_.has_value(); }
  [[nodiscard]] const backend_descriptor& properties() const { return *properties_; }

 private:
  std::shared_ptr<cudnn_handle> handle_;
  std::optional<backend_descriptor> properties_;
};

namespace {

using gpu::bound_operator;
using gpu::in;
using gpu::out;

constexpr std::size_t most_engines = 128, most_notes = 32;
/// Tensors begin at multiples of 256 bytes; cuDNN's kernels load 16 at a time.
constexpr std::int64_t alignment = 16;

/// The tensors of a convolution, by the numbers that a plan knows them by.
enum tensor_number : std::int64_t { number_x = 1, number_filter = 2, number_y = 3 };

/// In NHWC; cuDNN lists sizes as N, C, H, W whatever the layout.
backend_descriptor tensor(std::int64_t number, std::int64_t n, std::int64_t h, std::int64_t w,
                          std::int64_t c) {
  const std::array<std::int64_t, 4> sizes{n, c, h, w}, steps{h * w * c, 1, w * c, c};
  backend_descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
  d.set(CUDNN_ATTR_TENSOR_STRIDES, steps);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, number);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  d.finalize();
  return d;
}

/// Groups are what the filter's channels say.
backend_descriptor geometry(const conv_shape& s) {
  const std::array<std::int64_t, 2> ones{1, 1}, stride{s.stride, s.stride}, pad{s.pad, s.pad};
  backend_descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2});
  d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, ones);
  d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
  d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pad);
  d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pad);
  d.finalize();
  return d;
}

/// What the three passes call the same things.
struct pass {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, filter, y, convolution, alpha, beta;
};

pass pass_of(operator_type type) {
  switch (type) {
    case operator_type::conv_forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case operator_type::conv_backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
}

/// A graph of one convolution, and all that it is made of.
struct problem {
  backend_descriptor x, filter, y, convolution, operation, graph;

  problem(const cudnn_gpu& gpu, operator_type type, const conv_shape& s)
      : x(tensor(number_x, s.n, s.h, s.w, s.c)),
        filter(tensor(number_filter, s.k, s.kh, s.kw, s.c / s.groups)),
        y(tensor(number_y, s.n, s.oh(), s.ow(), s.k)),
        convolution(geometry(s)),
        operation(pass_of(type).type),
        graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    const pass p = pass_of(type);
    operation.set(p.x, x);
    operation.set(p.filter, filter);
    operation.set(p.y, y);
    operation.set(p.convolution, convolution);
    operation.set(p.alpha, CUDNN_TYPE_FLOAT, 1.0f);
    operation.set(p.beta, CUDNN_TYPE_FLOAT, 0.0f);
    operation.finalize();
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    if (!gpu.is_described())
      gpu.tell(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
    graph.finalize();
  }
};

engine_notes notes_of(const backend_descriptor& engine) {
  engine_notes n;
  for (const auto note : engine.values<cudnnBackendNumericalNote_t>(
           CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, most_notes)) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        n.tensor_core = true;
        break;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        n.converts = true;
        break;
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        n.sums_in_less = true;
        break;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        n.nondeterministic = true;
        break;
      // Other ways to the same sums, in float32.
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
      case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
        break;
      default:
        n.unknown = true;
    }
  }
  for (const auto note : engine.values<cudnnBackendBehaviorNote_t>(
           CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, most_notes)) {
    if (note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) n.compiles = true;
  }
  return n;
}

/// An engine with what sets it up, as a plan wants it.
struct configuration {
  engine_candidate candidate;
  backend_descriptor descriptor;
};

engine_candidate candidate_of(const backend_descriptor& configured) {
  const auto engine =
      configured.parts(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  engine_candidate c;
  if (engine.empty()) return c;
  c.engine = engine.front().value<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64);
  c.notes = notes_of(engine.front());
  // Never taken, and asking it for more may compile it.
  if (c.notes.compiles) return c;
  for (const auto& knob :
       configured.parts(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                        CUDNN_KNOB_TYPE_COUNTS))
    c.knobs.emplace_back(
        int(knob.value<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                               CUDNN_TYPE_KNOB_TYPE)),
        knob.value<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
  c.workspace = bytes{std::uint64_t(
      configured.value<std::int64_t>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64))};
  return c;
}

/// Appends what one of cuDNN's heuristics lists, best first.
void append(std::vector<configuration>& all, const cudnn_gpu& gpu, const problem& p,
            cudnnBackendHeurMode_t mode) {
  backend_descriptor asked(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  asked.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, p.graph);
  asked.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (gpu.is_described()) asked.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, gpu.properties());
  if (!asked.finalized_if_supported()) return;
  for (auto& found : asked.parts(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                 most_engines)) {
    engine_candidate c = candidate_of(found);
    all.push_back({std::move(c), std::move(found)});
  }
}

std::vector<configuration> configurations(const cudnn_gpu& gpu, const problem& p) {
  std::vector<configuration> all;
  append(all, gpu, p, CUDNN_HEUR_MODE_A);
  // The first list can be of tensor cores alone.
  append(all, gpu, p, CUDNN_HEUR_MODE_FALLBACK);
  return all;
}

/// A plan for the configuration; nothing where cuDNN can't make one, or it needs more than it said.
/// Throws where cuDNN fails for another reason than that it can't.
std::optional<backend_descriptor> plan_of(const cudnn_gpu& gpu, const configuration& c) {
  backend_descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, c.descriptor);
  gpu.tell(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  if (!plan.finalized_if_supported()) return std::nullopt;
  const auto needs =
      plan.value<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  if (std::uint64_t(needs) > c.candidate.workspace.count) return std::nullopt;
  return plan;
}

std::vector<engine_candidate> candidates_of(const std::vector<configuration>& all) {
  std::vector<engine_candidate> list;
  list.reserve(all.size());
  for (const configuration& c : all) list.push_back(c.candidate);
  return list;
}

/// The lane of the rule, and a plan that runs it. The configuration lives as long as its plan.
struct planned {
  engine_candidate engine;
  backend_descriptor configuration, plan;
};

std::optional<planned> choose(const cudnn_gpu& gpu, const problem& p, const engine_rule& rule) {
  auto all = configurations(gpu, p);
  const auto list = candidates_of(all);
  std::optional<backend_descriptor> plan;
  const auto at = choose_engine(list, rule, [&](const engine_candidate& c) {
    plan = plan_of(gpu, all[std::size_t(&c - list.data())]);
    return plan.has_value();
  });
  if (!at) return std::nullopt;
  return planned{list[*at], std::move(all[*at].descriptor), *std::move(plan)};
}

/// A convolution that is bound. The problem lives as long as its plan.
struct bound_plan {
  std::shared_ptr<cudnn_handle> handle;
  problem what;
  planned chosen;

  /// The tensors move from run to run, so what points to them is made anew.
  void run(std::array<void*, 3> pointers, std::byte* workspace) const {
    constexpr std::array<std::int64_t, 3> numbers{number_x, number_filter, number_y};
    backend_descriptor operands(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    operands.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, numbers);
    operands.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                 std::span<void* const>(pointers));
    operands.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                 static_cast<void*>(workspace));
    operands.finalize();
    check(cudnnBackendExecute(handle->get(), chosen.plan.get(), operands.get()),
          "cudnnBackendExecute");
  }
};

/// cuDNN takes what it reads, too, by pointers that are not const.
void* read_from(const float* p) {
  return const_cast<float*>(p);
}

/// x, filter and y of a call, in the order in which each pass lists them.
std::array<void*, 3> operands_of(operator_type type, const kernel_args& a) {
  switch (type) {
    case operator_type::conv_forward:
      return {read_from(in(a, 0)), read_from(in(a, 1)), out(a, 0)};
    case operator_type::conv_backward_data:
      return {out(a, 0), read_from(in(a, 1)), read_from(in(a, 0))};
    default:
      return {read_from(in(a, 0)), out(a, 0), read_from(in(a, 1))};
  }
}

}  // namespace

std::string cudnn_engines_version() {
  const std::size_t v = cudnnGetVersion();  // 91900
  if (v < 90800) return {};
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}

std::shared_ptr<const cudnn_gpu> described_gpu(const std::string& json) {
  return std::make_shared<const cudnn_gpu>(json);
}

std::vector<engine_candidate> convolution_engines(const cudnn_gpu& gpu, operator_type type,
                                                  const conv_shape& s) {
  return candidates_of(configurations(gpu, problem(gpu, type, s)));
}

std::optional<engine_candidate> convolution_engine(const cudnn_gpu& gpu, const engine_rule& rule,
                                                   operator_type type, const conv_shape& s) {
  auto found = choose(gpu, problem(gpu, type, s), rule);
  if (!found) return std::nullopt;
  return std::move(found->engine);
}

std::optional<bound_operator> graph_convolution(const std::shared_ptr<cudnn_handle>& handle,
                                                const engine_rule& rule, operator_type type,
                                                const conv_shape& s) {
  const cudnn_gpu gpu(handle);
  problem what(gpu, type, s);
  auto chosen = choose(gpu, what, rule);
  if (!chosen) return std::nullopt;
  bound_operator bound;
  bound.workspace = chosen->engine.workspace.count;
  bound.algorithm = "cuDNN " + to_string(chosen->engine);
  const auto plan =
      std::make_shared<const bound_plan>(bound_plan{handle, std::move(what), *std::move(chosen)});
  bound.run = [plan, type](const kernel_args& a) { plan->run(operands_of(type, a), a.workspace); };
  return bound;
}

}  // namespace delta::executor

#else

#include "cuda/cudnn_engines_none.hpp"

#endif

// Our convolutions beside oneDNN's own primitives (NHWC, filters in the layout oneDNN likes best,
// put there outside the measured time), over all convolutions of one ResNet-50 step, or with
// --grouped over convolutions with groups: those of one ResNeXt-50 32x4d step, then some depthwise
// and other ones, once each.
//
//   convolution_bench --image 224 --batch 8 --threads 2 [--repetitions 7] [--grouped] [--layers]
//                     [--cpu-time]
//
// Per layer and pass the two are measured in turn, and of each the median and the least are kept;
// the last rows hold sums over layers, each as often as the network has it. --cpu-time measures the
// process's processor time: with --threads 1, a figure that holds on a busy machine too.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <thread>
#include <vector>

#include "kernels/kernels.hpp"

namespace {

using namespace delta::executor;
using tag = dnnl::memory::format_tag;

struct options {
  int image = 224, batch = 8, threads = 2, repetitions = 7;
  bool grouped = false, layers = false, cpu_time = false;
};

struct layer {
  conv_shape shape;
  int count;
};

/// The convolutions of torchvision's ResNet-50 (the stride is in the 3x3), equal shapes merged.
std::vector<layer> resnet50(int image, int batch) {
  std::vector<layer> layers;
  const auto add = [&](int size, int in, int out, int kernel, int stride, int pad) {
    const conv_shape s{batch, size, size, in, out, kernel, kernel, stride, pad};
    for (auto& l : layers) {
      if (std::memcmp(&l.shape, &s, sizeof s) == 0) {
        ++l.count;
        return s.oh();
      }
    }
    layers.push_back({s, 1});
    return s.oh();
  };
  int size = add(image, 3, 64, 7, 2, 3);
  size = (size + 2 - 3) / 2 + 1;
  int channels = 64;
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int width = 64 << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      const int stride = stage > 0 && block == 0 ? 2 : 1;
      if (block == 0) add(size, channels, 4 * width, 1, stride, 0);
      add(size, channels, width, 1, 1, 0);
      size = add(size, width, width, 3, stride, 1);
      add(size, width, 4 * width, 1, 1, 0);
      channels = 4 * width;
    }
  }
  return layers;
}

/// The 3x3 convolutions of torchvision's ResNeXt-50 32x4d; then depthwise ones as MobileNetV2 has
/// them, one of 5x5, one with two outputs per channel, and some with wider groups.
std::vector<layer> with_groups(int image, int batch) {
  std::vector<layer> layers;
  const auto add = [&](int part, int in, int out, int kernel, int stride, int groups, int count) {
    const int size = std::max(1, image / part);
    layers.push_back(
        {{batch, size, size, in, out, kernel, kernel, stride, kernel / 2, groups}, count});
  };
  add(4, 128, 128, 3, 1, 32, 3);
  add(4, 256, 256, 3, 2, 32, 1);
  add(8, 256, 256, 3, 1, 32, 3);
  add(8, 512, 512, 3, 2, 32, 1);
  add(16, 512, 512, 3, 1, 32, 5);
  add(16, 1024, 1024, 3, 2, 32, 1);
  add(32, 1024, 1024, 3, 1, 32, 2);
  add(2, 32, 32, 3, 1, 32, 1);
  add(4, 144, 144, 3, 1, 144, 1);
  add(4, 144, 144, 3, 2, 144, 1);
  add(16, 576, 576, 3, 1, 576, 1);
  add(16, 576, 576, 5, 1, 576, 1);
  add(32, 960, 960, 3, 1, 960, 1);
  add(8, 32, 64, 3, 1, 32, 1);
  add(8, 96, 96, 3, 1, 4, 1);
  add(8, 120, 240, 3, 1, 3, 1);
  add(16, 256, 256, 1, 1, 8, 1);
  return layers;
}

/// Floats aligned to a cache line, filled with something finite and dull.
class buffer {
 public:
  explicit buffer(std::size_t bytes)
      : size_(bytes / sizeof(float) + 16),
        data_(static_cast<float*>(::operator new(size_ * sizeof(float), std::align_val_t{64}))) {
    for (std::size_t i = 0; i < size_; ++i) data_[i] = float(int(i * 37 % 101) - 50) / 64.0f;
  }
  ~buffer() { ::operator delete(data_, std::align_val_t{64}); }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  [[nodiscard]] float* data() const { return data_; }
  [[nodiscard]] std::byte* bytes() const { return reinterpret_cast<std::byte*>(data_); }

 private:
  std::size_t size_;
  float* data_;
};

double now(const options& o) {
  if (o.cpu_time) return double(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
double seconds(const options& o, const F& run) {
  const double begin = now(o);
  run();
  return now(o) - begin;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// Seconds: medians, and the least, which a busy machine disturbs less.
struct pair_of_times {
  double ours = 0.0, theirs = 0.0, ours_least = 0.0, theirs_least = 0.0;
  void add(const pair_of_times& t, int count) {
    ours += count * t.ours;
    theirs += count * t.theirs;
    ours_least += count * t.ours_least;
    theirs_least += count * t.theirs_least;
  }
};

/// Runs for some milliseconds, so that threads are awake and on processors of their own, as within
/// a training step; then once more, measured.
template <class F>
double warm_seconds(const options& o, const F& run) {
  using clock = std::chrono::steady_clock;
  const auto end = clock::now() + std::chrono::milliseconds(10);
  do {
    run();
  } while (clock::now() < end);
  return seconds(o, run);
}

/// Both, run in turn. Before ours there is a pause, in which oneDNN's idle threads stop spinning.
template <class Ours, class Theirs>
pair_of_times compare(const options& o, const Ours& ours, const Theirs& theirs) {
  using namespace std::chrono_literals;
  std::vector<double> a, b;
  for (int i = 0; i <= o.repetitions; ++i) {
    omp_set_num_threads(1);
    std::this_thread::sleep_for(15ms);
    const double mine = warm_seconds(o, ours);
    omp_set_num_threads(o.threads);
    const double other = warm_seconds(o, theirs);
    if (i == 0) continue;  // both warm up
    a.push_back(mine);
    b.push_back(other);
  }
  return {median(a), median(b), *std::min_element(a.begin(), a.end()),
          *std::min_element(b.begin(), b.end())};
}

class layer_bench {
 public:
  layer_bench(const options& o, thread_pool& pool, const conv_shape& s)
      : options_(o),
        pool_(pool),
        s_(s),
        x_(s.in_size() * sizeof(float)),
        filter_(s.filter_size() * sizeof(float)),
        y_(s.out_size() * sizeof(float)),
        workspace_(std::max({conv_forward_workspace(s, o.threads),
                             conv_backward_data_workspace(s, o.threads),
                             conv_backward_filter_workspace(s, o.threads)})) {}

  pair_of_times forward() {
    const auto primitive_description = forward_description();
    const dnnl::memory src(nhwc(s_.c, s_.h, s_.w), engine_, x_.data());
    const dnnl::memory dst(nhwc(s_.k, s_.oh(), s_.ow()), engine_, y_.data());
    dnnl::memory weights(primitive_description.weights_desc(), engine_);
    fill(weights);
    const dnnl::convolution_forward primitive(primitive_description);
    return compare(
        options_,
        [&] { conv_forward(pool_, s_, x_.data(), filter_.data(), y_.data(), workspace_.bytes()); },
        [&] {
          primitive.execute(
              stream_, {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}});
          stream_.wait();
        });
  }

  pair_of_times backward_data() {
    using namespace dnnl;
    const convolution_backward_data::primitive_desc description(
        {algorithm::convolution_direct, nhwc(s_.c, s_.h, s_.w), any_filter(),
         nhwc(s_.k, s_.oh(), s_.ow()), strides(), padding(), padding()},
        engine_, forward_description());
    const memory diff_src(nhwc(s_.c, s_.h, s_.w), engine_, x_.data());
    const memory diff_dst(nhwc(s_.k, s_.oh(), s_.ow()), engine_, y_.data());
    memory weights(description.weights_desc(), engine_);
    fill(weights);
    const convolution_backward_data primitive(description);
    return compare(
        options_,
        [&] {
          conv_backward_data(pool_, s_, y_.data(), filter_.data(), x_.data(), workspace_.bytes());
        },
        [&] {
          primitive.execute(stream_, {{DNNL_ARG_DIFF_SRC, diff_src},
                                      {DNNL_ARG_WEIGHTS, weights},
                                      {DNNL_ARG_DIFF_DST, diff_dst}});
          stream_.wait();
        });
  }

  pair_of_times backward_filter() {
    using namespace dnnl;
    const convolution_backward_weights::primitive_desc description(
        {algorithm::convolution_direct, nhwc(s_.c, s_.h, s_.w), any_filter(),
         nhwc(s_.k, s_.oh(), s_.ow()), strides(), padding(), padding()},
        engine_, forward_description());
    const memory src(nhwc(s_.c, s_.h, s_.w), engine_, x_.data());
    const memory diff_dst(nhwc(s_.k, s_.oh(), s_.ow()), engine_, y_.data());
    const memory diff_weights(description.diff_weights_desc(), engine_);
    const convolution_backward_weights primitive(description);
    return compare(
        options_,
        [&] {
          conv_backward_filter(pool_, s_, x_.data(), y_.data(), filter_.data(), workspace_.bytes());
        },
        [&] {
          primitive.execute(stream_, {{DNNL_ARG_SRC, src},
                                      {DNNL_ARG_DIFF_WEIGHTS, diff_weights},
                                      {DNNL_ARG_DIFF_DST, diff_dst}});
          stream_.wait();
        });
  }

 private:
  [[nodiscard]] dnnl::memory::desc nhwc(int c, int h, int w) const {
    return {{s_.n, c, h, w}, dnnl::memory::data_type::f32, tag::nhwc};
  }
  [[nodiscard]] dnnl::memory::desc any_filter() const {
    dnnl::memory::dims sizes{s_.k / s_.groups, s_.c / s_.groups, s_.kh, s_.kw};
    if (s_.groups > 1) sizes.insert(sizes.begin(), s_.groups);
    return {sizes, dnnl::memory::data_type::f32, tag::any};
  }
  [[nodiscard]] dnnl::memory::dims strides() const { return {s_.stride, s_.stride}; }
  [[nodiscard]] dnnl::memory::dims padding() const { return {s_.pad, s_.pad}; }
  [[nodiscard]] dnnl::convolution_forward::primitive_desc forward_description() const {
    using namespace dnnl;
    omp_set_num_threads(options_.threads);  // primitives are made for a number of threads
    return {{prop_kind::forward_training, algorithm::convolution_direct, nhwc(s_.c, s_.h, s_.w),
             any_filter(), nhwc(s_.k, s_.oh(), s_.ow()), strides(), padding(), padding()},
            engine_};
  }
  static void fill(dnnl::memory& m) {
    auto* values = static_cast<float*>(m.get_data_handle());
    for (std::size_t i = 0; i < m.get_desc().get_size() / sizeof(float); ++i) {
      values[i] = float(int(i * 37 % 101) - 50) / 64.0f;
    }
  }

  const options& options_;
  thread_pool& pool_;
  conv_shape s_;
  buffer x_, filter_, y_, workspace_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
};

void print_row(const char* name, const pair_of_times& t) {
  std::printf("%-44s %9.2f %9.2f %6.2f  %9.2f %9.2f %6.2f\n", name, t.ours * 1e3, t.theirs * 1e3,
              t.ours / t.theirs, t.ours_least * 1e3, t.theirs_least * 1e3,
              t.ours_least / t.theirs_least);
}

std::string describe(const layer& l) {
  const auto& s = l.shape;
  char text[64];
  std::snprintf(text, sizeof text, "%dx %dx%d %d>%d %dx%d/%d", l.count, s.h, s.w, s.c, s.k, s.kh,
                s.kw, s.stride);
  return s.groups == 1 ? text : text + (" g" + std::to_string(s.groups));
}

void run(const options& o) {
  thread_pool pool(o.threads);
  const char* const names[] = {"forward", "backward data", "backward filter"};
  pair_of_times sums[3], total;
  std::size_t workspace = 0;
  std::printf("%s, image %d, batch %d, threads %d, %d repetitions\n",
              o.grouped ? "with groups" : "ResNet-50", o.image, o.batch, o.threads, o.repetitions);
  std::printf("%-44s %26s  %26s\n%-44s %9s %9s %6s  %9s %9s %6s\n", "", "median, ms", "least, ms",
              "", "ours", "oneDNN", "ratio", "ours", "oneDNN", "ratio");
  const auto layers = o.grouped ? with_groups(o.image, o.batch) : resnet50(o.image, o.batch);
  for (const auto& l : layers) {
    layer_bench bench(o, pool, l.shape);
    // The first layer's input is data: no gradient is wanted.
    const pair_of_times times[] = {bench.forward(),
                                   l.shape.c == 3 ? pair_of_times{} : bench.backward_data(),
                                   bench.backward_filter()};
    for (int pass = 0; pass < 3; ++pass) {
      sums[pass].add(times[pass], l.count);
      if (o.layers && times[pass].ours > 0) {
        print_row((describe(l) + " " + names[pass]).c_str(), times[pass]);
      }
    }
    workspace = std::max({workspace, conv_forward_workspace(l.shape, o.threads),
                          conv_backward_data_workspace(l.shape, o.threads),
                          conv_backward_filter_workspace(l.shape, o.threads)});
  }
  for (int pass = 0; pass < 3; ++pass) {
    print_row(names[pass], sums[pass]);
    total.add(sums[pass], 1);
  }
  print_row("total", total);
  std::printf("largest workspace: %.1f MiB\n", double(workspace) / (1 << 20));
}

}  // namespace

int main(int argc, char** argv) {
  options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    int* value = name == "--image"         ? &o.image
                 : name == "--batch"       ? &o.batch
                 : name == "--threads"     ? &o.threads
                 : name == "--repetitions" ? &o.repetitions
                                           : nullptr;
    if (name == "--layers") {
      o.layers = true;
    } else if (name == "--grouped") {
      o.grouped = true;
    } else if (name == "--cpu-time") {
      o.cpu_time = true;
    } else if (value && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      *value = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr,
                   "usage: convolution_bench [--image N] [--batch N] [--threads N] "
                   "[--repetitions N] [--grouped] [--layers] [--cpu-time]\n");
      return 2;
    }
  }
  run(o);
}

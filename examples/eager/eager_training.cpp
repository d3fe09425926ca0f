// Trains a small network with the eager library: once with all the memory that it takes, then with
// 40 % of that. Losses and parameters must be the same bits.
#include <bit>
#include <cstdio>

#include "eager.hpp"

namespace {

using eager::layout, eager::matrices, eager::matrix, eager::tensor, eager::tensors;

/// The rows of `x` whose label is not negative. How many these are, the labels tell.
tensor labelled(const tensor& x, const tensor& labels) {
  const auto shape = [](const matrices& in) {
    layout out{0, in[0].columns};
    for (std::size_t i = 0; i < in[1].rows; ++i) out.rows += in[1](i, 0) >= 0;
    return out;
  };
  const auto gather = [](const matrices& in, const matrix& y, delta::call&) {
    std::size_t row = 0;
    for (std::size_t i = 0; i < in[0].rows; ++i) {
      if (in[1](i, 0) < 0) continue;
      for (std::size_t j = 0; j < y.columns; ++j) y(row, j) = in[0](i, j);
      ++row;
    }
  };
  return eager::apply("labelled", {x, labels}, shape, double(x.rows * x.columns), gather);
}
/// Mean cross-entropy of softmax(logits) and the labels.
tensor cross_entropy(const tensor& logits, const tensor& labels) {
  const auto softmax = [](const matrix& x, std::size_t i, std::size_t j) {
    float sum = 0;
    for (std::size_t k = 0; k < x.columns; ++k) sum += std::exp(x(i, k) - x(i, j));
    return 1 / sum;
  };
  const auto loss = [=](const matrices& in, auto, auto) {
    float sum = 0;
    for (std::size_t i = 0; i < in[0].rows; ++i)
      sum -= std::log(softmax(in[0], i, std::size_t(in[1](i, 0)))) / float(in[0].rows);
    return sum;
  };
  const auto slope = [=](const matrices& in, std::size_t i, std::size_t j) {
    const float hit = std::size_t(in[1](i, 0)) == j ? 1.0f : 0.0f;
    return in[2](0, 0) * (softmax(in[0], i, j) - hit) / float(in[0].rows);
  };
  const tensor y =
      eager::element_wise("loss", {logits, labels}, {1, 1}, 20.0 * double(logits.rows), loss);
  return eager::derived(y, {logits}, [=](const tensor& dy) -> tensors {
    return {eager::element_wise("loss_backward", {logits, labels, dy}, logits, 20, slope)};
  });
}

constexpr std::size_t steps = 40;

struct outcome {
  std::vector<std::uint32_t> bits;  // losses, then all parameters
  delta::bytes peak{};
  delta::counters counts;
};

float noise(std::uint64_t n) {
  n = (n + 1) * 0x9e3779b97f4a7c15u;
  n = (n ^ (n >> 29)) * 0xbf58476d1ce4e5b9u;
  return float(double(n >> 11) * 0x1p-52 - 1);
}

outcome train(delta::bytes budget) {
  constexpr std::size_t batch = 256, width = 32, layers = 8, classes = 4;
  delta::host_device memory;
  eager::machine storage{memory, {.capacity = budget, .host_capacity = delta::bytes{16 << 20}}};
  eager::manager manager{delta::online(), storage};
  outcome result;

  const auto images = eager::variable(manager, {4 * batch, width}, [](auto i, auto j) {
    return noise(i * width + j) + (j % classes == i % classes ? 1.0f : 0.0f);
  });
  const auto labels = eager::variable(manager, {4 * batch, 1}, [](auto i, auto) {
    return i % 10 == 9 ? -1.0f : float(i % classes);  // one in ten has none
  });
  const auto parameter = [&](std::size_t rows, std::size_t columns, float scale) {
    const auto start = [=](auto i, auto j) { return scale * noise(7777 + i * columns + j); };
    return eager::derived(eager::variable(manager, {rows, columns}, start), {}, nullptr);
  };
  std::vector<tensor> weights, biases;
  for (std::size_t l = 0; l < layers; ++l) {
    weights.push_back(parameter(width, l + 1 < layers ? width : classes, 0.4f));
    biases.push_back(parameter(1, l + 1 < layers ? width : classes, 0));
  }

  for (std::size_t step = 0; step < steps; ++step) {
    const auto first = step % 4 * batch;
    const auto seen = labels.slice(first, batch);
    tensor x = labelled(images.slice(first, batch), seen);
    const tensor y = labelled(seen, seen);
    for (std::size_t l = 0; l < layers; ++l) {
      x = eager::add_bias(eager::matmul(x, weights[l]), biases[l]);
      if (l + 1 < layers) x = eager::dropout(eager::relu_(x), 0.05f);
    }
    const tensor loss = cross_entropy(x, y);
    result.bits.push_back(std::bit_cast<std::uint32_t>(eager::item(loss)));
    eager::backward(loss);
    for (const auto* list : {&weights, &biases})
      for (const tensor& w : *list) eager::descend(w, 0.2f);
    manager.end_of_step();
  }
  for (const auto* list : {&weights, &biases})
    for (const tensor& w : *list)
      for (std::size_t i = 0; i < w.rows; ++i)
        for (std::size_t j = 0; j < w.columns; ++j)
          result.bits.push_back(std::bit_cast<std::uint32_t>(eager::item(w, i, j)));
  result.peak = storage.peak();
  result.counts = manager.counts();
  return result;
}

}  // namespace

int main() {
  const outcome all = train(delta::bytes{64 << 20});
  const outcome less = train(delta::bytes{all.peak.count * 2 / 5});
  const delta::counters& n = less.counts;
  const bool equal = all.bits == less.bits;
  const float first = std::bit_cast<float>(all.bits[0]);
  const float last = std::bit_cast<float>(all.bits[steps - 1]);
  std::printf(
      "%llu KiB, then %llu KiB: loss %.4f to %.4f; %llu evicted, %llu offloaded, "
      "%llu recomputed, %llu reloaded: %s\n",
      static_cast<unsigned long long>(all.peak.count >> 10),
      static_cast<unsigned long long>(less.peak.count >> 10), double(first), double(last),
      static_cast<unsigned long long>(n.evictions), static_cast<unsigned long long>(n.offloads),
      static_cast<unsigned long long>(n.recomputes), static_cast<unsigned long long>(n.reloads),
      equal ? "equal" : "DIFFERENT");
  const bool managed = n.evictions > 0 && n.offloads > 0 && n.recomputes > 0;
  return equal && managed && last < first / 2 ? 0 : 1;
}

// A first budget: sixteen layers, forward and backward, in a third of the memory that they take.
#include <algorithm>
#include <array>
#include <cmath>
#include <delta/delta.hpp>
#include <iostream>

using namespace delta::literals;
using namespace std::chrono_literals;

constexpr delta::bytes size = 1_MiB;  // of every tensor
constexpr std::size_t count = size.count / sizeof(float), layers = 16;
std::span<float> floats(std::byte* p) {
  return {reinterpret_cast<float*>(p), count};
}
// Odd layers are dear, even ones cheap.
constexpr auto apply = [](std::size_t i, float x) { return i % 2 ? std::sin(x) : x / 2; };
constexpr auto slope = [](std::size_t i, float x) { return i % 2 ? std::cos(x) : 0.5f; };
delta::tensor_id ones(auto& manager) {
  const delta::tensor_id t = manager.variable(size);  // no operator makes it
  const auto written = manager.acquire(t, delta::access::write);
  std::ranges::fill(floats(written.data()), 1.0f);
  return t;
}

int main() {
  delta::host_device machine;
  delta::arena storage{machine, {.capacity = 6_MiB, .host_capacity = 12_MiB}};
  delta::manager manager{delta::online(), storage};
  std::array<delta::tensor_id, layers + 1> x{ones(manager)};
  for (std::size_t i = 0; i < layers; ++i) {
    const auto forward = [i](delta::call& c) {
      for (std::size_t k = 0; k < count; ++k) floats(c.out(0))[k] = apply(i, floats(c.in(0))[k]);
    };
    const std::chrono::nanoseconds cost = i % 2 ? 3ms : 100us;  // what it should take
    x[i + 1] = manager.run({.inputs = {x[i]}, .outputs = {size}, .cost = cost}, forward);
  }
  delta::tensor_id dy = ones(manager);
  for (std::size_t i = layers; i-- > 0;) {
    const auto backward = [i](delta::call& c) {
      for (std::size_t k = 0; k < count; ++k)
        floats(c.out(0))[k] = floats(c.in(1))[k] * slope(i, floats(c.in(0))[k]);
    };
    manager.drop(x[i + 1]);
    const auto dx = manager.run({.inputs = {x[i], dy}, .outputs = {size}, .cost = 3ms}, backward);
    manager.drop(std::exchange(dy, dx));
  }

  std::array<float, layers + 1> plain{1};  // the same for one number, without delta
  for (std::size_t i = 0; i < layers; ++i) plain[i + 1] = apply(i, plain[i]);
  float wanted = 1;
  for (std::size_t i = layers; i-- > 0;) wanted *= slope(i, plain[i]);
  const auto result = manager.acquire(dy);
  const bool equal = std::ranges::count(floats(result.data()), wanted) == count;
  const delta::counters& n = manager.counts();
  std::cout << n.evictions << " evicted, " << n.offloads << " offloaded, " << n.recomputes
            << " recomputed, " << n.reloads << " reloaded: " << (equal ? "equal" : "WRONG") << '\n';
  return equal && n.evictions > 0 && n.offloads > 0 && storage.peak() <= 6_MiB ? 0 : 1;
}

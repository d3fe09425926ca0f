// Steps of data-parallel training for tests: random layers, on random groups of ranks.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "recordings.hpp"
#include "traces/collectives.hpp"
#include "traces/trace.hpp"

namespace delta::test {

/// A step of random layers: sizes, times, and which of them have weights.
inline trace random_step(std::mt19937_64& random) {
  const auto up_to = [&](std::uint64_t most) { return 1 + random() % most; };
  const std::uint64_t layers = up_to(12);
  std::string weights, forward, backward, inputs, updates, drops;
  std::uint64_t next = layers;
  std::vector<std::uint64_t> size(layers), made(layers + 1);
  for (std::uint64_t i = 0; i < layers; ++i) {
    size[i] = up_to(200);
    weights += R"({"variable":)" + std::to_string(size[i]) + R"(,"name":"parameters"})" + "\n";
  }
  const auto line = [&](const std::string& in, const std::string& out, const std::string& rest) {
    return R"({"run":"layer","cost":)" + std::to_string(up_to(300)) + R"(,"inputs":[)" + in +
           R"(],"outputs":[)" + out + "]" + rest + "}\n";
  };
  for (std::uint64_t i = 0; i < layers; ++i) {
    const std::string before = i > 0 ? "," + std::to_string(made[i - 1]) : "";
    forward += line(std::to_string(i) + before, std::to_string(up_to(100)), "");
    made[i] = next++;
  }
  std::uint64_t g = made[layers - 1];
  for (std::uint64_t i = layers; i-- > 0;) {
    const std::string before = i > 0 ? "," + std::to_string(made[i - 1]) : "";
    backward += line(std::to_string(i) + "," + std::to_string(g) + before,
                     std::to_string(size[i]) + "," + std::to_string(up_to(100)),
                     R"(,"gradients":[)" + std::to_string(next) + "]");
    backward += R"({"drop":)" + std::to_string(g) + "}\n";
    g = next + 1;
    const std::string comma = inputs.empty() ? "" : ",";
    inputs += comma + std::to_string(next), updates += comma + std::to_string(i);
    drops += R"({"drop":)" + std::to_string(next) + "}\n";
    next += 2;
  }
  drops += R"({"drop":)" + std::to_string(g) + "}\n";
  return parsed("{\"delta_trace\":1}\n" + weights + forward + R"({"mark":"backward"})" + "\n" +
                backward + R"({"run":"optimizer","cost":9,"inputs":[)" + inputs +
                R"(],"updates":[)" + updates + "]}\n" + drops + R"({"mark":"end_of_step"})" + "\n");
}

inline rank_group random_group(std::mt19937_64& random) {
  const auto up_to = [&](std::uint64_t most) { return 1 + random() % most; };
  return {.ranks = 1 + up_to(100),
          .how = random() % 2 == 0 ? all_reduce::ring : all_reduce::tree,
          .rate = double(up_to(2'000'000'000)) + 1e6,
          .latency = nanoseconds{std::int64_t(random() % 20)},
          .copy_rate = random() % 2 == 0 ? 0 : 1e9,
          .first_bucket = bytes{up_to(100)},
          .bucket = bytes{up_to(500)},
          .unit = bytes{up_to(500)}};
}

}  // namespace delta::test

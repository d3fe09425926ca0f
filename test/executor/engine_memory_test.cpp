// What the workspaces of a command line's runs are weighed against: one memory for all of them, as
// which engines convolutions get, and with them the bits, depend on it.
#include <doctest/doctest.h>

#include <cstdint>
#include <ostream>
#include <vector>

#include "cli/options.hpp"
#include "model/live_bytes.hpp"
#include "train/training_run.hpp"
#include "training.hpp"

using namespace delta::executor;
using delta::test::absolute;
using delta::test::managed;
using delta::test::percent;

namespace {

const train_options plain = delta::test::unmanaged({"resnet20", 16, 4, 1});

std::uint64_t memory_of(const train_options& o) {
  std::ostream nowhere(nullptr);
  return training_bench(o, nowhere).training.memory;
}

std::uint64_t peak() {
  std::ostream nowhere(nullptr);
  const training_bench bench(plain, nowhere);
  return peak_of_values(bench.training, bench.on->granularity());
}

}  // namespace

TEST_CASE("a run without a budget has what its values take, and so has one that looks for one") {
  CHECK(memory_of(plain) == peak());
  train_options o = plain;
  o.policy = "adaptive";
  o.find_budget = true;
  CHECK(memory_of(o) == peak());
}

TEST_CASE("a budget is the memory, of the run and of the unmanaged one that it is compared with") {
  CHECK(memory_of(managed(plain, "adaptive", percent(40))) == peak() * 40 / 100);
  CHECK(memory_of(managed(plain, "adaptive", absolute(peak() / 3))) == peak() / 3);
  for (const char* policy : {"adaptive", "dtr", "unmanaged"}) {
    train_options o = managed(plain, policy, percent(40));
    o.verify = true;
    CHECK(memory_of(o) == peak() * 40 / 100);
  }
}

TEST_CASE("a budget of more than an unmanaged run takes changes nothing") {
  CHECK(memory_of(managed(plain, "adaptive", absolute(3 * peak()))) == peak());
  CHECK(memory_of(managed(plain, "adaptive", percent(100))) == peak());
}

TEST_CASE("evaluations are in the same memory") {
  train_options o = managed(plain, "adaptive", percent(50));
  o.evaluate = true;
  std::ostream nowhere(nullptr);
  const training_bench bench(o, nowhere);
  REQUIRE_FALSE(bench.inference.empty());
  for (const graph& g : bench.inference) CHECK(g.memory == bench.training.memory);
}

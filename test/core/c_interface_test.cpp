// The functions of C: what is wrong is told, and crashes nobody; what works under one policy works
// under all.
#include "delta/engine/c_interface.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace {

constexpr std::uint64_t unit = 64;

struct managed {
  explicit managed(const char* policy = "online", std::uint64_t budget = 1 << 20,
                   std::uint64_t host_budget = 1 << 20) {
    delta_options o = {};
    o.policy = policy, o.budget = budget, o.host_budget = host_budget;
    delta_error e;
    m = delta_create(&o, &e);
    REQUIRE_MESSAGE(m != nullptr, e.what);
  }
  managed(const managed&) = delete;
  managed& operator=(const managed&) = delete;
  ~managed() { delta_destroy(m); }
  [[nodiscard]] std::string error() const { return delta_last_error(m)->what; }
  delta_manager* m;
};

// Writes the sum of all inputs, plus one, to every output.
int sums(void* /*state*/, const delta_call* c) {
  unsigned char sum = 1;
  for (std::size_t i = 0; const void* in = delta_call_in(c, i); ++i)
    sum = static_cast<unsigned char>(sum + *static_cast<const unsigned char*>(in));
  for (std::size_t i = 0; void* out = delta_call_out(c, i); ++i) std::memset(out, sum, unit);
  return 0;
}
const delta_kernel summing{&sums, nullptr, nullptr};

int first_byte(delta_manager* m, delta_tensor t) {
  delta_view v;
  REQUIRE(delta_acquire(m, t, 0, &v) == DELTA_OK);
  const int byte = *static_cast<const unsigned char*>(v.data);
  delta_release(m, v.slot);
  return byte;
}

}  // namespace

TEST_CASE("c: an output replaces an input under every policy") {
  const char* name = nullptr;
  for (std::size_t i = 0; (name = delta_policy_name(i)) != nullptr; ++i) {
    CAPTURE(name);
    const managed it(name);
    delta_manager* const m = it.m;
    delta_tensor x = DELTA_NO_TENSOR, y = DELTA_NO_TENSOR;
    delta_operation make = {};
    make.outputs = &unit, make.output_count = 1;
    REQUIRE(delta_run(m, &make, summing, &x) == DELTA_OK);
    const bool comes_back = delta_recomputable(m, x) != 0;
    delta_operation over = {};
    over.inputs = &x, over.input_count = 1;
    REQUIRE(delta_begin(m, &over) == DELTA_OK);
    std::size_t place = 7;
    CHECK(delta_replace(m, x, &place) == DELTA_OK);
    CHECK(place == 0);
    const delta_call* c = nullptr;
    REQUIRE(delta_arguments(m, &c) == DELTA_OK);
    CHECK(delta_call_in(c, 0) == delta_call_out(c, 0));
    sums(nullptr, c);
    REQUIRE(delta_end(m, summing, &y, 1) == DELTA_OK);
    CHECK(first_byte(m, y) == 2);
    delta_view v;
    // As the program was told: the old version can be used, or only be dropped.
    CHECK(delta_acquire(m, x, 0, &v) == (comes_back ? DELTA_OK : DELTA_MISUSE));
    if (comes_back) delta_release(m, v.slot);
    CHECK(delta_drop(m, x) == DELTA_OK);
    CHECK(delta_drop(m, y) == DELTA_OK);
  }
}

TEST_CASE("c: NULL is told, not followed") {
  delta_tensor t = DELTA_NO_TENSOR;
  std::size_t place = 0;
  std::uint64_t size = unit;
  delta_block b = {};
  delta_view v = {};
  const delta_call* call = nullptr;
  delta_counts counts;
  delta_error e;
  CHECK(delta_create(nullptr, &e) == nullptr);
  CHECK(e.status == DELTA_MISUSE);
  CHECK(delta_create(nullptr, nullptr) == nullptr);
  delta_operation op = {};

  const auto refuse = [&](delta_manager* m) {
    // With a manager each lacks something else.
    delta_tensor* const made = m == nullptr ? &t : nullptr;
    std::size_t* const at = m == nullptr ? &place : nullptr;
    CHECK(delta_constant(m, unit, "c", made) == DELTA_MISUSE);
    CHECK(delta_variable(m, unit, "v", made) == DELTA_MISUSE);
    CHECK(delta_size(m, t, m == nullptr ? &size : nullptr) == DELTA_MISUSE);
    CHECK(delta_take_block(m, unit, m == nullptr ? &b : nullptr) == DELTA_MISUSE);
    CHECK(delta_constant_of(m, b, "c", made) == DELTA_MISUSE);
    CHECK(delta_variable_of(m, b, "v", made) == DELTA_MISUSE);
    CHECK(delta_acquire(m, t, 0, m == nullptr ? &v : nullptr) == DELTA_MISUSE);
    CHECK(delta_run(m, nullptr, summing, made) == DELTA_MISUSE);
    CHECK(delta_begin(m, nullptr) == DELTA_MISUSE);
    CHECK(delta_allocate(m, unit, at) == DELTA_MISUSE);
    CHECK(delta_allocate_all(m, &size, 1, at) == DELTA_MISUSE);
    CHECK(delta_allocate_block(m, b, at) == DELTA_MISUSE);
    CHECK(delta_replace(m, t, at) == DELTA_MISUSE);
    CHECK(delta_replace_all(m, &t, 1, at) == DELTA_MISUSE);
    CHECK(delta_workspace(m, unit, at) == DELTA_MISUSE);
    CHECK(delta_replay_workspace(m, unit, at) == DELTA_MISUSE);
    CHECK(delta_arguments(m, m == nullptr ? &call : nullptr) == DELTA_MISUSE);
  };
  refuse(nullptr);
  CHECK(delta_share(nullptr, t) == DELTA_MISUSE);
  CHECK(delta_drop(nullptr, t) == DELTA_MISUSE);
  CHECK(delta_forbid(nullptr, t, DELTA_PIN_BOTH) == DELTA_MISUSE);
  CHECK(delta_run(nullptr, &op, summing, nullptr) == DELTA_MISUSE);
  CHECK(delta_end(nullptr, summing, &t, 1) == DELTA_MISUSE);
  CHECK(delta_make_room(nullptr, 1) == DELTA_MISUSE);
  CHECK(delta_backward(nullptr) == DELTA_MISUSE);
  CHECK(delta_end_of_step(nullptr) == DELTA_MISUSE);
  CHECK(delta_recomputable(nullptr, t) == 0);
  CHECK(std::string(delta_last_error(nullptr)->what) == "the manager is NULL");
  CHECK(delta_last_error(nullptr)->status == DELTA_MISUSE);
  delta_give_back(nullptr, b);
  delta_release(nullptr, 0);
  delta_abort(nullptr);
  delta_destroy(nullptr);
  delta_count(nullptr, &counts);
  CHECK(counts.operators == 0);
  delta_count(nullptr, nullptr);
  CHECK(delta_call_in(nullptr, 0) == nullptr);
  CHECK(delta_call_out(nullptr, 0) == nullptr);
  CHECK(delta_call_update(nullptr, 0) == nullptr);
  CHECK(delta_call_workspace(nullptr, 0) == nullptr);
  CHECK(delta_call_stream(nullptr) == nullptr);
  CHECK(delta_call_sequence(nullptr) == 0);
  CHECK(delta_call_replaying(nullptr) == 0);

  const managed it;
  delta_count(it.m, nullptr);
  refuse(it.m);
  CHECK(delta_variable(it.m, unit, nullptr, &t) == DELTA_OK);
  CHECK(delta_begin(it.m, &op) == DELTA_OK);
  refuse(it.m);
  CHECK(delta_allocate_all(it.m, nullptr, 1, &place) == DELTA_MISUSE);
  CHECK(it.error() == "a list with a count is NULL");
  CHECK(delta_replace_all(it.m, nullptr, 1, &place) == DELTA_MISUSE);
  CHECK(delta_allocate(it.m, unit, &place) == DELTA_OK);
  CHECK(delta_end(it.m, summing, nullptr, 1) == DELTA_MISUSE);
  delta_abort(it.m);
  delta_release(it.m, 99);
  CHECK(it.error() == "delta_release: there is no such view");
  delta_count(it.m, &counts);
  CHECK(counts.used == unit);  // nothing was made that nobody could name
  for (int list = 0; list < 3; ++list) {
    delta_operation lacks = {};
    (list == 0 ? lacks.input_count : list == 1 ? lacks.output_count : lacks.update_count) = 1;
    CHECK(delta_begin(it.m, &lacks) == DELTA_MISUSE);
    CHECK(delta_run(it.m, &lacks, summing, &t) == DELTA_MISUSE);
  }
}

TEST_CASE("c: a kernel is destroyed where the function that it was given to is refused") {
  const managed it;
  int destroyed = 0;
  const delta_kernel counted{&sums, [](void* n) { ++*static_cast<int*>(n); }, &destroyed};
  delta_operation op = {};
  op.outputs = &unit, op.output_count = 1;
  CHECK(delta_run(nullptr, &op, counted, nullptr) == DELTA_MISUSE);
  CHECK(delta_run(it.m, nullptr, counted, nullptr) == DELTA_MISUSE);
  CHECK(delta_run(it.m, &op, counted, nullptr) == DELTA_MISUSE);
  CHECK(delta_end(nullptr, counted, nullptr, 0) == DELTA_MISUSE);
  CHECK(destroyed == 4);
}

TEST_CASE("c: what an operator has made that ends without a kernel is not made again") {
  const managed it;
  const delta_operation op = {};
  for (const bool again : {true, false}) {
    delta_tensor t = DELTA_NO_TENSOR;
    std::size_t place = 0;
    REQUIRE(delta_begin(it.m, &op) == DELTA_OK);
    REQUIRE(delta_allocate(it.m, unit, &place) == DELTA_OK);
    REQUIRE(delta_end(it.m, again ? summing : delta_kernel{}, &t, 1) == DELTA_OK);
    CHECK((delta_recomputable(it.m, t) != 0) == again);
  }
}

TEST_CASE("c: traits, pins and tensors that do not exist, and indices beyond a list") {
  const managed it;
  delta_tensor t = DELTA_NO_TENSOR;
  delta_operation op = {};
  op.outputs = &unit, op.output_count = 1, op.traits = 16;
  CHECK(delta_run(it.m, &op, summing, &t) == DELTA_MISUSE);
  CHECK(it.error() == "an operator has a trait that does not exist");
  CHECK(delta_begin(it.m, &op) == DELTA_MISUSE);
  op.traits = DELTA_NEVER_REPLAY;
  REQUIRE(delta_run(it.m, &op, summing, &t) == DELTA_OK);
  CHECK(delta_forbid(it.m, t, 4) == DELTA_MISUSE);
  CHECK(it.error() == "a pin that does not exist");
  CHECK(delta_forbid(it.m, t, DELTA_PIN_EVICT) == DELTA_OK);
  CHECK(delta_drop(it.m, DELTA_NO_TENSOR) == DELTA_UNKNOWN_TENSOR);
  CHECK(delta_share(it.m, DELTA_NO_TENSOR) == DELTA_UNKNOWN_TENSOR);
  const auto look = [](void* /*state*/, const delta_call* c) {
    const bool any = delta_call_in(c, 0) != nullptr || delta_call_out(c, 1) != nullptr ||
                     delta_call_update(c, 0) != nullptr || delta_call_workspace(c, 0) != nullptr;
    return any ? 1 : 0;
  };
  CHECK(delta_run(it.m, &op, delta_kernel{look, nullptr, nullptr}, &t) == DELTA_OK);
}

TEST_CASE("c: a tensor's size is what was asked for") {
  const managed it;
  delta_tensor t = DELTA_NO_TENSOR;
  std::uint64_t size = 0;
  REQUIRE(delta_variable(it.m, 100, "odd", &t) == DELTA_OK);
  CHECK(delta_size(it.m, t, &size) == DELTA_OK);
  CHECK(size == 100);
  CHECK(delta_size(it.m, DELTA_NO_TENSOR, &size) == DELTA_UNKNOWN_TENSOR);
}

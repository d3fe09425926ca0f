// A step's inputs reach the GPU without a wait of the host, during the step before where there is
// room, and the loss comes back with the step's one wait. On a GPU that does everything as late as
// its events allow the bits are those of the CPU's session, and nothing is touched too early.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu_backend.hpp"
#include "delta/engine/engine.hpp"
#include "device/cpu_machine.hpp"
#include "device/cuda_device.hpp"
#include "fake_cuda.hpp"
#include "model/models.hpp"
#include "seeds.hpp"
#include "storage_check.hpp"
#include "train/feasibility.hpp"
#include "train/input_uploads.hpp"
#include "train/session.hpp"

using namespace delta;
using namespace delta::executor;
using delta::test::fake_cuda;
using delta::test::range;

namespace {

constexpr int steps = 4;

executor::graph network(std::uint64_t group = 0) {
  return bound_to_cpu(resnet20({.batch = 3, .image = 8, .hyper = {.update_group = group}}));
}

/// Numbers that follow from the step.
class numbers final : public batch_source {
 public:
  explicit numbers(const executor::graph& g) : graph_(&g) {}
  void set(int step) { step_ = std::uint32_t(step); }
  void fill(float* images, std::int32_t* labels) override {
    const std::size_t n = (*graph_)[graph_->images].bytes / sizeof(float);
    for (std::size_t i = 0; i < n; ++i)
      images[i] = float((i * 2654435761u + step_ * 97u) % 1000u) * 0.002f - 1;
    for (std::size_t i = 0; i < std::size_t(graph_->batch); ++i)
      labels[i] = std::int32_t((i + step_) % 10);
  }

 private:
  const executor::graph* graph_;
  std::uint32_t step_ = 0;
};

struct result {
  std::vector<float> losses;
  std::vector<std::vector<std::byte>> state;
  friend bool operator==(const result&, const result&) = default;
};

result train(session& s, const executor::graph& g, bool early) {
  numbers now(g), next(g);
  s.create(7);
  result r;
  for (int i = 0; i < steps; ++i) {
    now.set(i), next.set(i + 1);
    r.losses.push_back(s.train(&now, early && i + 1 < steps ? &next : nullptr));
  }
  for (const auto* list : {&g.parameters, &g.optimizer_states, &g.running_statistics})
    for (const value_id v : *list) s.read(v, r.state.emplace_back(g[v].bytes));
  return r;
}

result on_cpu() {
  const executor::graph g = network();
  cpu_machine device({});
  arena<machine> storage(device, {.capacity = 64_MiB});
  thread_pool pool(1);
  session s(g, make_manager("unmanaged", over(storage)), {.device = &device, .pool = &pool});
  return train(s, g, false);
}

/// The CPU's kernels, queued on the stream.
void queue_kernels(executor::graph& g, fake_cuda& cuda, cuda_stream stream) {
  for (node& n : g.nodes) {
    n.run = [&g, &cuda, stream, &n, body = n.run](const kernel_args& a) {
      struct lists {
        std::vector<const std::byte*> in;
        std::vector<std::byte*> out, update;
      };
      std::vector<range> reads, writes;
      auto l = std::make_shared<lists>();
      for (std::size_t i = 0; i < n.inputs.size(); ++i) {
        l->in.push_back(a.in[i]);
        reads.push_back({const_cast<std::byte*>(a.in[i]), g[n.inputs[i]].bytes});
      }
      for (std::size_t i = 0; i < n.outputs.size(); ++i) {
        l->out.push_back(a.out[i]);
        writes.push_back({a.out[i], g[n.outputs[i]].bytes});
      }
      for (std::size_t i = 0; i < n.updates.size(); ++i) {
        l->update.push_back(a.update[i]);
        if (a.update[i] != nullptr) writes.push_back({a.update[i], g[n.updates[i]].bytes});
      }
      if (n.workspace > 0) writes.push_back({a.workspace, n.workspace});
      cuda.kernel_time = nanoseconds{3000 + std::int64_t(n.moved_bytes / 20)};
      reinterpret_cast<fake_cuda::stream*>(stream)->launch(
          std::move(reads), std::move(writes), [l, a, &body] {
            body({l->in.data(), l->out.data(), l->update.data(), a.workspace, a.replaying,
                  a.sequence, a.pool});
          });
    };
  }
}

struct run_options {
  std::uint64_t seed = 1;
  std::string_view policy = "unmanaged";
  double part = 2;  ///< of the unmanaged peak
  bool early = true, overlap = true, punctual = false;
  std::uint64_t group = 0;
};

struct run_result {
  std::optional<result> got;  ///< nothing: no room
  std::vector<std::string> violations;
  counters counts;
  std::uint64_t early = 0;
};

run_result on_fake(const run_options& o) {
  executor::graph g = network(o.group);
  fake_cuda cuda({.seed = o.seed, .launch = nanoseconds{500}, .punctual = o.punctual});
  cuda_stream stream = nullptr;
  REQUIRE(cuda.stream_create(&stream, false).ok());
  run_result r;
  {
    queue_kernels(g, cuda, stream);
    cuda_device device(cuda, stream, {.overlap = o.overlap, .scratch = 64_KiB, .clock = [&] {
                                        return cuda.now();
                                      }});
    const bytes peak{unmanaged_peak(g, 512).total};
    const bytes budget = round_up(bytes{std::uint64_t(double(peak.count) * o.part)}, 512);
    arena<machine> storage(device,
                           {.capacity = budget, .host_capacity = peak * 2, .granularity = 512});
    thread_pool pool(1);
    session s(g, make_manager(o.policy, over(storage)), {.device = &device, .pool = &pool});
    try {
      r.got = train(s, g, o.early);
    } catch (const budget_exceeded&) {
    }
    CHECK(check_invariants(storage) == "");
    CHECK(storage.peak() <= budget);
    r.counts = s.counts();
    r.early = s.early_uploads();
    cuda.drain();
  }
  r.violations = cuda.violations();
  CHECK(cuda.live() == 1);  // the stream
  return r;
}

}  // namespace

TEST_CASE("uploads: the bits are those of the CPU's session, whatever the policy and the budget") {
  const result expected = on_cpu();
  CHECK(expected.losses[0] > 0.5f);
  std::uint64_t passed = 0, left = 0, early = 0;
  const std::uint64_t count = delta::test::seeds(6);
  for (std::uint64_t seed = 1; seed <= count; ++seed)
    for (const std::string_view policy : {"unmanaged", "dtr", "online", "adaptive"})
      for (const double part : {2.0, 1.0, 0.6, 0.35}) {
        if (policy == "unmanaged" && part < 1) continue;
        CAPTURE(seed);
        CAPTURE(policy);
        CAPTURE(part);
        const run_result r = on_fake({.seed = seed,
                                      .policy = policy,
                                      .part = part,
                                      .early = seed % 4 != 0,
                                      .overlap = seed % 5 != 0,
                                      .group = seed % 3 == 0 ? 300'000u : 0u});
        for (const std::string& text : r.violations) FAIL_CHECK(text);
        if (!r.got) continue;
        ++passed;
        left += r.counts.evictions + r.counts.offloads > 0;
        if (part < 1) early += r.early;
        CHECK(r.early <= (seed % 4 != 0 ? steps - 1 : 0));
        CHECK(*r.got == expected);
      }
  MESSAGE(passed, " runs passed, ", left, " of them with tensors that left; ", early,
          " batches came during the step before within a budget");
  CHECK(passed >= count * 10);
  CHECK(left > count * 3);
  CHECK(early > count);
}

TEST_CASE(
    "uploads: one wait of the host a step, but for the first, and the next batch on its way when "
    "it ends") {
  for (const bool early : {false, true}) {
    CAPTURE(early);
    executor::graph g = network();
    fake_cuda cuda({.launch = nanoseconds{500}, .punctual = true});
    cuda_stream stream = nullptr;
    REQUIRE(cuda.stream_create(&stream, false).ok());
    queue_kernels(g, cuda, stream);
    cuda_device device(cuda, stream, {.clock = [&] { return cuda.now(); }});
    arena<machine> storage(
        device, {.capacity = bytes{unmanaged_peak(g, 512).total * 2}, .granularity = 512});
    thread_pool pool(1);
    session s(g, make_manager("unmanaged", over(storage)), {.device = &device, .pool = &pool});
    s.create(7);
    numbers now(g), next(g);
    const auto waits = [&] {
      return cuda.calls("cudaEventSynchronize") + cuda.calls("cudaStreamSynchronize");
    };
    const auto copied = [&] { return cuda.copied(cuda_copy::to_device).calls; };
    for (int i = 0; i < steps; ++i) {
      now.set(i), next.set(i + 1);
      const auto waited = waits(), before = copied();
      s.train(&now, early ? &next : nullptr);
      // The first batch comes when its step begins, and no making of another hides that.
      CHECK(waits() - waited == (early && i == 0 ? 2 : 1));
      CHECK(copied() - before == (early && i == 0 ? 4 : 2));
    }
    // Beside the step's own, though its images were on the device before they were the step's.
    CHECK(storage.peak() == bytes{unmanaged_peak(g, 512).total});
    cuda.drain();
    for (const std::string& text : cuda.violations()) FAIL_CHECK(text);
  }
}

TEST_CASE("uploads: a batch that was on its way can be taken back, and is brought again") {
  for (std::uint64_t seed = 1; seed <= delta::test::seeds(200); ++seed) {
    CAPTURE(seed);
    fake_cuda cuda({.seed = seed});
    cuda_stream stream = nullptr;
    REQUIRE(cuda.stream_create(&stream, false).ok());
    cuda_device device(cuda, stream, {.clock = [&] { return cuda.now(); }});
    arena<machine> storage(device, {.capacity = 4_KiB});
    const auto m = make_manager("unmanaged", over(storage));
    const auto kernel = [&](std::uint8_t add) {
      return [stream, add](call& c) {
        std::byte *const from = c.in(0), *const to = c.out(0);
        reinterpret_cast<fake_cuda::stream*>(stream)->launch({{from, 512}}, {{to, 512}}, [=] {
          for (int i = 0; i < 512; ++i) to[i] = std::byte(std::uint8_t(from[i]) + add);
        });
      };
    };
    input_uploads uploads(device, *m);
    std::byte result[512];
    for (std::uint8_t round = 1; round <= 6; ++round) {
      uploads.begin({512_B, 64_B});
      std::memset(uploads.host(0), round, 512);
      std::memset(uploads.host(1), round, 64);
      cuda.host_access({uploads.host(0), 512}, true);
      uploads.start();
      CHECK(uploads.started());
      if (round % 3 != 0) {
        uploads.abandon();
        CHECK_FALSE(uploads.started());
        CHECK(uploads.begun());
        // Somebody else has the bytes meanwhile.
        const tensor_id other = m->variable(3_KiB);
        const tensor_id made =
            m->run({.inputs = {other}, .outputs = {512_B}}, kernel(std::uint8_t(seed)));
        m->drop(made);
        m->drop(other);
      }
      if (round % 3 == 1) uploads.start();
      const auto ids = uploads.adopt({"images", "labels"});
      CHECK_FALSE(uploads.begun());
      const tensor_id y = m->run({.inputs = {ids[0]}, .outputs = {512_B}}, kernel(100));
      {
        const auto view = m->acquire(y);
        std::memcpy(result, device.map(view.data(), 512_B, true), 512);
        device.unmap(false);
      }
      CHECK(std::uint8_t(result[0]) == round + 100);
      CHECK(std::uint8_t(result[511]) == round + 100);
      for (const tensor_id t : {ids[0], ids[1], y}) m->drop(t);
    }
    CHECK(storage.used() == bytes{});
    uploads.begin({512_B, 64_B});
    uploads.start();  // and is given back when it goes
    cuda.drain();
    for (const std::string& text : cuda.violations()) FAIL_CHECK(text);
  }
}

TEST_CASE("uploads: batch after batch, into bytes that are still copied out") {
  for (std::uint64_t seed = 1; seed <= delta::test::seeds(200); ++seed) {
    CAPTURE(seed);
    fake_cuda cuda({.seed = seed});
    cuda_stream stream = nullptr;
    REQUIRE(cuda.stream_create(&stream, false).ok());
    cuda_device device(cuda, stream, {.clock = [&] { return cuda.now(); }});
    arena<machine> storage(device, {.capacity = 2_KiB, .host_capacity = 16_KiB});
    const auto m = make_manager("unmanaged", over(storage));
    input_uploads uploads(device, *m);
    for (int round = 0; round < 8; ++round) {
      block all = *storage.allocate(2_KiB, lifetime::transient);
      const block* const named = &all;
      storage.begin_operator({}, {&named, 1});
      std::byte* const at = storage.data(all);
      reinterpret_cast<fake_cuda::stream*>(stream)->launch({}, {{at, 2048}}, [] {});
      storage.end_operator({});
      auto [left, there] = storage.land(*storage.copy_out(all));
      storage.free(std::move(left));
      storage.free(std::move(there));

      uploads.begin({1_KiB, 64_B});
      for (std::size_t i = 0; i < 2; ++i)
        cuda.host_access({uploads.host(i), i == 0 ? 1024u : 64u}, true);
      uploads.start();
      if (round % 3 == 0) uploads.abandon();
      for (const tensor_id t : uploads.adopt({"images", "labels"})) m->drop(t);
    }
    cuda.drain();
    for (const std::string& text : cuda.violations()) FAIL_CHECK(text);
  }
}

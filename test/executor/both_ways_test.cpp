// With copies as slow as a PCIe link's the online policy uses both ways out: it recomputes what is
// cheap to compute and copies the rest.
// ctest-labels: long_sanitized
#include "bit_identity.hpp"
#include "device/cpu_machine.hpp"

using namespace delta::test;
using namespace delta::executor;
using namespace delta;

TEST_CASE("online at 40 % with copies at 2 GB/s evicts and offloads") {
  train_options o = unmanaged({.model = "resnet50", .image = 64, .batch = 32, .steps = 2});
  o.copy_rate = 2e9;
  o.virtual_clock = true;
  const twin t(o);
  const train_report r = train(managed(o, "online", percent(40)));
  CHECK(r.evictions > 0);
  CHECK(r.offloads > 0);
  CHECK(r.recomputes > 0);
  CHECK(r.reloads > 0);
  check_equal(r, t);
}

TEST_CASE("slow copies change no bit, whenever they end") {
  for (const double rate : {2e9, 2e8}) {
    train_options o = unmanaged({.model = "resnet20", .image = 32, .batch = 8, .steps = 3});
    o.copy_rate = rate;
    CAPTURE(rate);
    const twin t(o);
    for (const std::string_view policy : {"online", "paper"}) {
      CAPTURE(policy);
      check_passes(t, policy, t.part(40));
    }
  }
}

TEST_CASE("without overlap copies are waited for, and the bits are the same") {
  train_options o = unmanaged({.model = "resnet20", .image = 32, .batch = 16, .steps = 3});
  o.copy_rate = 2e9;
  o.virtual_clock = true;  // the same decisions both times
  const twin t(o);
  const train_report beside = train(managed(o, "swap_lru", percent(60)));
  o.overlap = false;
  const train_report behind = train(managed(o, "swap_lru", percent(60)));
  check_equal(beside, t);
  check_equal(behind, t);
  CHECK(behind.offloads == beside.offloads);
  CHECK(behind.offloads > 0);
}

TEST_CASE("without overlap a copy is over when it has been asked for") {
  const bytes size = 1_MiB;
  cpu_machine machine({.copy_rate = 1e7}, false);  // it takes a tenth of a second
  std::byte* const device = machine.device_memory(size);
  std::byte* const host = machine.host_memory(size);
  CHECK(machine.reached(machine.copy(direction::out, host, device, size, {})));
  CHECK(machine.reached(machine.copy(direction::in, device, host, size, {})));
}

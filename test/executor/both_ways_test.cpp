// With copies as slow as a PCIe link's the online policy uses both ways out: it recomputes what is
// cheap to compute and copies the rest.
#include "bit_identity.hpp"

using namespace delta::test;
using namespace delta::executor;

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

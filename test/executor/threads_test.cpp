// The number of threads changes no bit, managed or not.
// ctest-labels: long_sanitized
#include "bit_identity.hpp"

using namespace delta::test;
using namespace delta::executor;

TEST_CASE("managed on 1, 2, 3 and 7 threads: the bits of the unmanaged run on one") {
  for (const workload& w : {workload{.model = "resnet20", .image = 32, .batch = 8, .steps = 3},
                            workload{.model = "resnet50", .image = 32, .batch = 2, .steps = 2}}) {
    const twin alone(unmanaged(w, 1));
    for (const int threads : {1, 2, 3, 7})
      for (const std::string_view policy : {"dtr", "online", "paper"}) {
        // ResNet-50 is mostly parameters at this size, and dtr can't release those.
        if (policy == "dtr" && w.model == "resnet50") continue;
        CAPTURE(w.model);
        CAPTURE(threads);
        CAPTURE(policy);
        train_options o = managed(unmanaged(w, threads), policy, percent(50));
        o.copy_threads = threads % 2 == 0 ? 2 : 0;
        const train_report r = train(o);
        CHECK(r.threads == threads);
        CHECK(r.evictions + r.offloads > 0);
        check_equal(r, alone);
      }
  }
}

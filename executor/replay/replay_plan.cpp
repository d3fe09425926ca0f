#include "replay/replay_plan.hpp"

#include "replay/replay_policy.hpp"

namespace delta::executor {

replay_result replay_plan(const offline_plan& plan, const trace& t, const replay_machine& on,
                          any_observer* told) {
  return replay(t, follow(plan), on, told);
}

}  // namespace delta::executor

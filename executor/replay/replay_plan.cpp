#include "replay/replay_plan.hpp"

#include "delta/adaptive.hpp"
#include "replay/replay_policy.hpp"

namespace delta::executor {
namespace {

/// `adaptive`, which writes down what its last step has followed.
class saving_adaptive : public adaptive {
 public:
  explicit saving_adaptive(offline_plan& to) noexcept : to_(&to) {}

  void end_of_step(const context& c) {
    const history& past = c.past();
    if (past.steps() > 0) {
      const kind* const k = known(past.last());
      const bool followed = k != nullptr && k->follows() && !left();
      *to_ = followed ? plan_of(*k->plan, past.last()) : offline_plan{};
    }
    adaptive::end_of_step(c);
  }

 private:
  offline_plan* to_;
};

}  // namespace

replay_result replay_plan(const offline_plan& plan, const trace& t, const replay_machine& on,
                          any_observer* told) {
  return replay(t, follow(plan), on, told);
}

replay_result replay_saving_plan(offline_plan& to, const trace& t, const replay_machine& on,
                                 any_observer* told) {
  return replay(t, saving_adaptive(to), on, told);
}

}  // namespace delta::executor

// delta_torch: the state of generators.
#include "random_state.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "session.hpp"

namespace delta_torch {

static_assert(random_state::block_words == at::MERSENNE_STATE_N);

namespace {
at::CPUGeneratorImpl* twister_of(const at::Generator& g) {
  return g.device().is_cpu() ? g.get<at::CPUGeneratorImpl>() : nullptr;
}
}  // namespace

// The last one may go with the manager.
tensor_reference::~tensor_reference() {
  if (tensor_ == delta::tensor_id::none) return;
  if (auto* const manager = session::get().manager_if_any()) try {
      manager->drop(tensor_);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): of an unusable manager
    }
}

delta::tensor_id random_state::take(at::Generator g, session& s) {
  taken_ = true;
  at::mt19937_data_pod now;
  {
    // Not longer: to make room an operator may be replayed that draws, too.
    const std::lock_guard lock(g.mutex());
    at::CPUGeneratorImpl* const twister = twister_of(g);
    if (twister == nullptr) {
      clone_ = g.clone();
      return delta::tensor_id::none;
    }
    now = twister->engine().data();
    normal_ = twister->next_float_normal_sample();
    double_normal_ = twister->next_double_normal_sample();
  }
  seed_ = now.seed_, left_ = now.left_, seeded_ = now.seeded_, next_ = now.next_;
  random_block& last = s.random;
  auto& manager = s.manager();
  if (!last.tensor || last.words != now.state_) {
    last.tensor = {};
    last.tensor = tensor_reference(manager.variable(delta::bytes{block_bytes}, "random numbers"));
    const auto bytes = manager.acquire(last.tensor.tensor(), delta::access::write);
    std::memcpy(bytes.data(), now.state_.data(), block_bytes);
    last.words = now.state_;
  }
  block_ = tensor_reference(manager.share(last.tensor.tensor()));
  return block_.tensor();
}

random_state::restored::restored(at::Generator g, const random_state& then, const std::byte* block)
    : generator_(std::move(g)) {
  const std::lock_guard lock(generator_.mutex());
  if (then.clone_.defined()) try {
      shared_ = generator_.graphsafe_get_state();
      // A copy, as the operator draws from it, and may be run again.
      generator_.graphsafe_set_state(then.clone_.clone());
      return;
    } catch (const c10::NotImplementedError&) {
      shared_ = {};
    }
  now_ = generator_.get_state();
  then.put(generator_, block);
}

random_state::restored::~restored() {
  const std::lock_guard lock(generator_.mutex());
  if (shared_.defined())
    generator_.graphsafe_set_state(shared_);
  else
    generator_.set_state(now_);
}

void random_state::put(const at::Generator& g, const std::byte* block) const {
  if (clone_.defined()) {
    at::Generator(g).set_state(clone_.get_state());
    return;
  }
  at::mt19937_data_pod then{seed_, left_, seeded_, next_, {}};
  std::memcpy(then.state_.data(), block, block_bytes);
  at::mt19937 engine;
  engine.set_data(then);
  at::CPUGeneratorImpl* const twister = twister_of(g);
  twister->set_engine(engine);
  twister->set_next_float_normal_sample(normal_);
  twister->set_next_double_normal_sample(double_normal_);
}

}  // namespace delta_torch

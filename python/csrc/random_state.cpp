// delta_torch: the state of generators.
#include "random_state.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <cstring>
#include <mutex>

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

void random_state::put(const at::Generator& g, const std::byte* block) const {
  if (clone_.defined()) {
    g.unsafeGetGeneratorImpl()->set_state(*clone_.unsafeGetGeneratorImpl()->get_state());
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

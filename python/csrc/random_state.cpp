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
// The block that the generator makes from that one.
random_state::words block_after(const random_state::words& block) {
  at::mt19937 engine;
  engine.set_data({.seed_ = 0, .left_ = 1, .seeded_ = true, .next_ = 0, .state_ = block});
  engine();  // nothing is left of this block
  return engine.data().state_;
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

std::optional<std::uint32_t> random_block::later(const random_state::words& now,
                                                 std::uint32_t next) {
  if (!tensor_) return std::nullopt;
  const auto follows = [&] {
    for (; last_ != now; ++later_) {
      if (later_ == most_later) return false;
      last_ = block_after(last_);
    }
    return true;
  };
  const bool from_first = later_ == 0;
  if (!follows()) {
    // A program may have set the generator back.
    last_ = first_, later_ = 0;
    if (from_first || !follows()) return std::nullopt;
  }
  const std::int64_t drawn = std::int64_t{later_} * std::int64_t{random_state::block_words} +
                             std::int64_t{next} - std::int64_t{began_};
  return drawn <= most_drawn ? std::optional(later_) : std::nullopt;
}

void random_block::begin(tensor_reference&& t, const random_state::words& now, std::uint32_t next) {
  tensor_ = std::move(t);
  first_ = last_ = now, later_ = 0, began_ = next;
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
  auto& manager = s.manager();
  const auto later = s.random.later(now.state_, now.next_);
  if (!later) {
    s.random.end();
    tensor_reference block(manager.variable(delta::bytes{block_bytes}, "random numbers"));
    const auto bytes = manager.acquire(block.tensor(), delta::access::write);
    std::memcpy(bytes.data(), now.state_.data(), block_bytes);
    s.random.begin(std::move(block), now.state_, now.next_);
  }
  later_ = later.value_or(0);
  block_ = tensor_reference(manager.share(s.random.tensor()));
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
  for (std::uint32_t i = 0; i < later_; ++i) then.state_ = block_after(then.state_);
  at::mt19937 engine;
  engine.set_data(then);
  at::CPUGeneratorImpl* const twister = twister_of(g);
  twister->set_engine(engine);
  twister->set_next_float_normal_sample(normal_);
  twister->set_next_double_normal_sample(double_normal_);
}

}  // namespace delta_torch

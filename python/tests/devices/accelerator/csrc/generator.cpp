#include "generator.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>

#include <cstring>

#include "current_stream.hpp"

namespace simulated {

DeviceGenerator::DeviceGenerator()
    : c10::GeneratorImpl(the_device, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void DeviceGenerator::set_current_seed(std::uint64_t seed) {
  *state_ = {seed, 0};
  seeded_anew_ = true;
}

void DeviceGenerator::set_offset(std::uint64_t offset) {
  state_->drawn = offset;
  seeded_anew_ = true;
}

std::uint64_t DeviceGenerator::get_offset() const {
  return state_->drawn;
}

std::uint64_t DeviceGenerator::current_seed() const {
  return state_->seed;
}

std::uint64_t DeviceGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return state_->seed;
}

void DeviceGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == sizeof(State), "the state of a simulated device's generator has ",
              sizeof(State), " bytes");
  std::memcpy(state_.get(), state.data(), sizeof(State));
  seeded_anew_ = true;
}

c10::intrusive_ptr<c10::TensorImpl> DeviceGenerator::get_state() const {
  auto state = at::detail::empty_cpu({static_cast<std::int64_t>(sizeof(State))}, at::kByte);
  std::memcpy(state.mutable_data_ptr(), state_.get(), sizeof(State));
  return state.getIntrusivePtr();
}

void DeviceGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  const auto* const other = dynamic_cast<const DeviceGenerator*>(state.get());
  TORCH_CHECK(other != nullptr, "a generator of another device");
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> DeviceGenerator::graphsafe_get_state() const {
  auto shared = c10::make_intrusive<DeviceGenerator>();
  shared->state_ = state_;
  return shared;
}

// splitmix64: neighbouring seeds and counts give numbers that have nothing in common.
std::uint64_t DeviceGenerator::draw() {
  std::uint64_t z = state_->seed * 0xD1342543DE82EF95 + ++state_->drawn * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

DeviceGenerator* DeviceGenerator::clone_impl() const {
  auto* const copy = new DeviceGenerator;
  *copy->state_ = *state_;
  return copy;
}

const at::Generator& default_generator() {
  static const auto* const generator = new at::Generator(new_generator());
  return *generator;
}

at::Generator new_generator() {
  return at::make_generator<DeviceGenerator>();
}

std::uint64_t draw(const std::optional<at::Generator>& generator) {
  at::Generator chosen = generator && generator->defined() ? *generator : default_generator();
  auto* const own = at::check_generator<DeviceGenerator>(chosen);
  const std::lock_guard lock(own->mutex_);
  return own->draw();
}

}  // namespace simulated

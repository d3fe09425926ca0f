#include "generator.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>

#include <cstring>

#include "current_stream.hpp"

namespace simulated {

namespace {

struct State {
  std::uint64_t seed;
  std::uint64_t drawn;
};

}  // namespace

DeviceGenerator::DeviceGenerator()
    : c10::GeneratorImpl(the_device, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void DeviceGenerator::set_current_seed(std::uint64_t seed) {
  seed_ = seed;
  drawn_ = 0;
}

void DeviceGenerator::set_offset(std::uint64_t offset) {
  drawn_ = offset;
}

std::uint64_t DeviceGenerator::get_offset() const {
  return drawn_;
}

std::uint64_t DeviceGenerator::current_seed() const {
  return seed_;
}

std::uint64_t DeviceGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void DeviceGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == sizeof(State), "the state of a simulated device's generator has ",
              sizeof(State), " bytes");
  State values{};
  std::memcpy(&values, state.data(), sizeof(State));
  seed_ = values.seed;
  drawn_ = values.drawn;
}

c10::intrusive_ptr<c10::TensorImpl> DeviceGenerator::get_state() const {
  const State values{seed_, drawn_};
  auto state = at::detail::empty_cpu({static_cast<std::int64_t>(sizeof(State))}, at::kByte);
  std::memcpy(state.mutable_data_ptr(), &values, sizeof(State));
  return state.getIntrusivePtr();
}

// splitmix64: neighbouring seeds and counts give numbers that have nothing in common.
std::uint64_t DeviceGenerator::draw() {
  std::uint64_t z = seed_ * 0xD1342543DE82EF95 + ++drawn_ * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

DeviceGenerator* DeviceGenerator::clone_impl() const {
  auto* const copy = new DeviceGenerator;
  copy->seed_ = seed_;
  copy->drawn_ = drawn_;
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

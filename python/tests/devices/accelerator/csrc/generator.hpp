// The device's random numbers.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace simulated {

/// One number is drawn for each random operator, when it is called; the kernel makes all it needs
/// from that number. So what comes out depends on the order of the calls, whatever the order in
/// which the kernels run.
class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  DeviceGenerator();

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  void set_current_seed(std::uint64_t seed) override;
  void set_offset(std::uint64_t offset) override;
  std::uint64_t get_offset() const override;
  std::uint64_t current_seed() const override;
  std::uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  /// As CUDA's: the one takes the other's state for its own, and neither is a new seed.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  std::uint64_t draw();
  /// True at the first call, and at the first one behind any that sets seed, offset or state: who
  /// keeps something that was made from the seed makes it anew then, as cuDNN's dropout state.
  bool is_seeded_anew() { return std::exchange(seeded_anew_, false); }

 private:
  struct State {
    std::uint64_t seed = c10::default_rng_seed_val;
    std::uint64_t drawn = 0;
  };
  DeviceGenerator* clone_impl() const override;

  std::shared_ptr<State> state_ = std::make_shared<State>();
  bool seeded_anew_ = true;
};

const at::Generator& default_generator();
at::Generator new_generator();
/// A number from the generator given, or from the default one.
std::uint64_t draw(const std::optional<at::Generator>& generator);

}  // namespace simulated

// delta_torch: the CPU as the device of a run. Everything is over when a call returns.
#include <ATen/Context.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <utility>

#include "delta/storage/heap_storage.hpp"
#include "target.hpp"

namespace delta_torch {

namespace {

const c10::Device cpu{c10::kCPU};
constexpr std::uint8_t highest = 255;

class the_cpu final : public target {
 public:
  [[nodiscard]] c10::Device device() const noexcept override { return cpu; }
  [[nodiscard]] std::unique_ptr<managed_memory> open(const memory_options& o) override {
    return std::make_unique<memory_of<delta::heap_storage>>(
        delta::heap_options{.capacity = o.capacity,
                            .host_capacity = o.host_capacity,
                            .device = headed_source(),
                            .on_owner_changed = o.on_owner_changed});
  }
  void closed() override {}
  void install(run_allocator& ours) override {
    if (before_ != nullptr) return;
    before_ = c10::GetAllocator(c10::kCPU);
    deleter_before_ = before_->raw_deleter();
    c10::SetAllocator(c10::kCPU, &ours, highest);
  }
  void remove() override {
    if (before_ != nullptr) c10::SetAllocator(c10::kCPU, std::exchange(before_, nullptr), highest);
  }
  // The host's allocator holds nothing that it has not given.
  void limit(delta::bytes, delta::bytes) override {}
  void unlimit() override {}

  [[nodiscard]] at::DataPtr uncounted(std::size_t size) override {
    void* const memory = headed_memory(size);
    return {memory, memory, &release_memory, cpu};
  }
  [[nodiscard]] at::DataPtr scratch(std::size_t size) override { return uncounted(size); }
  void rethrow_failure() override {}
  [[nodiscard]] header* header_of_data(const at::DataPtr& data) const noexcept override {
    return data.get_deleter() == &release_memory && data.get() != nullptr &&
                   data.get() == data.get_context()
               ? &header_of(data.get())
               : nullptr;
  }
  [[nodiscard]] header& head(void* memory) override { return header_of(memory); }
  [[nodiscard]] at::DataPtr pointer(header& h) const override {
    return {h.memory, h.memory, &release_memory, cpu};
  }
  // The deleter knows which these are, as oneDNN may free them by their address.
  [[nodiscard]] at::DataPtr replayed(void* memory) const override {
    return {memory, memory, &release_memory, cpu};
  }
  [[nodiscard]] at::DataPtr plain(void* memory, std::size_t) override {
    return {memory, memory, &release_memory, cpu};
  }
  void keep(void* memory, bool on) override { header_of(memory).keep = on; }
  void retire(header&) noexcept override {}
  void free(header& h) noexcept override { free_headed(h.memory); }
  [[nodiscard]] bool frees_so(c10::DeleterFnPtr f) const noexcept override {
    return f == c10::GetDefaultCPUAllocator()->raw_deleter() || f == deleter_before_;
  }

  void copy(void* to, const void* from, std::size_t size) override { std::memcpy(to, from, size); }
  void clear(void* memory, std::size_t size) override { std::memset(memory, 0, size); }
  [[nodiscard]] at::Generator generator() const override {
    return at::globalContext().defaultGenerator(cpu);
  }
  void before_kernel() override {}
  void after_kernel() override {}
  [[nodiscard]] bool is_current() const override { return true; }
  void expect(signature) override {}
  [[nodiscard]] std::uint64_t taken_by(signature) const noexcept override { return 0; }
  void took(signature, std::uint64_t) override {}
  [[nodiscard]] bool remembers() const noexcept override { return false; }
  void used_by(void*, c10::Stream) override {}
  void used_by(const at::DataPtr&, c10::Stream) override {}

 private:
  std::uint64_t enter_compute() override { return 0; }
  void leave_compute(std::uint64_t) override {}

  c10::Allocator* before_ = nullptr;
  c10::DeleterFnPtr deleter_before_ = nullptr;
};

}  // namespace

target& cpu_target() {
  static target& one = *new the_cpu;  // PyTorch frees tensors until the very end
  return one;
}

}  // namespace delta_torch

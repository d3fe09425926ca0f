// delta_torch: an accelerator as the device of a run: its memory by PyTorch's allocator, copies on
// streams of their own, the host's memory pinned.
#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Event.h>

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "away_reads.hpp"
#include "bytes_as_tensor.hpp"
#include "delta/storage/device_heap.hpp"
#include "device_part.hpp"
#include "pinned_chunks.hpp"
#include "session.hpp"
#include "streams.hpp"
#include "target.hpp"
#include "threads.hpp"

namespace delta_torch {

namespace {

class accelerator;

/// The header of a device's bytes stands in the host's memory, and knows whose it is.
struct device_header : header {
  accelerator* owner = nullptr;
};

/// What PyTorch's allocator has given, by address. From any thread.
class given_memory {
 public:
  void* add(at::DataPtr&& data) {
    void* const at = data.get();
    if (at == nullptr) return nullptr;
    const std::lock_guard hold(lock_);
    given_.insert_or_assign(at, bytes{std::move(data), {}, false});
    return at;
  }
  void keep(void* at, bool on) {
    const std::lock_guard hold(lock_);
    if (const auto i = given_.find(at); i != given_.end()) i->second.keep = on;
  }
  void used_by(void* at, c10::Stream s) {
    const std::lock_guard hold(lock_);
    if (const auto i = given_.find(at); i != given_.end()) i->second.users.push_back(s);
  }
  /// The program computes on that stream, too.
  void seen(c10::Stream s) {
    const std::lock_guard hold(lock_);
    if (std::ranges::find(streams_, s) == streams_.end()) streams_.push_back(s);
  }
  /// Gives them back, unless they are to be kept, once. Without the lock: PyTorch's allocator has
  /// one of its own, under which it may free others.
  void release(device_part& part, void* at) { (void)taken_out(part, at, false); }
  /// They are PyTorch's alone, by its own pointer. Whoever made them on a stream of its own expects
  /// that they are that stream's, and nobody orders what is computed there any more.
  [[nodiscard]] at::DataPtr surrender(device_part& part, void* at) {
    return taken_out(part, at, true);
  }

 private:
  struct bytes {
    at::DataPtr data;
    std::vector<c10::Stream> users;
    bool keep = false;
  };
  at::DataPtr taken_out(device_part& part, void* at, bool plain) {
    bytes gone;
    {
      const std::lock_guard hold(lock_);
      const auto i = given_.find(at);
      if (i == given_.end() || std::exchange(i->second.keep, false)) return {};
      gone = std::move(i->second);
      given_.erase(i);
      if (plain) gone.users.insert(gone.users.end(), streams_.begin(), streams_.end());
    }
    for (const c10::Stream s : gone.users) part.used_by(gone.data, s);
    return std::move(gone.data);
  }

  std::mutex lock_;
  std::unordered_map<void*, bytes> given_;
  std::vector<c10::Stream> streams_;  // few
};

class accelerator final : public target {
 public:
  explicit accelerator(c10::Device d) : device_(d), guard_(d.type()), part_(part_of(d.type())) {}

  [[nodiscard]] c10::Device device() const noexcept override { return device_; }
  [[nodiscard]] std::unique_ptr<managed_memory> open(const memory_options&) override;
  void closed() override { pinned_.reset(); }
  void install(run_allocator& ours) override {
    part_.install(ours, device_);
    installed_ = true;
  }
  void remove() override {
    if (installed_) part_.remove();
    installed_ = false;
  }

  void limit(delta::bytes n, delta::bytes counted) override {
    part_.limit(device_, n.count, counted.count);
    limit_ = n;
  }
  void unlimit() override {
    part_.unlimit(device_);
    limit_.reset();
  }

  [[nodiscard]] at::DataPtr uncounted(std::size_t size) override {
    return part_.own().allocate(size);
  }
  [[nodiscard]] at::DataPtr scratch(std::size_t size) override try {
    return part_.own().allocate(size);
  } catch (const c10::OutOfMemoryError&) {
    const auto before = limit_;
    if (before.has_value()) limit(delta::bytes{no_limit}, {});
    at::DataPtr made(nullptr, device_);
    try {
      made = part_.own().allocate(size);
    } catch (const c10::OutOfMemoryError&) {  // NOLINT(bugprone-empty-catch): null says it
    }
    if (before.has_value()) limit(*before, session::get().memory().used());
    return made;
  }
  void rethrow_failure() override {
    if (failed_ != nullptr) std::rethrow_exception(std::exchange(failed_, nullptr));
  }
  [[nodiscard]] header* header_of_data(const at::DataPtr& data) const noexcept override {
    return data.get_deleter() == &free_counted ? static_cast<device_header*>(data.get_context())
                                               : nullptr;
  }
  [[nodiscard]] header& head(void* memory) override {
    auto* h = new device_header;
    h->memory = memory;
    h->owner = this;
    return *h;
  }
  [[nodiscard]] at::DataPtr pointer(header& h) const override {
    return {h.memory, static_cast<device_header*>(&h), &free_counted, device_};
  }
  [[nodiscard]] at::DataPtr replayed(void* memory) const override { return {memory, device_}; }
  [[nodiscard]] at::DataPtr plain(void* memory, std::size_t) override {
    at::DataPtr own = given_.surrender(part_, memory);
    return own.get() != nullptr ? std::move(own) : at::DataPtr(nullptr, device_);
  }
  void keep(void* memory, bool on) override { given_.keep(memory, on); }
  void retire(header& h) noexcept override { delete static_cast<device_header*>(&h); }
  void free(header& h) noexcept override {
    (void)given_.surrender(part_, h.memory);
    retire(h);
  }
  [[nodiscard]] bool frees_so(c10::DeleterFnPtr f) const noexcept override {
    return f == own_deleter_;
  }

  void copy(void* to, const void* from, std::size_t size) override {
    if (size == 0) return;
    {
      const on_stream here(guard_, compute());
      part_.copy(copied::within, to, from, size, compute());
    }
    catch_up();
  }
  void clear(void* memory, std::size_t size) override {
    {
      const unmanaged_calls plain;
      const on_stream here(guard_, compute());
      bytes_at(memory, size, device_).zero_();
    }
    catch_up();
  }
  [[nodiscard]] at::Generator generator() const override {
    return at::globalContext().defaultGenerator(device_);
  }

  void before_kernel() override {
    in_kernel_ = true;
    const c10::Stream now = guard_.getStream(device_);
    part_.prepare(now);
    if (now == compute()) return;
    given_.seen(now);
    set_away_reader(away_reader::streams, true);
    elsewhere_ = now;
    if (!device_streams::left_out(device_streams::program, 0)) follow(compute(), now);
  }
  void after_kernel() override {
    in_kernel_ = false;
    if (!elsewhere_.has_value()) return;
    const c10::Stream there = *std::exchange(elsewhere_, {});
    if (!device_streams::left_out(0, device_streams::program)) follow(there, compute());
  }
  void expect(signature s) override { streams_->expect(s); }
  [[nodiscard]] std::uint64_t taken_by(signature s) const noexcept override {
    return streams_->taken_by(s);
  }
  void took(signature s, std::uint64_t bytes) override { streams_->took(s, bytes); }
  [[nodiscard]] bool is_current() const override { return guard_.getDevice() == device_; }
  [[nodiscard]] bool remembers() const noexcept override { return true; }
  void used_by(void* memory, c10::Stream s) override { given_.used_by(memory, s); }
  void used_by(const at::DataPtr& outside, c10::Stream s) override { part_.used_by(outside, s); }

 private:
  [[nodiscard]] c10::Stream compute() const noexcept { return streams_->compute(); }
  std::uint64_t enter_compute() override {
    const c10::Stream before = guard_.exchangeStream(compute());
    part_.prepare(compute());
    return static_cast<std::uint64_t>(before.id());
  }
  void leave_compute(std::uint64_t before) override {
    guard_.exchangeStream(
        c10::Stream(c10::Stream::UNSAFE, device_, static_cast<std::int64_t>(before)));
  }
  // What is queued on `second` from now on comes after all that is queued on `first`.
  void follow(c10::Stream first, c10::Stream second) {
    if (!order_.has_value()) order_.emplace(device_.type());
    order_->record(first);  // waits for it are for how it was recorded by then
    order_->block(second);
  }
  // Is this thread queueing a kernel, and on another stream than the compute one?
  [[nodiscard]] bool within_kernel_elsewhere() const {
    return this_thread().within_operator && in_kernel_ && guard_.getStream(device_) != compute();
  }
  // What was queued on the compute stream while a kernel is being queued elsewhere is before the
  // rest of that kernel.
  void catch_up() {
    if (within_kernel_elsewhere() && !device_streams::left_out(device_streams::program, 0))
      follow(compute(), guard_.getStream(device_));
  }
  void* allocate(std::size_t size) noexcept;
  static void free_counted(void* context) noexcept {
    if (context == nullptr) return;
    auto* h = static_cast<device_header*>(context);
    session::release(*h->owner, *h);
  }

  c10::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  device_part& part_;
  given_memory given_;
  std::optional<pinned_chunks> pinned_;    // of the run that is on
  std::optional<device_streams> streams_;  // of the run that is on, or was last
  // For copies, of all runs: PyTorch gives few in turns, so new ones would soon be the program's.
  std::optional<std::array<c10::Stream, 2>> sides_;
  std::optional<c10::Stream> elsewhere_;  // the program's, while its kernel is queued
  bool in_kernel_ = false;                // of an operator
  std::optional<c10::Event> order_;
  std::optional<delta::bytes> limit_;
  std::exception_ptr failed_;
  c10::DeleterFnPtr own_deleter_ = nullptr;
  bool installed_ = false;
};

// On the current stream what the program allocates outside operators, as it may use it there; else
// on the compute stream, where all operators are ordered, whatever stream they run on. There, too,
// what comes back, whoever asks for it: copies wait for that stream.
void* accelerator::allocate(std::size_t size) noexcept try {
  const c10::Stream now = guard_.getStream(device_);
  if (session::get().taking_outside && now != compute()) {
    const on_stream here(guard_, now);  // the thread's current device may be another
    void* const at = given_.add(part_.own().allocate(size));
    given_.used_by(at, compute());  // as soon as an operator uses it
    failed_ = nullptr;
    return at;
  }
  void* at = nullptr;
  {
    const on_stream here(guard_, compute());
    at = given_.add(part_.own().allocate(size));
  }
  // The compute stream may have been told to wait for a copy of these bytes just now. On a stream
  // of its own a kernel may still use them when it gives them back.
  failed_ = nullptr;
  catch_up();
  if (within_kernel_elsewhere() && now != elsewhere_) given_.used_by(at, now);
  return at;
} catch (const c10::OutOfMemoryError&) {
  failed_ = nullptr;
  return nullptr;  // the manager makes room, or says what is missing
} catch (...) {
  // It may be an earlier kernel's, which a driver tells whoever calls it next. Through the manager
  // it would make that unusable: the program gets it in place of the manager's own error.
  failed_ = std::current_exception();
  return nullptr;
}

std::unique_ptr<managed_memory> accelerator::open(const memory_options& o) {
  own_deleter_ = part_.own().allocate(1).get_deleter();
  const auto known = streams_.has_value() ? std::optional(streams_->copies()) : std::nullopt;
  if (!sides_)
    sides_.emplace(std::array{guard_.getNewStream(device_), guard_.getNewStream(device_)});
  streams_.emplace(device_, part_, *sides_);
  // Once: a later run has less memory to spare, and knows what the one before has measured.
  if (known.has_value())
    streams_->begin_with(*known);
  else
    streams_->calibrate(static_cast<std::size_t>(o.capacity.count / 8));
  pinned_.emplace(*at::getHostAllocator(device_.type()));
  return std::make_unique<memory_of<delta::device_heap<device_streams>>>(
      *streams_,
      delta::heap_options{.capacity = o.capacity,
                          .host_capacity = o.host_capacity,
                          .granularity = 512,
                          .device = {[](void* self, std::size_t size) {
                                       return static_cast<accelerator*>(self)->allocate(size);
                                     },
                                     [](void* self, void* memory, std::size_t) {
                                       auto* const a = static_cast<accelerator*>(self);
                                       a->given_.release(a->part_, memory);
                                     },
                                     this},
                          .host = {[](void* self, std::size_t size) {
                                     return static_cast<pinned_chunks*>(self)->allocate(size);
                                   },
                                   [](void* self, void* memory, std::size_t) {
                                     static_cast<pinned_chunks*>(self)->release(memory);
                                   },
                                   &*pinned_},
                          .on_owner_changed = o.on_owner_changed});
}

static_assert(delta::Lanes<device_streams>);

}  // namespace

target& target_of(c10::Device device) {
  if (device.is_cpu()) return cpu_target();
  if (!device.has_index()) device = c10::impl::VirtualGuardImpl(device.type()).getDevice();
  static std::mutex& lock = *new std::mutex;
  static auto& known = *new std::unordered_map<c10::Device, accelerator*>;
  const std::lock_guard hold(lock);
  accelerator*& one = known[device];
  if (one == nullptr) one = new accelerator(device);  // lives for ever, as its memory may
  return *one;
}

}  // namespace delta_torch

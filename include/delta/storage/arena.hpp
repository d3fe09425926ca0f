// delta: the arena. Two regions taken from a device once, at the start, and everything in them:
// tensors, workspace, both ends of copies in flight. So the budget can't be exceeded.
//
// A machine needs a Device only: the smallest is host_device.hpp (malloc, memcpy, and
// everything done when a function returns), one with threads is the executor's.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "delta/detail/storage/machine_lanes.hpp"
#include "delta/detail/storage/storage_rules.hpp"
#include "delta/storage/device.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta {

/// What an arena takes from its device.
struct arena_options {
  bytes capacity{};                ///< the budget: what device_memory is asked for
  bytes host_capacity{};           ///< the host budget, likewise
  std::uint64_t granularity = 64;  ///< sizes are rounded up to it, addresses too; a power of two
  bool moving = true;              ///< off where somebody keeps addresses without holding blocks
  /// Set: time is modelled, and stamps, clock, rates and waits are the model's, so that decisions
  /// repeat exactly. The data still moves through the device; where it is late, the host waits.
  std::optional<copy_rates> virtual_clock{};
};

namespace detail {

// A device's lanes as storage_rules wants them: offsets instead of addresses and, with a virtual
// clock, the model's stamps instead of the device's. Work is queued on the device first: if that
// throws, the model has not gone on.
template <Device D>
class device_engines {
 public:
  // Takes both memories. Throws what the device throws; then nothing is kept.
  device_engines(D& device, const arena_options& o)
      : real_(device),
        device_memory_(device.device_memory(o.capacity)),
        host_memory_(device.host_memory(o.host_capacity)) {
    if (o.virtual_clock) model_.emplace(*o.virtual_clock);
  }

  stamp copy(direction d, std::uint64_t device, std::uint64_t host, bytes n, const fence& after) {
    const stamp real =
        real_.copy(d, device_memory_ + device, host_memory_ + host, n, real_of(after));
    return model_ ? note(model_->copy(d, device, host, n, after), real) : real;
  }
  void begin(const fence& after) {
    // A kernel must not start early on the device either: the model only says what time it is.
    real_.begin(real_of(after));
    if (model_) model_->begin(after);
  }
  void move(std::uint64_t to, std::uint64_t from, std::uint64_t n) {
    device().move(device_memory_ + to, device_memory_ + from, bytes{n});
  }
  stamp end_moves(bytes n) {
    const stamp real = device().end();
    return model_ ? note(model_->end_moves(n), real) : real;
  }
  stamp end(nanoseconds cost) {
    const stamp real = device().end();
    return model_ ? note(model_->end(cost), real) : real;
  }
  // By the model where there is one: its yes makes the device's true, so the answer is the same on
  // every run, however fast the device is.
  bool reached(stamp s) {
    if (!model_) return real_.reached(s);
    if (!model_->reached(s)) return false;
    real_.wait(real_of(s));
    return true;
  }
  void wait(stamp s) {
    if (model_) model_->wait(s);
    real_.wait(model_ ? real_of(s) : s);
  }
  std::optional<nanoseconds> elapsed(stamp s) {
    return model_ ? model_->elapsed(s) : real_.elapsed(s);
  }
  std::optional<nanoseconds> began(stamp s) { return model_ ? model_->began(s) : real_.began(s); }
  std::optional<nanoseconds> alone(stamp s) { return model_ ? model_->alone(s) : real_.alone(s); }
  [[nodiscard]] double burden(direction d) const {
    return model_ ? model_->burden(d) : real_.burden(d);
  }
  [[nodiscard]] nanoseconds now() const { return model_ ? model_->now() : real_.now(); }
  [[nodiscard]] nanoseconds waited() const { return model_ ? model_->waited() : real_.waited(); }
  [[nodiscard]] double rate(direction d) const { return model_ ? model_->rate(d) : real_.rate(d); }
  [[nodiscard]] double move_rate() const {
    return model_ ? model_->move_rate() : real_.move_rate();
  }
  [[nodiscard]] nanoseconds latency(direction d) const {
    return model_ ? model_->latency(d) : real_.latency(d);
  }
  [[nodiscard]] nanoseconds backlog(direction d) const {
    return model_ ? model_->backlog(d) : real_.backlog(d);
  }

  // Of bytes that nobody uses; the model knows nothing of it.
  void copy_now(direction d, std::uint64_t device, std::byte* host, bytes n) {
    real_.copy_now(d, device_memory_ + device, host, n, {});
  }

  [[nodiscard]] D& device() const noexcept { return real_.machine(); }
  [[nodiscard]] std::byte* device_memory() const noexcept { return device_memory_; }
  [[nodiscard]] std::byte* host_memory() const noexcept { return host_memory_; }

 private:
  // Which work of the device a point of the model stands for.
  struct pair_of_points {
    std::uint64_t model, real;
  };
  // The pairs of one lane in order, from `first` on; the rest were reached and are cut off now
  // and then, so no heap is used in the long run. (A deque gives its blocks back and asks again.)
  struct track {
    std::vector<pair_of_points> pairs;
    std::size_t first = 0;
  };

  // Keeps the pair, and forgets those that the device has reached: waiting for them is no wait.
  // Amortised O(1).
  stamp note(stamp model, stamp real) {
    track& t = tracks_[static_cast<std::size_t>(model.where)];
    while (t.first < t.pairs.size() && real_.reached({model.where, t.pairs[t.first].real}))
      ++t.first;
    if (t.first > t.pairs.size() / 2) {
      t.pairs.erase(t.pairs.begin(), t.pairs.begin() + static_cast<std::ptrdiff_t>(t.first));
      t.first = 0;
    }
    t.pairs.push_back({model.point, real.point});
    return model;
  }
  // The last work that ends, by the model, no later than `s`. Work of no length shares its point
  // with the work before it; the later one is taken, which is safe. O(log work under way).
  [[nodiscard]] stamp real_of(stamp s) const {
    const track& t = tracks_[static_cast<std::size_t>(s.where)];
    const auto from = t.pairs.begin() + static_cast<std::ptrdiff_t>(t.first);
    const auto it = std::upper_bound(
        from, t.pairs.end(), s.point,
        [](std::uint64_t point, const pair_of_points& p) { return point < p.model; });
    return {s.where, it == from ? 0 : std::prev(it)->real};
  }
  [[nodiscard]] fence real_of(const fence& f) const {
    if (!model_) return f;
    fence real;
    for (std::size_t e = 0; e < lane_count; ++e)
      real.join(real_of(stamp{static_cast<lane>(e), f.point[e]}));
    return real;
  }

  machine_lanes<D> real_;
  std::byte* device_memory_;
  std::byte* host_memory_;
  std::optional<virtual_lanes> model_;
  std::array<track, lane_count> tracks_;
};

}  // namespace detail

/// The Storage over a device, which outlives it. Its other members are storage_rules' (placing,
/// fences, figures such as peak() and waited()). A device that is wrong is told so in sentences.
///
///   my_device machine;
///   delta::arena storage{machine, {.capacity = 512_MiB, .host_capacity = 2_GiB}};
///   delta::manager manager{delta::online(), storage};
template <class D>
class arena : public detail::storage_rules<detail::device_engines<detail::checked_device<D>>> {
  using device_engines = detail::device_engines<detail::checked_device<D>>;
  using base = detail::storage_rules<device_engines>;

 public:
  /// Asks the device for both memories, once. Throws what they throw.
  arena(D& device, const arena_options& o)
      : base(o.capacity, o.host_capacity, o.granularity, o.moving, device_engines{device, o}) {}

  /// Where the block is now: until something is allocated, unless the block is held. On a device
  /// whose compute runs on, the bytes are for its lanes; the host waits for a stamp first. O(1).
  [[nodiscard]] std::byte* data(const block& b) const {
    return this->lanes().device_memory() + this->offset(b);
  }
  /// Where the slab is: slabs never move. Its bytes are there once its transfer is done. O(1).
  [[nodiscard]] std::byte* data(const slab& h) const {
    return this->lanes().host_memory() + this->offset(h);
  }
  /// Copies bytes of a block from its byte `from` on to the host's heap, and back: for checks and
  /// tests. Over when it returns; whoever uses the block must be done. Always true: there are
  /// bytes.
  bool read_bytes(const block& b, std::uint64_t from, std::span<std::byte> to) {
    if (!to.empty())
      this->lanes().copy_now(direction::out, this->offset(b) + from, to.data(), bytes{to.size()});
    return true;
  }
  bool write_bytes(const block& b, std::uint64_t to, std::span<const std::byte> from) {
    // A copy in only reads it.
    if (!from.empty())
      this->lanes().copy_now(direction::in, this->offset(b) + to,
                             const_cast<std::byte*>(from.data()), bytes{from.size()});
    return true;
  }
  /// What a kernel is launched on, where the device has something of the kind.
  [[nodiscard]] void* native_stream() const
    requires detail::has_native_stream<D>
  {
    return this->lanes().device().native_stream();
  }
};

static_assert(Storage<arena<detail::device_archetype>>);

}  // namespace delta

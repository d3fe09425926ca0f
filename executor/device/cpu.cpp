#include "device/cpu.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <fstream>

#include "device/streaming.hpp"
#include "kernels/thread_pool.hpp"

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

namespace delta::executor {
namespace {

/// A copy thread that is woken must not push the computing thread off its core: on a machine with
/// few cores that is what a wake-up otherwise does. Where it can't be asked for, copies still work.
void yield_to_compute() noexcept {
#ifdef __linux__
  const sched_param none{};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
#endif
}

}  // namespace

namespace {

// Large enough that the loop costs nothing, small enough that a throttled copy keeps its pace and
// that the destructor needn't wait for a large one.
constexpr std::size_t chunk = std::size_t{1} << 20;
constexpr std::chrono::milliseconds nap{2};
// To another thread, as a copy's latency: an everyday value, not measured.
constexpr std::chrono::microseconds handing_over{10};
// What one of several threads takes at a time.
constexpr std::size_t share = std::size_t{256} << 10;
// Copies smaller than this say more about the latency than about the rate.
constexpr std::size_t telling = std::size_t{256} << 10;
constexpr double weight_of_last = 0.2;

nanoseconds time_for(double size, double rate) noexcept {
  return nanoseconds{rate > 0 ? static_cast<std::int64_t>(size * 1e9 / rate) : 0};
}

}  // namespace

std::string cpu_name() {
  std::ifstream about("/proc/cpuinfo");
  for (std::string line; std::getline(about, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

cpu_device::cpu_device(const cpu_options& o) : options_(o) {
  if (options_.copy_rate > 0) {
    for (work_queue& l : queues_) l.rate = options_.copy_rate, l.latency = options_.latency;
  } else if (options_.expected_rate > 0) {
    for (work_queue& l : queues_) l.rate = options_.expected_rate, l.latency = handing_over;
  } else {
    calibrate();
  }
  assert((options_.copy_threads > 0 || options_.copy_rate <= 0) && "a slow copy needs a thread");
  if (options_.copy_threads > 0)
    for (const direction d : {direction::out, direction::in})
      queue_of(d).thread = std::thread{[this, d] { serve(d); }};
}

cpu_device::~cpu_device() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
    for (work_queue& l : queues_) l.work.notify_all();
    progress_.notify_all();
  }
  for (work_queue& l : queues_)
    if (l.thread.joinable()) l.thread.join();
}

std::byte* cpu_device::allocate(memory& m, bytes n) {
  assert(!m && "a device gives each of its memories once");
  m.reset(static_cast<std::byte*>(::operator new(n.count, std::align_val_t{64})));
  return m.get();
}

stamp cpu_device::copy(direction d, std::byte* to, const std::byte* from, bytes n,
                       const fence& after) {
  if (options_.copy_threads == 0) return copy_now(d, to, from, n.count);
  work_queue& l = queue_of(d);
  const std::lock_guard lock{mutex_};
  const std::uint64_t waiting = l.queued - l.done.load(std::memory_order_relaxed);
  if (waiting == l.ring.size()) {
    std::vector<job> larger(l.ring.size() * 2);
    for (std::uint64_t p = l.queued - waiting + 1; p <= l.queued; ++p)
      larger[p % larger.size()] = l.ring[p % l.ring.size()];
    l.ring.swap(larger);
  }
  const std::uint64_t point = ++l.queued;
  l.ring[point % l.ring.size()] = {to, from, n.count,
                                   after.point[static_cast<std::size_t>(lane_of(other(d)))]};
  l.pending_bytes += n.count;
  l.work.notify_one();
  return {lane_of(d), point};
}

// All that was queued before is done: there is nothing to wait for.
stamp cpu_device::copy_now(direction d, std::byte* to, const std::byte* from, std::size_t n) {
  work_queue& l = queue_of(d);
  const auto began = clock::now();
  spread(to, from, n);
  const nanoseconds took = clock::now() - began;
  note_rate(l, n, took);
  const std::uint64_t point = ++l.queued;
  l.spans[point % remembered] = {began - start_, took, took};
  l.done = point;
  waited_ += took;
  return {lane_of(d), point};
}

// The ranges do not overlap.
void cpu_device::spread(std::byte* to, const std::byte* from, std::size_t n) {
  const std::size_t parts = (n + share - 1) / share;
  if (idle_ == nullptr || parts < 2) return streaming_copy(to, from, n);
  idle_->parallel_for(parts, [&](std::size_t i) {
    streaming_copy(to + i * share, from + i * share, std::min(share, n - i * share));
  });
}

void cpu_device::note_rate(work_queue& l, std::size_t size, nanoseconds took) {
  if (options_.copy_rate > 0 || size < telling || took.count() <= 0) return;
  const double measured = static_cast<double>(size) * 1e9 / static_cast<double>(took.count());
  l.rate += weight_of_last * (measured - l.rate);
}

void cpu_device::serve(direction d) {
  yield_to_compute();
  work_queue& l = queue_of(d);
  work_queue& beside = queue_of(other(d));
  std::unique_lock lock{mutex_};
  for (;;) {
    const std::uint64_t point = l.done + 1;
    l.work.wait(lock, [&] { return stopping_ || l.queued >= point; });
    if (stopping_) return;
    const job j = l.ring[point % l.ring.size()];
    progress_.wait(lock, [&] { return stopping_ || beside.done >= j.after; });
    if (stopping_) return;
    l.running = true;
    l.started = clock::now();
    lock.unlock();
    perform(l, j);
    const nanoseconds took = clock::now() - l.started;
    lock.lock();
    note_rate(l, j.size, took);
    l.spans[point % remembered] = {l.started - start_, took, took};
    l.copied += took;
    l.pending_bytes -= j.size;
    l.running = false;
    l.done = point;
    progress_.notify_all();
  }
}

// `l.started` is only written by the thread that is here.
void cpu_device::perform(const work_queue& l, const job& j) const {
  const bool throttled = options_.copy_rate > 0;
  for (std::size_t at = 0;;) {
    const std::size_t n = std::min(chunk, j.size - at);
    streaming_copy(j.to + at, j.from + at, n);
    at += n;
    if (throttled) {
      const auto due =
          l.started + options_.latency + time_for(static_cast<double>(at), options_.copy_rate);
      for (auto now = clock::now(); now < due && !stopping_; now = clock::now())
        std::this_thread::sleep_for(std::min<clock::duration>(due - now, nap));
    }
    if (at == j.size || stopping_) return;
  }
}

bool cpu_device::block_until(stamp s) {
  if (reached(s)) return false;
  work_queue& l = queue_of(s.where == lane::copy_out ? direction::out : direction::in);
  const auto from = clock::now();
  std::unique_lock lock{mutex_};
  assert(s.point <= l.queued && "a stamp that was never given");
  progress_.wait(lock, [&] { return l.done >= s.point; });
  waited_ += clock::now() - from;
  return true;
}

nanoseconds cpu_device::stand_still(const std::function<void()>& f) {
  const auto asked = clock::now();
  wait({lane::copy_out, queue_of(direction::out).queued});
  wait({lane::copy_in, queue_of(direction::in).queued});
  const auto from = clock::now();
  f();
  const std::lock_guard lock{mutex_};
  start_ += clock::now() - from;
  return from - asked;
}

void cpu_device::begin(const fence& after) {
  for (const lane e : {lane::copy_out, lane::copy_in})
    block_until({e, after.point[static_cast<std::size_t>(e)]});
  beside_ = copied();
  began_ = clock::now();
}

stamp cpu_device::end() {
  const nanoseconds took = clock::now() - began_;
  double lost = 0;
  const auto copied_now = copied();
  for (const direction d : {direction::out, direction::in}) {
    const auto i = static_cast<std::size_t>(d);
    lost += burden(d) * static_cast<double>((copied_now[i] - beside_[i]).count());
  }
  // The burden is a mean: of one operator no more than a part is believed.
  const double least = 0.25 * static_cast<double>(took.count());
  const double alone = std::max(static_cast<double>(took.count()) - lost, least);
  computing_[++computed_ % remembered] = {began_ - start_, took,
                                          nanoseconds{static_cast<std::int64_t>(alone)}};
  return {lane::compute, computed_};
}

// What copies have taken so far, those that are under way included. Without threads none is.
std::array<nanoseconds, 2> cpu_device::copied() const {
  std::array<nanoseconds, 2> sum{};
  if (options_.copy_threads == 0 || options_.burden <= 0) return sum;
  const std::lock_guard lock{mutex_};
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] = queues_[i].copied;
    if (queues_[i].running) sum[i] += clock::now() - queues_[i].started;
  }
  return sum;
}

void cpu_device::move(std::byte* to, const std::byte* from, bytes n) {
  // Down, where blocks slide together: in pieces that do not overlap, as far as there are such.
  const auto apart = static_cast<std::size_t>(to < from ? from - to : 0);
  std::size_t at = 0;
  if (idle_ != nullptr && apart >= 4 * share)
    for (; at + apart <= n.count; at += apart) spread(to + at, from + at, apart);
  if (at == n.count) return;
  if (at > 0 || apart >= n.count)
    spread(to + at, from + at, n.count - at);
  else if (apart > 0)
    streaming_move_down(to, from, n.count);
  else
    std::memmove(to, from, n.count);
}

bool cpu_device::reached(stamp s) const noexcept {
  if (s.where == lane::compute) return s.point <= computed_;
  const work_queue& l = queue_of(s.where == lane::copy_out ? direction::out : direction::in);
  return l.done.load(std::memory_order_acquire) >= s.point;
}

void cpu_device::wait(stamp s) {
  block_until(s);
}

std::optional<cpu_device::span> cpu_device::span_of(stamp s) const {
  if (!reached(s) || s.point == 0) return std::nullopt;
  if (s.where == lane::compute) {
    if (s.point + remembered <= computed_) return std::nullopt;
    return computing_[s.point % remembered];
  }
  const work_queue& l = queue_of(s.where == lane::copy_out ? direction::out : direction::in);
  const std::lock_guard lock{mutex_};
  if (s.point + remembered <= l.done) return std::nullopt;
  return l.spans[s.point % remembered];
}

std::optional<nanoseconds> cpu_device::elapsed(stamp s) const {
  const auto known = span_of(s);
  return known ? std::optional(known->took) : std::nullopt;
}

std::optional<nanoseconds> cpu_device::began(stamp s) const {
  const auto known = span_of(s);
  return known ? std::optional(known->began) : std::nullopt;
}

std::optional<nanoseconds> cpu_device::alone(stamp s) const {
  const auto known = span_of(s);
  return known ? std::optional(known->alone) : std::nullopt;
}

double cpu_device::burden(direction) const noexcept {
  if (options_.copy_threads == 0) return 1;
  // A copy that is slowed down sleeps the rest of its time.
  if (options_.copy_rate > 0 && options_.expected_rate > 0)
    return options_.burden * std::min(1.0, options_.copy_rate / options_.expected_rate);
  return options_.burden;
}

double cpu_device::rate(direction d) const {
  const std::lock_guard lock{mutex_};
  return queue_of(d).rate;
}

nanoseconds cpu_device::latency(direction d) const {
  const std::lock_guard lock{mutex_};
  return queue_of(d).latency;
}

nanoseconds cpu_device::backlog(direction d) const {
  const work_queue& l = queue_of(d);
  const std::lock_guard lock{mutex_};
  const auto jobs = static_cast<std::int64_t>(l.queued - l.done);
  const nanoseconds all = jobs * l.latency + time_for(static_cast<double>(l.pending_bytes), l.rate);
  const nanoseconds gone = l.running ? nanoseconds{clock::now() - l.started} : nanoseconds{};
  return std::max(all - gone, nanoseconds{});
}

// A few copies of a buffer that is larger than most caches: at most some 20 ms.
void cpu_device::calibrate() {
  constexpr std::size_t size = std::size_t{16} << 20;
  const std::vector<std::byte> from(size, std::byte{1});
  std::vector<std::byte> to(size);
  nanoseconds best{std::chrono::seconds{1}};
  for (int round = 0; round < 3; ++round) {
    const auto begin = clock::now();
    streaming_copy(to.data(), from.data(), size);
    best = std::min<nanoseconds>(best, clock::now() - begin);
    if (clock::now() - start_ > std::chrono::milliseconds{20}) break;
  }
  for (work_queue& l : queues_) {
    l.rate = static_cast<double>(size) * 1e9 /
             static_cast<double>(std::max<std::int64_t>(best.count(), 1));
    l.latency = handing_over;
  }
}

}  // namespace delta::executor

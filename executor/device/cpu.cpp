#include "device/cpu.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <fstream>

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
    for (lane& l : lanes_) l.rate = options_.copy_rate, l.latency = options_.latency;
  } else {
    calibrate();
  }
  for (const direction d : {direction::out, direction::in})
    lane_of(d).thread = std::thread{[this, d] { serve(d); }};
}

cpu_device::~cpu_device() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
    for (lane& l : lanes_) l.work.notify_all();
    progress_.notify_all();
  }
  for (lane& l : lanes_) l.thread.join();
}

std::byte* cpu_device::allocate(memory& m, bytes n) {
  assert(!m && "a device gives each of its memories once");
  m.reset(static_cast<std::byte*>(::operator new(n.count, std::align_val_t{64})));
  return m.get();
}

stamp cpu_device::copy(direction d, std::byte* to, const std::byte* from, bytes n,
                       const fence& after) {
  lane& l = lane_of(d);
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
                                   after.point[static_cast<std::size_t>(engine_of(other(d)))]};
  l.pending_bytes += n.count;
  l.work.notify_one();
  return {engine_of(d), point};
}

void cpu_device::serve(direction d) {
  yield_to_compute();
  lane& l = lane_of(d);
  lane& beside = lane_of(other(d));
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
    if (options_.copy_rate <= 0 && j.size >= telling && took.count() > 0) {
      const double measured = static_cast<double>(j.size) * 1e9 / static_cast<double>(took.count());
      l.rate += weight_of_last * (measured - l.rate);
    }
    l.spans[point % remembered] = {l.started - start_, took};
    l.pending_bytes -= j.size;
    l.running = false;
    l.done = point;
    progress_.notify_all();
  }
}

// `l.started` is only written by the thread that is here.
void cpu_device::perform(const lane& l, const job& j) const {
  const bool throttled = options_.copy_rate > 0;
  for (std::size_t at = 0;;) {
    const std::size_t n = std::min(chunk, j.size - at);
    if (n > 0) std::memcpy(j.to + at, j.from + at, n);
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
  lane& l = lane_of(s.where == engine::copy_out ? direction::out : direction::in);
  const auto from = clock::now();
  std::unique_lock lock{mutex_};
  assert(s.point <= l.queued && "a stamp that was never given");
  progress_.wait(lock, [&] { return l.done >= s.point; });
  waited_ += clock::now() - from;
  return true;
}

void cpu_device::begin(const fence& after) {
  for (const engine e : {engine::copy_out, engine::copy_in})
    block_until({e, after.point[static_cast<std::size_t>(e)]});
  began_ = clock::now();
}

stamp cpu_device::end() {
  computing_[++computed_ % remembered] = {began_ - start_, clock::now() - began_};
  return {engine::compute, computed_};
}

void cpu_device::move(std::byte* to, const std::byte* from, bytes n) {
  if (n.count > 0) std::memmove(to, from, n.count);
}

bool cpu_device::reached(stamp s) const noexcept {
  if (s.where == engine::compute) return s.point <= computed_;
  const lane& l = lane_of(s.where == engine::copy_out ? direction::out : direction::in);
  return l.done.load(std::memory_order_acquire) >= s.point;
}

void cpu_device::wait(stamp s) {
  block_until(s);
}

std::optional<cpu_device::span> cpu_device::span_of(stamp s) const {
  if (!reached(s) || s.point == 0) return std::nullopt;
  if (s.where == engine::compute) {
    if (s.point + remembered <= computed_) return std::nullopt;
    return computing_[s.point % remembered];
  }
  const lane& l = lane_of(s.where == engine::copy_out ? direction::out : direction::in);
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

double cpu_device::rate(direction d) const {
  const std::lock_guard lock{mutex_};
  return lane_of(d).rate;
}

nanoseconds cpu_device::latency(direction d) const {
  const std::lock_guard lock{mutex_};
  return lane_of(d).latency;
}

nanoseconds cpu_device::backlog(direction d) const {
  const lane& l = lane_of(d);
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
    std::memcpy(to.data(), from.data(), size);
    best = std::min<nanoseconds>(best, clock::now() - begin);
    if (clock::now() - start_ > std::chrono::milliseconds{20}) break;
  }
  // The handing over to another thread, as a copy's latency: an everyday value, not measured.
  for (lane& l : lanes_) {
    l.rate = static_cast<double>(size) * 1e9 /
             static_cast<double>(std::max<std::int64_t>(best.count(), 1));
    l.latency = std::chrono::microseconds{10};
  }
}

}  // namespace delta::executor

// delta_torch: streams and events as engines.
#include "streams.hpp"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace delta_torch {

using delta::direction;
using delta::fence;
using delta::lane;
using delta::nanoseconds;
using delta::stamp;

namespace {

// By which wait it is, [waiter][awaited].
std::array<std::array<bool, device_streams::parties>, device_streams::parties> not_made{};

nanoseconds between(const c10::Event& from, const c10::Event& to) {
  const double ms = from.elapsedTime(to);
  return nanoseconds{static_cast<std::int64_t>(std::max(ms, 0.0) * 1e6)};
}

constexpr std::size_t calibrated_size = std::size_t{8} << 20, small_size = 4096;
// Of a bus of today, where nothing could be measured.
constexpr device_streams::copy_times assumed{20e9, nanoseconds{10'000}};
constexpr std::size_t most_works = 1u << 16u;
constexpr std::uint32_t first_samples = 3, sampled_every = 64;
constexpr std::size_t most_waiting = 16;  // samples that nobody asks for; asking costs time, too

}  // namespace

void device_streams::leave_out(std::size_t waiter, std::size_t awaited, bool on) noexcept {
  if (waiter < parties && awaited < parties) not_made[waiter][awaited] = on;
}
bool device_streams::left_out(std::size_t waiter, std::size_t awaited) noexcept {
  return not_made[waiter][awaited];
}

device_streams::device_streams(c10::Device device, device_part& part,
                               const std::array<c10::Stream, 2>& sides)
    : guard_(device.type()),
      part_(part),
      queues_{queue(guard_.getStream(device)), queue(sides[0]), queue(sides[1])} {
  guard_.synchronizeDevice(device.index());
  for (queue& l : queues_) l.copies = assumed;
}

// ---------------------------------------------------------------------------------------------
// Events

c10::Event device_streams::take_event(c10::EventFlag flag) {
  auto& idle = flag == c10::EventFlag::BACKEND_DEFAULT ? idle_ : idle_untimed_;
  if (idle.empty()) return c10::Event(guard_.type(), flag);
  c10::Event e = std::move(idle.back());
  idle.pop_back();
  return e;
}

void device_streams::give_back(std::optional<c10::Event>& e) {
  if (e.has_value())
    (e->flag() == c10::EventFlag::BACKEND_DEFAULT ? idle_ : idle_untimed_).push_back(std::move(*e));
  e.reset();
}

// The first mark that stands behind the work `point`, which is not known to be over.
device_streams::mark& device_streams::mark_at(queue& l, std::uint64_t point) {
  if (l.marks.empty() || l.marks.back().point < point) {
    mark m;
    m.point = l.queued;
    m.ended = take_event(c10::EventFlag::PYTORCH_DEFAULT);  // it only orders: that costs less
    m.ended->record(l.stream);
    l.marks.push_back(std::move(m));
  }
  return *std::ranges::lower_bound(l.marks, point, {}, &mark::point);
}

// All work up to `point` is over.
void device_streams::settle(queue& l, std::uint64_t point) {
  l.reached = std::max(l.reached, point);
  while (!l.marks.empty() && l.marks.front().point <= l.reached) {
    mark& m = l.marks.front();
    if (m.began.has_value()) learn(l, m);
    l.pending -= m.size;
    give_back(m.began);
    give_back(m.ended);
    l.marks.pop_front();
  }
}

bool device_streams::reached(stamp s) {
  queue& l = queue_of(s.where);
  if (s.point <= l.reached) return true;
  assert(s.point <= l.queued && "a stamp that was never given");
  // Asked again and again, of the compute stream, it would need an event each time: only where all
  // that there are have happened.
  if (!l.marks.empty() && l.marks.back().point < s.point) {
    const std::uint64_t last = l.marks.back().point;
    if (!l.marks.back().ended->query()) return false;
    settle(l, last);
  }
  const mark& m = mark_at(l, s.point);
  if (!m.ended->query()) return false;
  settle(l, m.point);
  return true;
}

void device_streams::wait(stamp s) {
  queue& l = queue_of(s.where);
  if (s.point <= l.reached) return;
  const mark& m = mark_at(l, s.point);
  const auto began = clock::now();
  m.ended->synchronize();
  if (s.where != lane::compute) waited_ += clock::now() - began;
  settle(l, m.point);
}

// ---------------------------------------------------------------------------------------------
// Work

// The engine's next work comes after all of `after`, without the host's waiting.
void device_streams::order(lane own, const fence& after) {
  queue& l = queue_of(own);
  for (const lane e : {lane::compute, lane::copy_out, lane::copy_in}) {
    const auto i = static_cast<std::size_t>(e);
    const std::uint64_t point = after.point[i];
    if (e == own || point <= queues_[i].reached || point <= l.ordered.point[i]) continue;
    if (left_out(static_cast<std::size_t>(own), i)) continue;
    const mark& m = mark_at(queues_[i], point);
    m.ended->block(l.stream);
    l.ordered.join({e, m.point});
  }
}

stamp device_streams::copy(direction d, std::byte* to, const std::byte* from, delta::bytes n,
                           const fence& after) {
  const lane own = lane_of(d);
  queue& l = queue_of(own);
  if (!l.marks.empty()) (void)reached({own, l.marks.front().point});
  order(own, after);
  mark m;
  m.point = ++l.queued;
  m.began = take_event();
  m.ended = take_event();
  m.size = n.count;
  m.began->record(l.stream);
  if (n.count > 0) {
    // A range of PyTorch's profiler: the host's time to order it.
    RECORD_USER_SCOPE(d == direction::out ? "delta::copy_out" : "delta::copy_in");
    const on_stream here(guard_, l.stream);
    part_.copy(d == direction::out ? copied::to_host : copied::to_device, to, from, n.count,
               l.stream);
  }
  m.ended->record(l.stream);
  l.pending += n.count;
  l.marks.push_back(std::move(m));
  return {own, l.queued};
}

void device_streams::begin(const fence& after) {
  order(lane::compute, after);
}

stamp device_streams::end() {
  queue& l = queues_[0];
  recent_[++l.queued % kept] = expected_;
  if (open_.of != nullptr) {
    open_.ended = take_event();
    open_.ended->record(l.stream);
    samples_.push_back(std::exchange(open_, {}));
    if (samples_.size() > most_waiting) read_samples();
  }
  expected_ = nullptr;
  if (l.queued % stride == 0) (void)mark_at(l, l.queued);
  if (!l.marks.empty() && l.queued % stride == 0)
    (void)reached({lane::compute, l.marks.front().point});
  return {lane::compute, l.queued};
}

// ---------------------------------------------------------------------------------------------
// Times

void device_streams::expect(signature which) {
  if (open_.of != nullptr) {  // it was never queued
    give_back(open_.began);
    open_ = {};
  }
  expected_ = nullptr;
  if (which.hash == 0) return;
  const auto at =
      works_.size() < most_works ? works_.try_emplace(which.hash).first : works_.find(which.hash);
  if (at == works_.end()) {
    expected_ = &unlisted_;
    return;
  }
  work& w = at->second;
  expected_ = &w;
  if (w.skip > 0) {
    --w.skip;
    return;
  }
  w.skip = ++w.samples < first_samples ? 0 : sampled_every - 1;
  open_ = {.of = &w, .began = take_event(), .ended = {}};
  open_.began->record(queues_[0].stream);
}

std::uint64_t device_streams::taken_by(signature which) const noexcept {
  const auto at = works_.find(which.hash);
  return at != works_.end() ? at->second.most : 0;
}
// What was a kernel's only once, as when it tries what is fastest, is soon forgotten.
void device_streams::took(signature which, std::uint64_t bytes) {
  const auto at = works_.find(which.hash);
  if (at == works_.end()) return;
  std::uint64_t& most = at->second.most;
  most = bytes >= most ? bytes : bytes + (most - bytes) / 2;
}

// The fastest counts: a kernel that was queued on an idle stream waits for its launch, too.
void device_streams::read_samples() {
  while (!samples_.empty() && samples_.front().ended->query()) {
    sample& s = samples_.front();
    const nanoseconds took = between(*s.began, *s.ended);
    s.of->took = s.of->took.count() < 0 ? took : std::min(s.of->took, took);
    give_back(s.began);
    give_back(s.ended);
    samples_.pop_front();
  }
}

std::optional<nanoseconds> device_streams::elapsed(stamp s) {
  const queue& l = queue_of(s.where);
  if (s.point == 0 || s.point > l.queued || l.queued - s.point >= kept) return std::nullopt;
  if (s.where != lane::compute)
    return reached(s) ? std::optional(l.took[s.point % kept]) : std::nullopt;
  const work* const w = recent_[s.point % kept];
  if (w == nullptr) return nanoseconds{};
  if (w->took.count() < 0) read_samples();
  return w->took.count() < 0 ? std::nullopt : std::optional(w->took);
}

// Short copies measure the latency, long ones the rate: each by a moving mean, as both directions
// share a bus.
void device_streams::learn(queue& l, const mark& m) {
  const nanoseconds took = between(*m.began, *m.ended);
  l.took[m.point % kept] = took;
  copy_times& c = l.copies;
  if (m.size < calibrated_size / 8 || took <= c.latency) return;
  const double seen =
      static_cast<double>(m.size) * 1e9 / static_cast<double>((took - c.latency).count());
  c.rate += (seen - c.rate) / 8;
}

void device_streams::begin_with(const std::array<copy_times, 2>& known) noexcept {
  for (const direction d : {direction::out, direction::in})
    queue_of(lane_of(d)).copies = known[static_cast<std::size_t>(d)];
}

nanoseconds device_streams::backlog(direction d) const {
  const queue& l = queue_of(d);
  return nanoseconds{
      static_cast<std::int64_t>(static_cast<double>(l.pending) * 1e9 / l.copies.rate)};
}

// In ns, on the idle stream of that direction.
double device_streams::copy_time(direction d, std::byte* to, const std::byte* from,
                                 std::size_t size) {
  queue& l = queue_of(lane_of(d));
  c10::Event began = take_event(), ended = take_event();
  began.record(l.stream);
  {
    const on_stream here(guard_, l.stream);
    part_.copy(d == direction::out ? copied::to_host : copied::to_device, to, from, size, l.stream);
  }
  ended.record(l.stream);
  ended.synchronize();
  return std::max(static_cast<double>(between(began, ended).count()), 1.0);
}

void device_streams::calibrate(std::size_t most) {
  const std::size_t size = std::min(most, calibrated_size);
  if (size < 2 * small_size) return;
  at::DataPtr there, host;
  try {
    const on_stream here(guard_, compute());
    there = part_.own().allocate(size);
    host = at::getHostAllocator(guard_.type())->allocate(size);
  } catch (const c10::OutOfMemoryError&) {
    return;
  }
  auto* const device = static_cast<std::byte*>(there.get());
  auto* const pinned = static_cast<std::byte*>(host.get());
  for (const direction d : {direction::out, direction::in}) {
    std::byte* const to = d == direction::out ? pinned : device;
    const std::byte* const from = d == direction::out ? device : pinned;
    double small = 0, large = 0;
    for (int i = 0; i < 3; ++i) {  // the fastest of three
      const double s = copy_time(d, to, from, small_size), g = copy_time(d, to, from, size);
      small = i == 0 ? s : std::min(small, s);
      large = i == 0 ? g : std::min(large, g);
    }
    const double latency = std::min(small, large / 2);
    queue_of(lane_of(d)).copies = {static_cast<double>(size) * 1e9 / (large - latency),
                                   nanoseconds{static_cast<std::int64_t>(latency)}};
  }
}

}  // namespace delta_torch

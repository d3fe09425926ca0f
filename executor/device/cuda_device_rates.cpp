// The rates of copies: measured at the start, and as they turn out on the way.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "device/cuda_device.hpp"

namespace delta::executor {
namespace {

using std::chrono::milliseconds;

// Copies smaller than this say more about the latency than about the rate.
constexpr std::uint64_t telling = std::uint64_t{1} << 20;
constexpr double weight_of_last = 0.2;
// Copies are timed on at most so much of each memory, for so long, and not on less than this.
constexpr std::uint64_t sample = std::uint64_t{16} << 20;
constexpr std::uint64_t least_sample = std::uint64_t{16} << 10;
constexpr nanoseconds patience = milliseconds{300};

double rate_of(std::uint64_t size, nanoseconds took) {
  return static_cast<double>(size) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(took.count(), 1));
}

}  // namespace

// One copy of the memories' first bytes, from beginning to end.
nanoseconds cuda_device::one_copy(direction d, std::byte* host, std::uint64_t n) {
  const bool out = d == direction::out;
  const stamp s = copy(d, out ? host : held_.arena, out ? held_.arena : host, bytes{n}, {});
  wait(s);
  return *elapsed(s);
}

// Copies both ways side by side, `out` on the memories' first `n` bytes, `in` on the next. The
// first and the last of each may have run alone.
void cuda_device::both_ways(std::byte* host, std::uint64_t n) {
  constexpr std::uint64_t rounds = 4;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    copy(direction::out, host, held_.arena, bytes{n}, {});
    copy(direction::in, held_.arena + n, host + n, bytes{n}, {});
  }
  for (const direction d : {direction::out, direction::in}) {
    work_queue& l = queue_of(d);
    wait({lane_of(d), l.queued});
    nanoseconds took{};
    for (std::uint64_t k = 1; k + 1 < rounds; ++k) took += *elapsed({lane_of(d), l.queued - k});
    l.rate[1] = rate_of(n * (rounds - 2), took - l.latency * (rounds - 2));
  }
}

// Times copies before the memories hold anything. Runs without host memory, such as unmanaged ones,
// are recorded and planned with, so they need the rates, too: where there is less host memory than
// a sample takes, a buffer stands in for it. Too small an arena tells nothing: everyday values
// stay.
void cuda_device::calibrate() {
  if (options_.filled_to.count > 0) return;
  const std::uint64_t half = std::min(held_.arena_size.count / 2, sample) / 512 * 512;
  if (half < least_sample) return;
  if (held_.host.size.count >= 2 * half) return measure_copies(held_.host.at, half);
  held_.staging = take_host(bytes{2 * half});
  measure_copies(held_.staging.at, half);
  check("cudaFreeHost", held_.give_back(held_.staging));
}

// On the first 2 * `half` bytes of the arena and of `host`.
void cuda_device::measure_copies(std::byte* host, std::uint64_t half) {
  calibrating_ = true;
  const nanoseconds from = now();
  const auto late = [&] { return now() - from > patience; };
  std::memset(host, 0, 2 * half);  // pages that are not there yet would be timed, too
  const std::uint64_t first = std::min(half, telling);
  std::uint64_t size = 0;  // what takes some milliseconds
  for (const direction d : {direction::in, direction::out}) {
    work_queue& l = queue_of(d);
    std::array<nanoseconds, 9> small{};
    for (nanoseconds& t : small) t = one_copy(d, host, 64);
    std::nth_element(small.begin(), small.begin() + small.size() / 2, small.end());
    l.latency = small[small.size() / 2];
    const double found = rate_of(first, one_copy(d, host, first));
    if (size == 0)
      size = std::clamp(static_cast<std::uint64_t>(found * 0.008), least_sample, half) / 512 * 512;
    nanoseconds best = one_copy(d, host, size);
    for (int round = 0; round < 2 && !late(); ++round)
      best = std::min(best, one_copy(d, host, size));
    l.rate[0] = l.rate[1] = rate_of(size, best - std::min(l.latency, best / 2));
  }
  if (!late()) both_ways(host, size);
  // Most moves go through the scratch, where every byte is copied twice.
  begin({});
  copy_here(held_.arena + half, held_.arena, half);
  const stamp moved = end();
  wait(moved);
  move_rate_ = rate_of(half, *elapsed(moved)) / 2;
  waited_ = host_waited_ = {};
  calibrating_ = false;
}

// A copy that ran beside copies of the other direction tells of the one rate, a copy that ran alone
// of the other; one in between, of neither.
void cuda_device::learn(lane e, const mark& m, span times) {
  if (calibrating_ || m.size < telling) return;
  work_queue& l = queue_of(e);
  const work_queue& beside = queue_of(e == lane::copy_out ? lane::copy_in : lane::copy_out);
  const nanoseconds end = times.began + times.took;
  nanoseconds shared{};
  for (std::uint64_t p = beside.reached; p > 0 && beside.reached - p < 16; --p) {
    const span& s = beside.spans[p % most_ahead];
    if (s.began + s.took <= times.began) break;
    shared +=
        std::max(std::min(end, s.began + s.took) - std::max(times.began, s.began), nanoseconds{});
  }
  const bool both = shared * 4 >= times.took * 3;
  const bool alone = shared * 4 <= times.took && beside.queued == beside.reached;
  if (!both && !alone) return;
  double& known = l.rate[both ? 1 : 0];
  known +=
      weight_of_last * (rate_of(m.size, times.took - std::min(l.latency, times.took / 2)) - known);
}

double cuda_device::rate(direction d) const {
  const work_queue& beside = queue_of(other(d));
  return queue_of(d).rate[beside.queued > beside.reached ? 1 : 0];
}

nanoseconds cuda_device::latency(direction d) const {
  return queue_of(d).latency;
}

// What is queued, at the current rate, less what has gone since its first copy can have begun: when
// it was queued, the copy before had ended, and the operators that it waits for.
nanoseconds cuda_device::backlog(direction d) const {
  const work_queue& l = queue_of(d);
  if (l.queued == l.reached) return {};
  const auto jobs = static_cast<std::int64_t>(l.queued - l.reached);
  const double copying = static_cast<double>(l.pending_bytes) * 1e9 / rate(d);
  const nanoseconds all = jobs * l.latency + nanoseconds{std::llround(copying)};
  const mark& first = l.marks[(l.reached + 1) % most_ahead];
  const work_queue& compute = queues_[static_cast<std::size_t>(lane::compute)];
  const std::uint64_t point = first.ordered.point[static_cast<std::size_t>(lane::compute)];
  if (point > compute.reached) return all;
  nanoseconds began = std::max(first.queued, l.ended);
  if (point > 0 && compute.reached - point < most_ahead) {
    const span& operation = compute.spans[point % most_ahead];
    began = std::max(began, operation.began + operation.took);
  }
  return std::max(all - std::max(now() - began, nanoseconds{}), nanoseconds{});
}

}  // namespace delta::executor

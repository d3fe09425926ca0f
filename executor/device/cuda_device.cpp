#include "device/cuda_device.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <iostream>
#include <new>
#include <utility>

#include "device/cuda_fill.hpp"

namespace delta::executor {
namespace {

using std::chrono::seconds;

// From so many stamps under way on a lane, every new one asks whether the oldest is over.
constexpr std::uint64_t many = 32;
// How long "not yet" is taken to hold, and for how many questions.
constexpr nanoseconds moment = std::chrono::microseconds{5};
constexpr int most_repeated = 64;
// An event's distance from the anchor is a float of milliseconds: within this it is exact to a
// quarter of a microsecond, which is finer than the GPU's own clock.
constexpr nanoseconds anchor_reach = seconds{4};
// The host's own accesses are mostly smaller than this.
constexpr std::uint64_t least_staging = std::uint64_t{64} << 10;
constexpr std::align_val_t page{4096};
// While operators are timed: a pause in which the host launches a hundred of them, and of how many
// it must be ahead. So many of the shortest last longer than launching the one that takes longest.
constexpr nanoseconds pause = std::chrono::milliseconds{1};
constexpr std::uint64_t least_ahead = 32;

nanoseconds system_clock() {
  return std::chrono::steady_clock::now().time_since_epoch();
}
std::string in_mib(bytes n) {
  return std::to_string((n.count + (std::uint64_t{1} << 20) - 1) >> 20) + " MiB";
}
std::string in_gb(double rate) {
  const auto tenths = static_cast<std::int64_t>(std::llround(rate / 1e8));
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GB/s";
}

}  // namespace

// ---------------------------------------------------------------------------------------------
// What is held, and how calls fail

cuda_device::holdings::~holdings() {
  int now = -1;
  if (!api->current_device(&now).ok() || now != device) api->set_device(device);
  // Work under way may still use what goes now. A lost GPU does no work, and waiting for it fails.
  const auto wait = [&](cuda_stream s) {
    if (!lost && s != nullptr && !api->stream_synchronize(s).ok()) lost = true;
  };
  for (const cuda_stream s : streams) wait(s);
  wait(compute);
  for (const cuda_event e : events) api->event_destroy(e);
  for (const cuda_stream s : streams) api->stream_destroy(s);
  if (scratch != nullptr) api->free(scratch);
  if (arena != nullptr) arena_is_virtual ? api->unmap_virtual(arena, arena_size) : api->free(arena);
  for (host_part& b : buffers) give_back(b);
  give_back(staging);
  give_back(host);
}

cuda_status cuda_device::holdings::give_back(host_part& p) noexcept {
  const host_part gone = std::exchange(p, {});
  if (gone.at == nullptr) return {};
  if (gone.pinned) return api->free_host(gone.at);
  ::operator delete(gone.at, page);
  return {};
}

void cuda_device::fail(const char* call, const cuda_status& s, std::string_view extra) {
  auto what = kind_of(s.code);
  if (what != cuda_failure::kind::lost && lost()) what = cuda_failure::kind::lost;
  if (what == cuda_failure::kind::lost) held_.lost = true;
  raise(what, call, s, extra);
}

// An error that does not go away is one of the context, whatever its number. cudaGetLastError would
// not tell: the failed call's error was taken away by whoever looked at it first.
bool cuda_device::lost() {
  bool idle = false;
  return !api_.stream_query(held_.compute, &idle).ok();
}

void cuda_device::check(const char* call, const cuda_status& s) {
  if (!s.ok()) fail(call, s);
}

cuda_device::cuda_device(cuda_api& api, cuda_stream compute, const cuda_device_options& o)
    : api_(api),
      options_(o),
      clock_(o.clock ? o.clock : system_clock),
      start_(clock_()),
      held_(api, o.device) {
  here();
  held_.compute = compute;
  cuda_device_properties p;
  check("cudaGetDeviceProperties", api_.properties(options_.device, &p));
  name_ = p.name;
  queue_of(lane::compute).stream = compute;
  for (const lane e : {lane::copy_out, lane::copy_in}) {
    queue_of(e).stream = compute;
    if (!options_.overlap) continue;
    held_.streams.reserve(2);
    check("cudaStreamCreateWithPriority", api_.stream_create(&queue_of(e).stream, false));
    held_.streams.push_back(queue_of(e).stream);
  }
  anchor_ = record(queue_of(lane::compute));
  check("cudaEventSynchronize", api_.event_synchronize(anchor_));
  anchor_time_ = now();
}

cuda_device::~cuda_device() = default;

cuda_event cuda_device::take_event() {
  if (idle_.empty()) {
    // Room first: an event that was created must get into the list.
    if (held_.events.size() == held_.events.capacity())
      held_.events.reserve(std::max<std::size_t>(held_.events.size() * 2, 64));
    idle_.reserve(held_.events.capacity());
    cuda_event e = nullptr;
    check("cudaEventCreate", api_.event_create(&e));
    held_.events.push_back(e);
    return e;
  }
  const cuda_event e = idle_.back();
  idle_.pop_back();
  return e;
}
// `idle_` has room for all events that exist.
void cuda_device::give_back(cuda_event& e) noexcept {
  if (e != nullptr) idle_.push_back(std::exchange(e, nullptr));
}
cuda_event cuda_device::record(const work_queue& l) {
  cuda_event e = take_event();
  if (const cuda_status s = api_.event_record(e, l.stream); !s.ok()) {
    give_back(e);
    fail("cudaEventRecord", s);
  }
  return e;
}
// The host waits: for what, is the caller's to say.
template <class F>
nanoseconds cuda_device::timed(const F& f) {
  const nanoseconds from = now();
  f();
  const nanoseconds took = now() - from;
  host_waited_ += took;
  return took;
}

// Both are known to be over, mostly because of later work that is. Whether CUDA says so of an event
// that nobody asked about is its own affair: where it does not, the event is waited for.
nanoseconds cuda_device::between(cuda_event from, cuda_event to) {
  constexpr int not_ready = 600;
  float ms = 0;
  cuda_status s = api_.event_elapsed(from, to, &ms);
  if (s.code == not_ready) {
    for (const cuda_event e : {from, to})
      timed([&] { check("cudaEventSynchronize", api_.event_synchronize(e)); });
    s = api_.event_elapsed(from, to, &ms);
  }
  check("cudaEventElapsedTime", s);
  return nanoseconds{std::llround(static_cast<double>(ms) * 1e6)};
}

// ---------------------------------------------------------------------------------------------
// Stamps

// Before a new stamp: bounds how far the host runs ahead, and so how many events there are.
void cuda_device::make_room(lane e) {
  const work_queue& l = queue_of(e);
  if (l.queued - l.reached >= many) static_cast<void>(reached({e, l.reached + 1}));
  if (l.queued - l.reached == most_ahead) wait({e, l.reached + most_ahead / 2});
}

// Whether whatever is queued on the stream now comes after `s` without being told to.
bool cuda_device::comes_after(const work_queue& l, stamp s) const noexcept {
  const auto e = static_cast<std::size_t>(s.where);
  return s.point <= queues_[e].reached || s.point <= l.ordered.point[e] ||
         queues_[e].stream == l.stream;
}

void cuda_device::wait_in(work_queue& l, stamp s) {
  assert(s.point <= queue_of(s.where).queued && "a stamp that was never given");
  const mark& m = mark_of(s);
  check("cudaStreamWaitEvent", api_.stream_wait_event(l.stream, m.end));
  if (l.stream == queues_[0].stream) adjacent_ = false;
  l.ordered.join(m.ordered);
}

// Everything is queued but the last event.
stamp cuda_device::push(lane e, mark m) {
  work_queue& l = queue_of(e);
  m.end = record(l);
  const stamp s{e, ++l.queued};
  m.ordered = l.ordered.join(s);
  l.pending_bytes += m.size;
  l.marks[s.point % most_ahead] = m;
  return s;
}

// The manager asks about every copy under way at every operator, the oldest first, and a query
// costs about a microsecond.
bool cuda_device::reached(stamp s) {
  work_queue& l = queue_of(s.where);
  if (s.point <= l.reached) return true;
  assert(s.point <= l.queued && "a stamp that was never given");
  const nanoseconds time = now();
  if (l.not_yet > l.reached && s.point >= l.not_yet && time - l.asked < moment &&
      l.repeated++ < most_repeated)
    return false;
  here();
  bool done = false;
  check("cudaEventQuery", api_.event_query(mark_of(s).end, &done));
  if (done)
    settle(s);
  else
    l.not_yet = s.point, l.asked = time, l.repeated = 0;
  return done;
}

void cuda_device::wait(stamp s) {
  if (reached(s)) return;
  const nanoseconds took =
      timed([&] { check("cudaEventSynchronize", api_.event_synchronize(mark_of(s).end)); });
  if (s.where != lane::compute) waited_ += took;
  settle(s);
}

// The event of `s` has happened, so all that it was ordered after has, too.
void cuda_device::settle(stamp s) {
  const fence over = mark_of(s).ordered;
  for (std::size_t e = 0; e < lane_count; ++e)
    while (queues_[e].reached < over.point[e]) retire(static_cast<lane>(e));
}

// The oldest work of a lane is over: its times are noted, its events go back.
void cuda_device::retire(lane e) {
  work_queue& l = queue_of(e);
  const std::uint64_t point = l.reached + 1;
  mark& m = l.marks[point % most_ahead];
  const nanoseconds took = between(m.begin, m.end);
  const nanoseconds stalled = m.ready != nullptr ? between(m.ready, m.begin) : nanoseconds{};
  const span times{place(m, took), took, m.exact};
  l.spans[point % most_ahead] = times;
  l.ended = times.began + times.took;
  l.reached = point;
  l.pending_bytes -= m.size;
  waited_ += std::max(stalled, nanoseconds{});
  if (e != lane::compute) {
    if (l.stream == queues_[0].stream) waited_ += took;
    learn(e, m, times);
  }
  const mark& next = point < l.queued ? l.marks[(point + 1) % most_ahead] : open_;
  if (e == lane::compute && next.borrowed) m.end = nullptr;  // now it is that one's alone
  for (cuda_event* used : {&m.ready, &m.begin, &m.end}) give_back(*used);
}

// When the work began, by now()'s clock. The two clocks run apart by some millionths, but work is
// never over after it was seen to be, and never begins before it was queued: by that they are kept
// together. An event that is far from the anchor becomes the anchor: the begin, which nobody shares
// any more.
nanoseconds cuda_device::place(mark& m, nanoseconds took) {
  const nanoseconds distance = between(anchor_, m.end);
  const nanoseconds began = anchor_time_ + distance - took;
  nanoseconds shift = std::max(m.queued - began, nanoseconds{});
  shift = std::min(shift, now() - began - took);
  anchor_time_ += shift;
  if (distance > anchor_reach) {
    std::swap(anchor_, m.begin);
    anchor_time_ += distance - took;
  }
  return began + shift;
}

const cuda_device::span* cuda_device::span_of(stamp s) {
  if (s.point == 0 || !reached(s)) return nullptr;
  const work_queue& l = queue_of(s.where);
  return l.reached - s.point < most_ahead ? &l.spans[s.point % most_ahead] : nullptr;
}
std::optional<nanoseconds> cuda_device::elapsed(stamp s) {
  const span* known = span_of(s);
  return known != nullptr ? std::optional(known->took) : std::nullopt;
}
std::optional<nanoseconds> cuda_device::began(stamp s) {
  const span* known = span_of(s);
  return known != nullptr ? std::optional(known->began) : std::nullopt;
}

std::optional<nanoseconds> cuda_device::measured(stamp s) {
  const span* known = span_of(s);
  return known != nullptr && known->exact ? std::optional(known->took) : std::nullopt;
}

// ---------------------------------------------------------------------------------------------
// Work

stamp cuda_device::copy(direction d, std::byte* to, const std::byte* from, bytes n,
                        const fence& after) {
  here();
  const lane own = lane_of(d);
  make_room(own);
  work_queue& l = queue_of(own);
  if (l.stream == queues_[0].stream) adjacent_ = false;
  for (std::size_t e = 0; e < lane_count; ++e) {
    const stamp s{static_cast<lane>(e), after.point[e]};
    if (s.where != own && !comes_after(l, s)) wait_in(l, s);
  }
  mark m;
  m.queued = now();
  m.size = n.count;
  m.begin = record(l);
  if (n.count > 0) {
    const auto kind = d == direction::out ? cuda_copy::to_host : cuda_copy::to_device;
    const auto queue = [&] {
      check("cudaMemcpyAsync", api_.memcpy_async(to, from, n, kind, l.stream));
    };
    // With pageable memory the call itself is the copy.
    if (pinned())
      queue();
    else
      waited_ += timed(queue);
  }
  return push(own, m);
}

// A wait gets one event more: it happens when all operators before are over, `begin` happens when
// the copies are, too. The time between them the compute stream stood idle for the copies, however
// late the host came; where nothing is waited for it costs nothing. An operator right behind one
// that is not over begins when that ends: an event less on the stream, which each holds up a
// little. Behind one that is over the stream is idle, and for how long is not the operator's time.
void cuda_device::begin(const fence& after) {
  here();
  make_room(lane::compute);
  if (timing_) stay_ahead();
  work_queue& l = queue_of(lane::compute);
  abandon_open();
  for (const lane e : {lane::copy_out, lane::copy_in}) {
    const stamp s{e, after.point[static_cast<std::size_t>(e)]};
    if (comes_after(l, s) || reached(s)) continue;
    if (open_.ready == nullptr) open_.ready = record(l);
    wait_in(l, s);
  }
  open_.queued = now();
  const stamp before{lane::compute, l.queued};
  open_.borrowed = std::exchange(adjacent_, false) && !reached(before);
  open_.begin = open_.borrowed ? mark_of(before).end : record(l);
}

// Of an operator that never ended. What it borrowed is still the lender's, unless that is over.
void cuda_device::abandon_open() {
  const work_queue& l = queue_of(lane::compute);
  if (open_.borrowed && l.reached < l.queued) open_.begin = nullptr;
  open_.borrowed = false;
  give_back(open_.ready);
  give_back(open_.begin);
}

// Behind a pause that is not over, the host is far ahead.
void cuda_device::stay_ahead() {
  const work_queue& l = queue_of(lane::compute);
  const std::uint64_t point =
      std::max(behind_pause_, l.queued > least_ahead ? l.queued - least_ahead : 0);
  if (point > l.queued || !reached({lane::compute, point})) return;
  check("cudaLaunchHostFunc", api_.stream_pause(l.stream, pause));
  behind_pause_ = l.queued + 1;
  adjacent_ = false;
}

stamp cuda_device::end() {
  here();
  check("a kernel's launch (cudaGetLastError)", api_.last_error());
  assert(open_.begin != nullptr && "no operator has begun");
  const stamp s = push(lane::compute, open_);
  open_ = {};
  adjacent_ = true;
  if (timing_) {
    mark& m = mark_of(s);
    bool began = false;
    check("cudaEventQuery", api_.event_query(m.begin, &began));
    m.exact = !began;
  }
  return s;
}

void cuda_device::copy_here(std::byte* to, const std::byte* from, std::uint64_t n) {
  check("cudaMemcpyAsync", api_.memcpy_async(to, from, bytes{n}, cuda_copy::on_device,
                                             queue_of(lane::compute).stream));
  adjacent_ = false;
}

// Blocks slide by as little as a granule, but CUDA's copies may not overlap. Pieces no longer than
// the distance don't; through the scratch every byte goes twice, in pieces of any length. What
// needs fewer calls is taken: a call costs as much as copying some megabytes.
void cuda_device::move(std::byte* to, const std::byte* from, bytes n) {
  if (n.count == 0 || to == from) return;
  here();
  const bool down = to < from;
  const auto distance = static_cast<std::uint64_t>(down ? from - to : to - from);
  const std::uint64_t scratch = held_.scratch_size.count;
  const auto pieces = [&](std::uint64_t size) { return (n.count + size - 1) / size; };
  const bool direct = scratch == 0 || pieces(distance) <= 2 * pieces(scratch);
  const std::uint64_t piece = std::min(direct ? distance : scratch, n.count);
  for (std::uint64_t done = 0; done < n.count; done += piece) {
    const std::uint64_t size = std::min(piece, n.count - done);
    const std::uint64_t at = down ? done : n.count - done - size;
    if (direct) {
      copy_here(to + at, from + at, size);
    } else {
      copy_here(held_.scratch, from + at, size);
      copy_here(to + at, held_.scratch, size);
    }
  }
}

// ---------------------------------------------------------------------------------------------
// The host's own accesses

void cuda_device::synchronize_compute() {
  work_queue& l = queue_of(lane::compute);
  timed([&] { check("cudaStreamSynchronize", api_.stream_synchronize(l.stream)); });
  if (l.reached < l.queued) settle({lane::compute, l.queued});
}

std::byte* cuda_device::map(std::byte* device, bytes n, bool reading) {
  assert(mapped_.device == nullptr && "one at a time");
  here();
  if (n > held_.staging.size) {
    check("cudaFreeHost", held_.give_back(held_.staging));
    held_.staging = take_host(bytes{std::max(n.count + n.count / 2, least_staging)});
  }
  if (reading && n.count > 0) {
    check("cudaMemcpyAsync", api_.memcpy_async(held_.staging.at, device, n, cuda_copy::to_host,
                                               queue_of(lane::compute).stream));
    synchronize_compute();
  }
  mapped_ = {device, n};
  return held_.staging.at;
}

void cuda_device::unmap(bool writing) {
  const auto [device, n] = std::exchange(mapped_, {});
  if (!writing || n.count == 0) return;
  here();
  check("cudaMemcpyAsync", api_.memcpy_async(device, held_.staging.at, n, cuda_copy::to_device,
                                             queue_of(lane::compute).stream));
  if (options_.filled_to.count > 0)
    check("cudaMemsetAsync",
          fill_rounding(api_, device, n, options_.filled_to, queue_of(lane::compute).stream));
  synchronize_compute();
}

std::byte* cuda_device::host_buffer(bytes n) {
  here();                                           // pinned for the device that is current
  held_.buffers.reserve(held_.buffers.size() + 1);  // what was taken must get into the list
  return held_.buffers.emplace_back(take_host(n)).at;
}

void cuda_device::fetch(std::byte* to, const std::byte* device, bytes n) {
  here();
  check("cudaMemcpyAsync",
        api_.memcpy_async(to, device, n, cuda_copy::to_host, queue_of(lane::compute).stream));
}

// ---------------------------------------------------------------------------------------------
// Memories

std::byte* cuda_device::device_memory(bytes n) {
  assert(held_.arena == nullptr && "a device gives each of its memories once");
  if (n.count == 0) return nullptr;
  here();
  const bytes beside = std::min(options_.scratch, n);
  bytes free{}, total{};
  check("cudaMemGetInfo", api_.memory_info(&free, &total));
  const std::string asked = "the budget of " + in_mib(n) + " and " + in_mib(beside) +
                            " beside it were asked for, " + in_mib(free) + " of " + in_mib(total) +
                            " are free";
  const char* const call = options_.virtual_memory ? "cuMemCreate" : "cudaMalloc";
  if (free < n + beside)
    raise(cuda_failure::kind::out_of_memory, call,
          {2, "cudaErrorMemoryAllocation", "out of memory"}, asked);
  const cuda_status s =
      options_.virtual_memory ? api_.map_virtual(&held_.arena, n) : api_.malloc(&held_.arena, n);
  if (!s.ok()) fail(call, s, asked);
  held_.arena_size = n;
  held_.arena_is_virtual = options_.virtual_memory;
  if (reinterpret_cast<std::uintptr_t>(held_.arena) % options_.alignment != 0)
    raise(cuda_failure::kind::failed, call,
          {0, "cudaSuccess", "the memory has not the alignment that operators count on"},
          std::to_string(options_.alignment) + " bytes");
  if (beside.count > 0) {
    if (const cuda_status t = api_.malloc(&held_.scratch, beside); !t.ok())
      fail("cudaMalloc", t, asked);
    held_.scratch_size = beside;
  }
  return held_.arena;
}

void cuda_device::warn(const std::string& line) const {
  if (options_.warn)
    options_.warn(line);
  else
    std::cerr << "warning: " << line << '\n';
}

// Pinned, or else pageable: slower, but the run goes on.
cuda_device::host_part cuda_device::take_host(bytes n) {
  host_part p{.at = nullptr, .size = n, .pinned = true};
  const cuda_status s = api_.malloc_host(&p.at, n);
  if (s.ok()) return p;
  const std::string asked = in_mib(n) + " of host memory were asked for";
  if (kind_of(s.code) == cuda_failure::kind::lost || lost()) fail("cudaMallocHost", s, asked);
  p.pinned = false;
  p.at = static_cast<std::byte*>(::operator new(n.count, page, std::nothrow));
  if (p.at == nullptr) fail("cudaMallocHost", s, asked);
  return p;
}

std::byte* cuda_device::host_memory(bytes n) {
  assert(held_.host.at == nullptr && "a device gives each of its memories once");
  here();
  if (n.count == 0) return calibrate(), nullptr;
  held_.host = take_host(n);
  calibrate();
  if (!pinned())
    warn("the host memory of " + in_mib(n) +
         " could not be pinned (cudaMallocHost): it is pageable, and copies reach " +
         in_gb(queue_of(direction::out).rate[0]) + " out and " +
         in_gb(queue_of(direction::in).rate[0]) +
         " in; a smaller host budget or a higher limit on locked memory (ulimit -l) helps");
  return held_.host.at;
}

}  // namespace delta::executor

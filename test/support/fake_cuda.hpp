// delta tests: CUDA without a GPU. Memory is the heap's, streams are the adversary's lanes: what
// is queued runs as late and in as odd an order as the events allow, and every pair of accesses
// that no event orders is reported. So the real cuda_device runs on it, unchanged.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "adversary.hpp"
#include "delta/units.hpp"
#include "device/cuda_api.hpp"

namespace delta::test {

struct fake_cuda_options {
  std::uint64_t seed = 1;
  wait_reason ignored = wait_reason::none;  ///< the waits that streams do not make
  bytes total = 1_GiB;                      ///< of device memory
  double rate = 20e9, rate_both = 12e9;     ///< of copies, by whether both directions run
  double memory_rate = 1e12;                ///< of copies within the device
  nanoseconds latency{5000};                ///< of every copy
  nanoseconds call{200};                    ///< of the host's time, that each call takes
  /// Of the host's time, that a kernel's launch takes. On an idle stream an event that was recorded
  /// before it has happened by then.
  nanoseconds launch{0};
  double drift = 0;  ///< how much faster than the host's the GPU's clock is
  bool virtual_memory = true;
  std::size_t skew = 0;  ///< what its allocations lack to being aligned to 512
  /// Events are reached at their time, neither before nor later, for tests of times. Else when the
  /// adversary likes; the clock then goes on to an event that is reached.
  bool punctual = false;
  /// An event is known to be over only once it was itself asked about or waited for.
  bool forgetful = false;
  /// False: allocations are addresses whose pages nobody fills, copies move nothing, and accesses
  /// are not checked: to count the calls of runs that are larger than this machine.
  bool contents = true;
};

/// Repeatable: all that it does follows from the seed and the calls. Its time is its own, too:
/// `now()` is for cuda_device_options::clock. Streams beyond the third are refused.
class fake_cuda final : public executor::cuda_api {
 public:
  using status = executor::cuda_status;
  using cuda_stream = executor::cuda_stream;
  using cuda_event = executor::cuda_event;

  /// What a cuda_stream points to: kernels are launched here.
  class stream {
   public:
    explicit stream(fake_cuda& owner, lane where) : owner_(&owner), where_(where) {}
    /// Queues a kernel that takes the time of `kernel_time` and touches no more than it says.
    /// On a lost GPU it leaves an error for last_error().
    void launch(std::vector<range> reads, std::vector<range> writes, std::function<void()> work) {
      if (owner_->is_lost()) {
        owner_->launch_error_ = owner_->fail_.code;
        return;
      }
      owner_->now_ += owner_->o_.launch;
      ++owner_->launches_;
      owner_->queue(*this, "operator", owner_->kernel_time, std::move(reads), std::move(writes),
                    std::move(work));
    }

   private:
    friend fake_cuda;
    fake_cuda* owner_;
    lane where_;
    fence pending_;  // what the next work waits for
    bool live_ = true;
  };

  explicit fake_cuda(const fake_cuda_options& o = {}) : o_(o), machine_(o.seed, o.ignored) {}
  ~fake_cuda() override {
    for (const auto& [at, what] : memory_) give_pages_back(at, what.size);
  }

  // -------------------------------------------------------------------------------------------
  // For tests

  nanoseconds kernel_time{10'000};  ///< of kernels that are launched from now on
  int devices = 1, driver = 13000;
  bool synchronizes = true;  ///< false: stream_synchronize returns at once, wrongly

  /// The n-th call from the beginning fails with that code, later ones too if `sticky`. 0: none.
  void fail_call(std::uint64_t n, int code, bool sticky) { fail_ = {n, code, sticky}; }
  /// All calls of that function fail, by CUDA's name for it. Code 0: no longer.
  void fail_function(const char* name, int code) { functions_[name] = code; }
  /// A launch fails: last_error() says so once.
  void fail_launch(int code) { launch_error_ = code; }
  /// Every call fails from now on.
  void lose(int code) { fail_call(calls_ + 1, code, true); }
  /// So many calls were made; of that name.
  [[nodiscard]] std::uint64_t calls() const { return calls_; }
  [[nodiscard]] std::uint64_t calls(std::string_view name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? 0 : it->second;
  }
  [[nodiscard]] std::uint64_t launches() const { return launches_; }  ///< kernels so far
  struct traffic {
    std::uint64_t calls = 0;
    bytes size{};
  };
  /// cudaMemcpyAsync so far, that way.
  [[nodiscard]] traffic copied(executor::cuda_copy way) const {
    return copied_[static_cast<std::size_t>(way)];
  }
  /// The function that was the first to fail because it was told to; empty: none.
  [[nodiscard]] const std::string& failed() const { return failed_; }

  /// What was not given back: allocations, streams and events. To give back may fail.
  [[nodiscard]] std::size_t live_allocations() const { return memory_.size(); }
  [[nodiscard]] std::size_t live_streams() const { return count(streams_); }
  [[nodiscard]] std::size_t live_events() const { return count(events_); }
  [[nodiscard]] std::size_t live() const {
    return live_allocations() + live_streams() + live_events();
  }
  [[nodiscard]] bytes device_bytes() const { return device_bytes_; }
  void occupy(bytes n) { device_bytes_ += n; }  ///< by other programs

  [[nodiscard]] nanoseconds now() const { return now_; }
  void pass(nanoseconds t) { now_ += t; }
  /// Everything that is queued runs.
  void drain() { machine_.drain(); }
  void host_access(range r, bool write) { machine_.host_access(r, write); }
  /// Unordered accesses, and calls that CUDA does not allow.
  [[nodiscard]] std::vector<std::string> violations() const {
    auto all = machine_.violations();
    all.insert(all.end(), misuse_.begin(), misuse_.end());
    return all;
  }

  // -------------------------------------------------------------------------------------------
  // cuda_api

  status device_count(int* to) override {
    return call("cudaGetDeviceCount", [&] { *to = devices; });
  }
  status driver_version(int* to) override {
    return call("cudaDriverGetVersion", [&] { *to = driver; });
  }
  /// It is one device; fake_gpus.hpp has several. Asking costs nothing and never fails.
  status set_device(int) override {
    return call("cudaSetDevice", [] {});
  }
  status current_device(int* to) override { return *to = 0, status{}; }
  status properties(int, executor::cuda_device_properties* to) override {
    return call("cudaGetDeviceProperties", [&] {
      *to = {.name = "a GPU that is none",
             .major = 9,
             .minor = 0,
             .driver = 13000,
             .runtime = 13000,
             .total = o_.total,
             .memory_rate = o_.memory_rate};
    });
  }
  status memory_info(bytes* free, bytes* total) override {
    return call("cudaMemGetInfo", [&] {
      *free = o_.total - device_bytes_;
      *total = o_.total;
    });
  }

  status malloc(std::byte** to, bytes n) override {
    return call("cudaMalloc", [&] { return take(to, n, kind::device); });
  }
  status free(std::byte* at) override {
    return call_back("cudaFree", [&] { drop(at, kind::device); });
  }
  status malloc_host(std::byte** to, bytes n) override {
    return call("cudaMallocHost", [&] { return take(to, n, kind::host); });
  }
  status free_host(std::byte* at) override {
    return call_back("cudaFreeHost", [&] { drop(at, kind::host); });
  }
  status map_virtual(std::byte** to, bytes n) override {
    return call("cuMemCreate", [&]() -> status {
      if (!o_.virtual_memory) return error(801);
      return take(to, n, kind::mapped);
    });
  }
  status unmap_virtual(std::byte* at, bytes n) override {
    return call_back("cuMemUnmap", [&] {
      const auto it = memory_.find(at);
      if (it != memory_.end() && it->second.size != n) complain("cuMemUnmap: not the whole range");
      drop(at, kind::mapped);
    });
  }

  status stream_create(cuda_stream* to, bool) override {
    return call("cudaStreamCreateWithPriority", [&]() -> status {
      for (const lane e : {lane::compute, lane::copy_out, lane::copy_in}) {
        const bool taken = std::any_of(streams_.begin(), streams_.end(),
                                       [&](const auto& s) { return s->live_ && s->where_ == e; });
        if (taken) continue;
        streams_.push_back(std::make_unique<stream>(*this, e));
        *to = reinterpret_cast<cuda_stream>(streams_.back().get());
        return {};
      }
      return error(1);
    });
  }
  status stream_destroy(cuda_stream s) override {
    return call_back("cudaStreamDestroy", [&] { of(s).live_ = false; });
  }
  status stream_wait_event(cuda_stream s, cuda_event e) override {
    return call("cudaStreamWaitEvent", [&] { of(s).pending_.join(of(e).when); });
  }
  status stream_synchronize(cuda_stream s) override {
    return call("cudaStreamSynchronize", [&] {
      if (synchronizes) wait_for(all_of(of(s)));
    });
  }

  status stream_query(cuda_stream s, bool* done) override {
    return call("cudaStreamQuery", [&] {
      of(s);
      *done = is_over(all_of(of(s))) && end_of(all_of(of(s))) <= now_;
    });
  }

  status stream_pause(cuda_stream s, nanoseconds t) override {
    return call("cudaLaunchHostFunc", [&] { queue(of(s), "pause", t, {}, {}, [] {}); });
  }

  status event_create(cuda_event* to) override {
    return call("cudaEventCreate", [&] {
      events_.push_back(std::make_unique<event>());
      *to = reinterpret_cast<cuda_event>(events_.back().get());
    });
  }
  status event_destroy(cuda_event e) override {
    return call_back("cudaEventDestroy", [&] { of(e).live_ = false; });
  }
  status event_record(cuda_event e, cuda_stream s) override {
    return call("cudaEventRecord", [&] {
      event& it = of(e);
      it.when = all_of(of(s));
      it.recorded = true;
      it.seen = false;
      it.time = std::max(now_, end_of(it.when));
      machine_.whim();
    });
  }
  status event_query(cuda_event e, bool* done) override {
    return call("cudaEventQuery", [&] {
      event& it = of(e);
      *done = !o_.punctual || it.time <= now_;
      if (o_.punctual && *done) wait_for(it.when);
      for (std::size_t i = 0; i < lane_count && *done; ++i)
        *done = it.when.point[i] == 0 || machine_.reached({static_cast<lane>(i), it.when.point[i]});
      if (*done) now_ = std::max(now_, it.time);
      it.seen = it.seen || *done;
    });
  }
  status event_synchronize(cuda_event e) override {
    return call("cudaEventSynchronize", [&] {
      wait_for(of(e).when);
      now_ = std::max(now_, of(e).time);
      of(e).seen = true;
    });
  }
  status event_elapsed(cuda_event from, cuda_event to, float* milliseconds) override {
    return call("cudaEventElapsedTime", [&]() -> status {
      for (const event* e : {&of(from), &of(to)}) {
        if (!e->recorded) return error(400);
        // Without all waits the device may be wrong about what is over: that is reported elsewhere.
        const bool over = e->time <= now_ && is_over(e->when);
        if (!over && o_.ignored == wait_reason::none) return error(600);
        if (o_.forgetful && !e->seen) return error(600);
      }
      const auto apart = static_cast<double>((of(to).time - of(from).time).count());
      *milliseconds = static_cast<float>(apart * 1e-6 * (1 + o_.drift));
      return {};
    });
  }

  status memcpy_async(std::byte* to, const std::byte* from, bytes n, executor::cuda_copy way,
                      cuda_stream where) override {
    return call("cudaMemcpyAsync", [&] {
      const range source{const_cast<std::byte*>(from), n.count}, target{to, n.count};
      stream& s = of(where);
      traffic& sum = copied_[static_cast<std::size_t>(way)];
      ++sum.calls, sum.size += n;
      if (source.begin < to + n.count && to < source.begin + n.count)
        complain("cudaMemcpyAsync: the ranges overlap");
      if (way == executor::cuda_copy::on_device) return copy_here(s, target, source);
      const bool out = way == executor::cuda_copy::to_host;
      copy(s, out ? direction::out : direction::in, target, source);
    });
  }
  status memset_async(std::byte* at, int value, bytes n, cuda_stream s) override {
    return call("cudaMemsetAsync", [&] {
      queue(of(s), "fill", time_of(n.count, o_.memory_rate), {}, {{at, n.count}},
            [=, filled = o_.contents] {
              if (filled) std::memset(at, value, n.count);
            });
    });
  }
  status device_synchronize() override {
    return call("cudaDeviceSynchronize", [&] { drain(); });
  }
  status last_error() override {
    // What a failed call returned is gone with that, also when every later call fails.
    const int told = enter("cudaGetLastError", false);
    const int left = std::exchange(launch_error_, 0);
    return error(told != 0 ? told : left);
  }
  void range_push(const char*) override {}
  void range_pop() override {}
  void mark(const char* text) override { marks.emplace_back(text); }
  std::vector<std::string> marks;  ///< all that were set

 private:
  enum class kind : std::uint8_t { device, host, mapped };
  struct event {
    fence when;
    nanoseconds time{};
    bool recorded = false, seen = false, live_ = true;
  };
  struct allocation {
    kind what{};
    bytes size{};
  };
  static constexpr std::align_val_t alignment{512};

  static status error(int code) {
    switch (code) {
      case 0:
        return {};
      case 2:
        return {2, "cudaErrorMemoryAllocation", "out of memory"};
      case 35:
        return {35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient"};
      case 600:
        return {600, "cudaErrorNotReady", "device not ready"};
      case 700:
        return {700, "cudaErrorIllegalAddress", "an illegal memory access\nwas encountered"};
      case 801:
        return {801, "cudaErrorNotSupported", "operation not supported"};
      default:
        return {code, "cudaErrorOfATest", "a test asked for it"};
    }
  }
  template <class T>
  static std::size_t count(const std::vector<std::unique_ptr<T>>& all) {
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [](const auto& x) { return x->live_; }));
  }
  void complain(const char* text) { misuse_.emplace_back(text); }

  stream& of(cuda_stream s) {
    auto& it = *reinterpret_cast<stream*>(s);
    if (!it.live_) complain("a stream is used that was destroyed");
    return it;
  }
  event& of(cuda_event e) {
    auto& it = *reinterpret_cast<event*>(e);
    if (!it.live_) complain("an event is used that was destroyed");
    return it;
  }

  [[nodiscard]] bool is_lost() const { return fail_.at != 0 && fail_.sticky && calls_ >= fail_.at; }
  /// Whether this call is one that shall fail; the code if so.
  int enter(const char* name, bool fails_when_lost = true) {
    ++calls_;
    ++by_name_[name];
    now_ += o_.call;
    int code = 0;
    if (fail_.at != 0 && (calls_ == fail_.at || (is_lost() && fails_when_lost))) code = fail_.code;
    if (const auto it = functions_.find(name); it != functions_.end() && it->second != 0)
      code = it->second;
    if (code != 0 && failed_.empty()) failed_ = name;
    return code;
  }
  template <class F>
  status call(const char* name, const F& f) {
    if (const int code = enter(name); code != 0) return error(code);
    if constexpr (std::is_void_v<decltype(f())>)
      return f(), status{};
    else
      return f();
  }
  /// Something is given back. Where that fails nothing more can be done for it, so it counts.
  template <class F>
  status call_back(const char* name, const F& f) {
    const int code = enter(name);
    f();
    return error(code);
  }

  status take(std::byte** to, bytes n, kind what) {
    if (what != kind::host && n > o_.total - device_bytes_) return error(2);
    std::byte* const at = take_pages(n);
    memory_[at] = {what, n};
    if (o_.contents) machine_.watch(at, n.count, what == kind::host ? "host" : "device");
    if (what != kind::host) device_bytes_ += n;
    *to = at;
    return {};
  }
  void drop(std::byte* at, kind what) {
    const auto it = memory_.find(at);
    if (it == memory_.end()) return complain("memory is freed that is not allocated");
    if (it->second.what != what) complain("memory is freed by another kind's function");
    if (what != kind::host) device_bytes_ -= it->second.size;
    if (o_.contents) machine_.forget(at);
    drain();  // it must not run on memory that is gone
    const bytes size = it->second.size;
    memory_.erase(it);
    give_pages_back(at, size);
  }
  /// Pages that nobody touches cost nothing.
  std::byte* take_pages(bytes n) const {
    if (o_.contents)
      return static_cast<std::byte*>(::operator new(n.count + o_.skew, alignment)) + o_.skew;
    void* const at = ::mmap(nullptr, n.count, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(at);
  }
  void give_pages_back(std::byte* at, bytes n) const {
    if (o_.contents)
      ::operator delete(at - o_.skew, alignment);
    else
      ::munmap(at, n.count);
  }
  /// Whether it is memory of malloc_host().
  [[nodiscard]] bool is_pinned(range r) {
    if (o_.contents) return machine_.watches(r);
    const auto behind = memory_.upper_bound(r.begin);
    if (behind == memory_.begin()) return false;
    const auto& [at, what] = *std::prev(behind);
    return what.what == kind::host && r.begin + r.size <= at + what.size.count;
  }

  [[nodiscard]] fence all_of(const stream& s) const {
    return fence{s.pending_}.join(machine_.last(s.where_));
  }
  void wait_for(const fence& f) {
    for (std::size_t i = 0; i < lane_count; ++i) machine_.wait({static_cast<lane>(i), f.point[i]});
    now_ = std::max(now_, end_of(f));
  }
  [[nodiscard]] bool is_over(const fence& f) const {
    for (std::size_t i = 0; i < lane_count; ++i)
      if (!machine_.over({static_cast<lane>(i), f.point[i]})) return false;
    return true;
  }
  /// When all that is over, in this machine's time.
  [[nodiscard]] nanoseconds end_of(const fence& f) const {
    nanoseconds t{};
    for (std::size_t i = 0; i < lane_count; ++i)
      if (f.point[i] > 0) t = std::max(t, ends_[i][f.point[i] - 1]);
    return t;
  }
  static nanoseconds time_of(std::uint64_t size, double rate) {
    return nanoseconds{static_cast<std::int64_t>(static_cast<double>(size) * 1e9 / rate)};
  }
  /// The time of what was queued last on that stream.
  void took(const stream& s, const fence& after, nanoseconds cost) {
    auto& ends = ends_[static_cast<std::size_t>(s.where_)];
    const nanoseconds before = ends.empty() ? nanoseconds{} : ends.back();
    ends.push_back(std::max({before, now_, end_of(after)}) + cost);
    assert(ends.size() == machine_.last(s.where_).point);
  }

  void queue(stream& s, const char* name, nanoseconds cost, std::vector<range> reads,
             std::vector<range> writes, std::function<void()> work) {
    if (!o_.contents) reads.clear(), writes.clear();
    const fence after = std::exchange(s.pending_, {});
    if (s.where_ == lane::compute) {
      machine_.begin(after);
      machine_.launch(std::move(reads), std::move(writes), std::move(work));
    } else {
      machine_.queue(s.where_, name, after, std::move(reads), std::move(writes), std::move(work));
    }
    took(s, after, cost);
    machine_.whim();
  }
  void copy_here(stream& s, range target, range source) {
    const nanoseconds cost = time_of(source.size, o_.memory_rate);
    const fence after = std::exchange(s.pending_, {});
    machine_.begin(after);
    if (!o_.contents) target.size = source.size = 0;
    machine_.move(target.begin, source.begin, bytes{source.size});
    took(s, after, cost);
    machine_.whim();
  }
  /// By the adversary's rules where the stream is that direction's; pageable memory makes the host
  /// wait, as in CUDA, and is not watched.
  void copy(stream& s, direction d, range target, range source) {
    const range host = d == direction::out ? target : source;
    const bool pinned = is_pinned(host);
    const lane beside = lane_of(d == direction::out ? direction::in : direction::out);
    const auto& others = ends_[static_cast<std::size_t>(beside)];
    const auto& own = ends_[static_cast<std::size_t>(s.where_)];
    const nanoseconds start = std::max(now_, own.empty() ? nanoseconds{} : own.back());
    const bool both = !others.empty() && others.back() > start;
    const nanoseconds cost = o_.latency + time_of(host.size, both ? o_.rate_both : o_.rate);
    const fence after = std::exchange(s.pending_, {});
    if (!o_.contents) target.size = source.size = 0;
    if (pinned && s.where_ == lane_of(d)) {
      machine_.copy(d, target.begin, source.begin, bytes{source.size}, after);
    } else {
      std::vector<range> reads{source}, writes{target};
      if (!pinned) (d == direction::out ? writes : reads).clear();
      machine_.queue(s.where_, d == direction::out ? "copy out" : "copy in", after,
                     std::move(reads), std::move(writes),
                     [target, source] { std::memcpy(target.begin, source.begin, source.size); });
    }
    took(s, after, cost);
    if (!pinned) wait_for(all_of(s));
    machine_.whim();
  }

  fake_cuda_options o_;
  adversary machine_;
  std::vector<std::unique_ptr<stream>> streams_;
  std::vector<std::unique_ptr<event>> events_;
  std::map<std::byte*, allocation> memory_;
  std::array<std::vector<nanoseconds>, lane_count> ends_;  // of all work, by its number
  bytes device_bytes_{};
  nanoseconds now_{};
  std::uint64_t calls_ = 0, launches_ = 0;
  std::array<traffic, 3> copied_{};
  std::map<std::string_view, std::uint64_t> by_name_;
  std::map<std::string_view, int> functions_;
  struct {
    std::uint64_t at = 0;
    int code = 0;
    bool sticky = false;
  } fail_;
  int launch_error_ = 0;
  std::string failed_;
  std::vector<std::string> misuse_;
};

}  // namespace delta::test

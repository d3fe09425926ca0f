// delta executor: a GPU as a device: one stream per lane, and events for stamps. Nothing here
// waits for the GPU unless it says so, and nothing includes CUDA: all calls go through cuda_api.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda_api.hpp"
#include "device/cuda_error.hpp"
#include "device/machine.hpp"

namespace delta::executor {

struct cuda_device_options {
  int device = 0;               ///< as the runtime counts them
  bool virtual_memory = false;  ///< the arena from the driver's virtual memory API
  bool overlap = true;          ///< false: copies on the compute stream, each after the other
  bytes scratch{4_MiB};         ///< beside the arena, for moving blocks over themselves
  std::uint64_t alignment = 1;  ///< that the arena must have
  /// Not 0: tensors that the program writes are written up to so many whole bytes (cuda_fill.hpp),
  /// and no rates are measured: that would write to the arena. For compute-sanitizer's initcheck.
  bytes filled_to{};
  /// Is told, in one line, of what goes on but not as it should. Empty: a line on stderr.
  std::function<void(std::string_view)> warn{};
  /// The host's clock. Empty: the system's steady one.
  std::function<nanoseconds()> clock{};
};

/// A machine over a GPU. Each lane is a stream, each stamp an event that was recorded behind its
/// work; one more event before the work gives its time, where the end of the work before can't: an
/// operator that is queued right behind another, while that is not over. Events come from a pool
/// and go back when they are reached, so 100,000 operators need no more of them than were under way
/// at once: at most 1,024 stamps per lane, then the host waits for half of them.
///
/// On the GPU it takes the arena and `options.scratch` bytes beside it, once; outside() says how
/// many. Whatever fails throws cuda_error. For one thread at a time. There may be several, for one
/// GPU each: whatever calls CUDA first makes its own GPU the thread's current one, and leaves it
/// so: what is launched between begin() and end() needs it, too.
class cuda_device final : public machine {
 public:
  /// `compute` and `api` outlive the device. Waits until `compute` is idle.
  cuda_device(cuda_api& api, cuda_stream compute, const cuda_device_options& = {});
  /// Waits until the streams are idle, unless the GPU is lost; then gives everything back. What
  /// fails on the way is passed over.
  ~cuda_device() override;

  /// Once each. Throw cuda_error: out_of_memory with what was asked for and what is free,
  /// unsupported for virtual memory, or failed where the arena is not aligned as the options want.
  /// The device's comes first. With the host's the copies' rates are measured, in less than half a
  /// second, also where none is asked for (0 bytes) or too little: then against some MiB that are
  /// taken for it and given back. What the memories held before is gone. Where the host's can't be
  /// pinned it is pageable, and `warn` is told how fast that is.
  std::byte* device_memory(bytes) override;
  std::byte* host_memory(bytes) override;

  stamp copy(direction, std::byte* to, const std::byte* from, bytes n, const fence& after) override;
  void begin(const fence& after) override;
  /// Through the scratch where that takes fewer calls than pieces which do not overlap.
  void move(std::byte* to, const std::byte* from, bytes n) override;
  /// Also finds a launch that failed since begin().
  stamp end() override;
  /// Does not ask CUDA where an older stamp of the lane was not reached a moment ago: some
  /// microseconds, and not for ever, so that asking again and again comes to an end.
  bool reached(stamp) override;
  void wait(stamp) override;
  /// Known for the last 1,024 pieces of work of a lane, once they are done. The GPU's clock, in
  /// steps of about half a microsecond.
  std::optional<nanoseconds> elapsed(stamp) override;
  std::optional<nanoseconds> began(stamp) override;
  /// An event on an idle stream happens at once, while the kernel behind it is yet to be launched:
  /// elapsed() then has the launch in it. So the compute stream is paused by a millisecond whenever
  /// the host is hardly ahead of it, as at the beginning of a step, and an operator counts as
  /// measured where its begin had not happened when all of it was launched. Without a wait.
  void time_operators() override { timing_ = true; }
  std::optional<nanoseconds> measured(stamp) override;

  [[nodiscard]] nanoseconds now() const override { return clock_() - start_; }
  /// The host's waits for copies, and the compute stream's: how long it stood idle before an
  /// operator because a copy was not over, as measured by the GPU (without overlap: the copies
  /// themselves). Known a little later, when the operator is. Where both wait, both count.
  [[nodiscard]] nanoseconds waited() const override { return waited_; }
  /// By what is known without asking the GPU: nothing here calls it.
  [[nodiscard]] double rate(direction) const override;
  [[nodiscard]] nanoseconds latency(direction) const override;
  [[nodiscard]] nanoseconds backlog(direction) const override;
  [[nodiscard]] double move_rate() const override { return move_rate_; }
  [[nodiscard]] void* native_stream() override { return queues_[0].stream; }

  [[nodiscard]] nanoseconds host_waited() const override { return host_waited_; }
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] bool computes_at_once() const override { return false; }
  void mark_moment(const char* text) override { api_.mark(text); }
  /// A pinned buffer, which grows to the largest that was asked for. Waits for the compute stream.
  std::byte* map(std::byte* device, bytes n, bool reading) override;
  void unmap(bool writing) override;
  /// Pinned, where it can be.
  std::byte* host_buffer(bytes) override;
  void fetch(std::byte* to, const std::byte* device, bytes n) override;

  /// What it takes on the GPU beside the arena: the scratch.
  [[nodiscard]] bytes outside() const noexcept { return held_.scratch_size; }
  /// Whether the host's memory is pinned: else copies are slow, and hold the host up.
  [[nodiscard]] bool pinned() const noexcept { return held_.host.pinned; }
  /// Events that exist; for tests.
  [[nodiscard]] std::size_t events() const noexcept { return held_.events.size(); }

 private:
  static constexpr std::uint64_t most_ahead = 1024;

  struct span {
    nanoseconds began, took;
    bool exact;  ///< of an operator: no launch is in it
  };
  /// Work that is not known to be over.
  struct mark {
    cuda_event ready = nullptr;  ///< compute was idle; only where it has a copy to wait for
    cuda_event begin = nullptr, end = nullptr;
    fence ordered;           ///< all that is over when this is, itself included
    nanoseconds queued{};    ///< by the host's clock
    std::uint64_t size = 0;  ///< of a copy, in bytes
    bool exact = false;      ///< as in span
    bool borrowed = false;   ///< `begin` is the end of the work before, which leaves it to this one
  };
  /// A lane: work number p is in slot p modulo the slots, as mark until it is reached, then as
  /// span.
  struct work_queue {
    cuda_stream stream = nullptr;
    std::uint64_t queued = 0, reached = 0;  ///< last points given, and known to be over
    fence ordered;                          ///< what the stream's next work comes after
    std::vector<mark> marks = std::vector<mark>(most_ahead);
    std::vector<span> spans = std::vector<span>(most_ahead);
    std::uint64_t pending_bytes = 0;
    nanoseconds ended{};  ///< when the last work that was reached ended
    // The last "not yet": what was asked about, when, and how often it was given again since.
    std::uint64_t not_yet = 0;
    nanoseconds asked{};
    int repeated = 0;
    // By whether the other direction copies, too: both share the bus and the memory.
    std::array<double, 2> rate{10e9, 10e9};
    nanoseconds latency = std::chrono::microseconds{10};
  };
  struct host_part {
    std::byte* at = nullptr;
    bytes size{};
    bool pinned = true;
  };
  /// What has to be given back: also when the constructor throws.
  struct holdings {
    holdings(cuda_api& a, int d) : api(&a), device(d) {}
    holdings(const holdings&) = delete;
    holdings& operator=(const holdings&) = delete;
    ~holdings();
    cuda_status give_back(host_part&) noexcept;
    cuda_api* api;
    int device;
    bool lost = false;  ///< no call can succeed any more
    cuda_stream compute = nullptr;
    std::vector<cuda_stream> streams;
    std::vector<cuda_event> events;
    std::byte* arena = nullptr;
    bytes arena_size{};
    bool arena_is_virtual = false;
    std::byte* scratch = nullptr;
    bytes scratch_size{};
    host_part host, staging;
    std::vector<host_part> buffers;
  };

  [[nodiscard]] work_queue& queue_of(lane e) noexcept {
    return queues_[static_cast<std::size_t>(e)];
  }
  [[nodiscard]] work_queue& queue_of(direction d) noexcept { return queue_of(lane_of(d)); }
  [[nodiscard]] const work_queue& queue_of(direction d) const noexcept {
    return queues_[static_cast<std::size_t>(lane_of(d))];
  }
  static constexpr direction other(direction d) noexcept {
    return d == direction::out ? direction::in : direction::out;
  }
  [[nodiscard]] mark& mark_of(stamp s) noexcept {
    return queue_of(s.where).marks[s.point % most_ahead];
  }

  void here() { make_current(api_, options_.device); }
  [[nodiscard]] bool lost();
  void check(const char* call, const cuda_status&);
  [[noreturn]] void fail(const char* call, const cuda_status&, std::string_view extra = {});
  cuda_event take_event();
  cuda_event record(const work_queue&);
  void give_back(cuda_event& e) noexcept;
  [[nodiscard]] nanoseconds between(cuda_event from, cuda_event to);

  void make_room(lane);
  void stay_ahead();
  [[nodiscard]] bool comes_after(const work_queue&, stamp) const noexcept;
  void wait_in(work_queue&, stamp);
  void abandon_open();
  stamp push(lane, mark);
  void settle(stamp);
  void retire(lane);
  [[nodiscard]] nanoseconds place(mark&, nanoseconds took);
  void learn(lane, const mark&, span);
  [[nodiscard]] const span* span_of(stamp);
  template <class F>
  nanoseconds timed(const F& f);
  void synchronize_compute();

  void warn(const std::string& line) const;
  host_part take_host(bytes n);
  void calibrate();
  void measure_copies(std::byte* host, std::uint64_t half);
  [[nodiscard]] nanoseconds one_copy(direction, std::byte* host, std::uint64_t n);
  void both_ways(std::byte* host, std::uint64_t n);
  void copy_here(std::byte* to, const std::byte* from, std::uint64_t n);

  cuda_api& api_;
  cuda_device_options options_;
  std::function<nanoseconds()> clock_;
  nanoseconds start_;
  holdings held_;
  std::string name_;
  std::array<work_queue, lane_count> queues_;
  std::vector<cuda_event> idle_;  // events that nobody uses
  mark open_;                     // the operator between begin() and end()
  bool adjacent_ = false;         // nothing was put on the compute stream since the last end()
  cuda_event anchor_ = nullptr;   // happened at anchor_time_, by now()'s clock
  nanoseconds anchor_time_{};
  bool calibrating_ = false;
  bool timing_ = false;
  std::uint64_t behind_pause_ = 0;  // the first operator behind the last pause
  double move_rate_ = 100e9;
  nanoseconds waited_{}, host_waited_{};
  struct {
    std::byte* device = nullptr;
    bytes size{};
  } mapped_;
};

static_assert(Device<cuda_device> && Storage<arena<cuda_device>>);

}  // namespace delta::executor

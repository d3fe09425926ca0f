// The simulated device's streams and the order in which their work runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace simulated {

/// Events that were recorded and not destroyed yet, and how many of them tell times.
inline std::atomic<std::int64_t> living_events{0}, timed_events{0};

using StreamNumber = std::int64_t;

/// A point in a stream's work: done once all that was queued there before has run.
struct Marker {
  StreamNumber stream = 0;
  bool done = false;
  double time = 0;  // in seconds of the device's clock; of meaning once it is done
};
using MarkerPtr = std::shared_ptr<Marker>;

struct Counters {
  std::uint64_t queued = 0;
  std::uint64_t ran = 0;
  std::uint64_t dropped = 0;  // after a failure
  std::uint64_t host_waits = 0;
  std::uint64_t needless = 0;  // ran although nothing that the host waited for needed them
};

/// Work runs late and in odd order. A host thread that queues work goes on at once; the work runs
/// on a thread of its own when a host thread has to wait, when a queue gets long, and a little at
/// random in between. Which of the streams goes on next is drawn from a seeded generator: streams
/// that no event ties together interleave in every way. All draws are made while host threads wait,
/// so that a program of one thread sees the same order every time for the same seed.
class Scheduler {
 public:
  static Scheduler& instance();

  /// Starts again from a seed. `laziness` is how likely it is that queueing runs nothing: with 1,
  /// work runs only when it has to.
  void set_schedule(std::uint64_t seed, double laziness);

  StreamNumber new_stream();
  std::vector<StreamNumber> streams();

  /// Queues work that takes `cost` seconds of the device's clock. It must not keep memory alive
  /// that the host could free: a device doesn't, either.
  void enqueue(StreamNumber stream, std::function<void()> work, double cost);
  /// Queues work that draws are not made for and the host's clock doesn't see: poison.
  void enqueue_quietly(StreamNumber stream, std::function<void()> work);
  MarkerPtr record(StreamNumber stream);
  void wait(StreamNumber stream, MarkerPtr marker);

  /// The host waits. What failed on the device since the last wait is thrown here.
  void synchronize(const MarkerPtr& marker);
  void synchronize(StreamNumber stream);
  void synchronize_all();

  /// May run some work first, as time goes on while a host polls.
  bool query(const MarkerPtr& marker);
  bool query(StreamNumber stream);

  /// Looks that run nothing.
  bool is_done(const MarkerPtr& marker);
  bool idle(StreamNumber stream);
  /// A draw of the schedule's generator.
  bool chance(double probability);

  std::uint64_t pending();
  Counters counters();
  double host_time();

 private:
  struct Item {
    enum class Kind { run, record, wait } kind;
    std::function<void()> work;
    MarkerPtr marker;
    double cost = 0;
    double queued_at = 0;
  };
  struct Stream {
    std::deque<Item> items;
    double time = 0;
  };
  // What the device's thread is to do: until `marker` is done, or at least `steps` items.
  struct Request {
    MarkerPtr marker;
    bool everything = false;
    std::uint64_t steps = 0;
  };

  Scheduler();
  void device_thread();
  void serve(const Request& request);
  void ask(const Request& request);
  void throw_failure();
  bool runnable(const Stream& stream) const;
  bool step_any();
  void step_towards(StreamNumber wanted);
  void step(Stream& stream);
  void progress_after_queueing(StreamNumber stream);
  std::uint64_t draw(std::uint64_t below);
  double draw_fraction();

  std::mutex mutex_;  // for all below; not held while work runs
  std::map<StreamNumber, Stream> streams_;
  StreamNumber next_stream_ = 1;
  std::mt19937_64 random_{0};
  double laziness_ = 0.9;
  double host_time_ = 0;
  std::uint64_t pending_ = 0;
  Counters counters_;
  std::string failure_;

  std::mutex turn_;  // one host thread at a time waits for the device
  std::condition_variable asked_;
  std::condition_variable answered_;
  const Request* request_ = nullptr;
};

}  // namespace simulated

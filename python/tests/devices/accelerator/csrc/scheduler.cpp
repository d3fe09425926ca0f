#include "scheduler.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace simulated {

namespace {

// A queue longer than this makes the host wait, as real queues do.
constexpr std::size_t longest_queue = 2048;
// What queueing costs the host.
constexpr double launch_seconds = 1e-6;

}  // namespace

Scheduler& Scheduler::instance() {
  static auto* const scheduler = new Scheduler;  // its thread never ends
  return *scheduler;
}

Scheduler::Scheduler() {
  streams_[0];
  std::thread([this] { device_thread(); }).detach();
}

void Scheduler::set_schedule(std::uint64_t seed, double laziness) {
  synchronize_all();
  const std::lock_guard lock(mutex_);
  random_.seed(seed);
  laziness_ = laziness;
}

StreamNumber Scheduler::new_stream() {
  const std::lock_guard lock(mutex_);
  streams_[next_stream_];
  return next_stream_++;
}

std::vector<StreamNumber> Scheduler::streams() {
  const std::lock_guard lock(mutex_);
  std::vector<StreamNumber> numbers;
  for (const auto& [number, stream] : streams_) {
    numbers.push_back(number);
  }
  return numbers;
}

void Scheduler::enqueue(StreamNumber stream, std::function<void()> work, double cost) {
  {
    const std::lock_guard lock(mutex_);
    host_time_ += launch_seconds;
    streams_.at(stream).items.push_back(
        {Item::Kind::run, std::move(work), nullptr, cost, host_time_});
    ++pending_;
    ++counters_.queued;
  }
  progress_after_queueing(stream);
}

void Scheduler::enqueue_quietly(StreamNumber stream, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  streams_.at(stream).items.push_back({Item::Kind::run, std::move(work), nullptr, 0, 0});
  ++pending_;
  ++counters_.queued;
}

MarkerPtr Scheduler::record(StreamNumber stream) {
  const std::lock_guard lock(mutex_);
  auto marker = std::make_shared<Marker>();
  marker->stream = stream;
  Stream& where = streams_.at(stream);
  if (where.items.empty()) {
    // Nothing to wait for; the clock is the stream's own or the host's, whichever is later.
    where.time = std::max(where.time, host_time_);
    marker->done = true;
    marker->time = where.time;
  } else {
    where.items.push_back({Item::Kind::record, nullptr, marker, 0, host_time_});
  }
  return marker;
}

void Scheduler::wait(StreamNumber stream, MarkerPtr marker) {
  const std::lock_guard lock(mutex_);
  Stream& where = streams_.at(stream);
  if (marker->done && where.items.empty()) {
    where.time = std::max(where.time, marker->time);
    return;
  }
  where.items.push_back({Item::Kind::wait, nullptr, std::move(marker), 0, host_time_});
}

void Scheduler::synchronize(const MarkerPtr& marker) {
  {
    const std::lock_guard lock(mutex_);
    ++counters_.host_waits;
  }
  ask({marker, false, 0});
  {
    const std::lock_guard lock(mutex_);
    host_time_ = std::max(host_time_, marker->time);
  }
  throw_failure();
}

void Scheduler::synchronize(StreamNumber stream) {
  synchronize(record(stream));
}

void Scheduler::synchronize_all() {
  {
    const std::lock_guard lock(mutex_);
    ++counters_.host_waits;
  }
  ask({nullptr, true, 0});
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, stream] : streams_) {
      host_time_ = std::max(host_time_, stream.time);
    }
  }
  throw_failure();
}

bool Scheduler::query(const MarkerPtr& marker) {
  std::uint64_t steps = 0;
  {
    const std::lock_guard lock(mutex_);
    if (marker->done) {
      return true;
    }
    host_time_ += launch_seconds;
    // At least one now and then: who polls must see an end.
    steps = draw(4);
  }
  if (steps > 0) {
    ask({nullptr, false, steps});
  }
  return is_done(marker);
}

bool Scheduler::query(StreamNumber stream) {
  return query(record(stream));
}

bool Scheduler::is_done(const MarkerPtr& marker) {
  const std::lock_guard lock(mutex_);
  return marker->done;
}

bool Scheduler::idle(StreamNumber stream) {
  const std::lock_guard lock(mutex_);
  return streams_.at(stream).items.empty();
}

bool Scheduler::chance(double probability) {
  const std::lock_guard lock(mutex_);
  return draw_fraction() < probability;
}

std::uint64_t Scheduler::pending() {
  const std::lock_guard lock(mutex_);
  return pending_;
}

Counters Scheduler::counters() {
  const std::lock_guard lock(mutex_);
  return counters_;
}

double Scheduler::host_time() {
  const std::lock_guard lock(mutex_);
  return host_time_;
}

// Both made from the generator's bits by hand: the standard's distributions differ between
// libraries, and a seed that shows a race must show it everywhere.
std::uint64_t Scheduler::draw(std::uint64_t below) {
  return random_() % below;
}

double Scheduler::draw_fraction() {
  return static_cast<double>(random_() >> 11) * 0x1p-53;
}

void Scheduler::progress_after_queueing(StreamNumber stream) {
  std::uint64_t steps = 0;
  {
    const std::lock_guard lock(mutex_);
    const std::size_t length = streams_.at(stream).items.size();
    if (length > longest_queue) {
      steps = length / 2 + draw(length / 2);
    } else if (draw_fraction() >= laziness_) {
      steps = 1 + draw(8);
    }
  }
  if (steps > 0) {
    ask({nullptr, false, steps});
  }
}

void Scheduler::ask(const Request& request) {
  const std::lock_guard turn(turn_);
  std::unique_lock lock(mutex_);
  request_ = &request;
  asked_.notify_one();
  answered_.wait(lock, [this] { return request_ == nullptr; });
}

void Scheduler::throw_failure() {
  std::string failure;
  {
    const std::lock_guard lock(mutex_);
    failure.swap(failure_);
  }
  if (!failure.empty()) {
    throw std::runtime_error("simulated device: " + failure);
  }
}

void Scheduler::device_thread() {
  std::unique_lock lock(mutex_);
  while (true) {
    asked_.wait(lock, [this] { return request_ != nullptr; });
    serve(*request_);
    request_ = nullptr;
    answered_.notify_all();
  }
}

// Holds mutex_, which step() gives up while work runs.
void Scheduler::serve(const Request& request) {
  if (request.everything) {
    while (step_any()) {
    }
    for (const auto& [number, stream] : streams_) {
      if (!stream.items.empty()) {
        failure_ = "deadlock: stream " + std::to_string(number) + " waits for what never comes";
      }
    }
    return;
  }
  if (request.marker == nullptr) {
    for (std::uint64_t i = 0; i < request.steps && step_any(); ++i) {
    }
    return;
  }
  // Half of the waits run no more than they need: what else is queued stays late.
  const double needless = draw(2) == 0 ? 0.0 : draw_fraction();
  while (!request.marker->done) {
    if (draw_fraction() < needless && step_any()) {
      ++counters_.needless;
      continue;
    }
    try {
      step_towards(request.marker->stream);
    } catch (const std::logic_error& error) {
      failure_ = error.what();
      return;
    }
  }
}

bool Scheduler::runnable(const Stream& stream) const {
  if (stream.items.empty()) {
    return false;
  }
  const Item& head = stream.items.front();
  return head.kind != Item::Kind::wait || head.marker->done;
}

bool Scheduler::step_any() {
  std::vector<Stream*> ready;
  for (auto& [number, stream] : streams_) {
    if (runnable(stream)) {
      ready.push_back(&stream);
    }
  }
  if (ready.empty()) {
    return false;
  }
  step(*ready[draw(ready.size())]);
  return true;
}

// One item that stands between now and the end of `wanted`'s first item.
void Scheduler::step_towards(StreamNumber wanted) {
  std::size_t hops = 0;
  while (true) {
    Stream& stream = streams_.at(wanted);
    if (runnable(stream)) {
      step(stream);
      return;
    }
    // As many hops as streams: it has been here before.
    if (stream.items.empty() || ++hops > streams_.size()) {
      throw std::logic_error("deadlock: a wait that can't be met");
    }
    wanted = stream.items.front().marker->stream;
  }
}

void Scheduler::step(Stream& stream) {
  Item item = std::move(stream.items.front());
  stream.items.pop_front();
  stream.time = std::max(stream.time, item.queued_at) + item.cost;
  if (item.kind == Item::Kind::wait) {
    stream.time = std::max(stream.time, item.marker->time);
  } else if (item.kind == Item::Kind::record) {
    item.marker->time = stream.time;
    item.marker->done = true;
  } else if (!failure_.empty()) {
    // What follows a failure would run on bytes that were never written, and might crash. It is
    // dropped until the host has been told, as after a real device's errors.
    --pending_;
    ++counters_.dropped;
    mutex_.unlock();
    item.work = nullptr;
    mutex_.lock();
  } else {
    std::string failure;
    mutex_.unlock();
    try {
      item.work();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    item.work = nullptr;
    mutex_.lock();
    --pending_;
    ++counters_.ran;
    failure_ = failure;
  }
}

}  // namespace simulated

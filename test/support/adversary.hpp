// delta tests: a device that does everything as late and in as odd an order as its fences allow,
// and reports each pair of accesses that nothing orders.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "delta/storage/arena.hpp"

namespace delta::test {

/// The waits that an arena asks a device for, one per reason. The number is that of the transfer
/// rule. Rules 7 (stream captured too late) and 8 (staging before the snapshot) can't be broken
/// here: stamps are explicit, and staging is an operator, so rule 1.
enum class wait_reason : std::uint8_t {
  copy_out_after_writer,            ///< 1: the source's last operator or copy in
  operator_after_copy_out,          ///< 2: an operator writes what is still copied out
  copy_in_after_copy_out_of_block,  ///< 2 and 4: a copy in writes what is still copied out
  copy_in_after_own_copy_out,       ///< 3: the slab is still being filled
  copy_in_after_operator,           ///< 4: the destination is still computed with
  operator_after_copy_in,           ///< 5: what it touches is still copied in
  copy_out_after_copy_in_of_slab,   ///< 6: the slab is still being read
  move_after_copy_out,              ///< 2, where the arena itself writes
  move_after_copy_in,               ///< 5, where the arena itself reads or writes
  none
};
inline constexpr std::size_t wait_reasons = static_cast<std::size_t>(wait_reason::none);
inline constexpr const char* name_of(wait_reason w) {
  constexpr const char* names[] = {"copy out after writer",
                                   "operator after copy out",
                                   "copy in after the block's copy out",
                                   "copy in after its own copy out",
                                   "copy in after operator",
                                   "operator after copy in",
                                   "copy out after the slab's copy in",
                                   "move after copy out",
                                   "move after copy in",
                                   "none"};
  return names[static_cast<std::size_t>(w)];
}

/// Bytes that work touches.
struct range {
  std::byte* begin = nullptr;
  std::size_t size = 0;
};

/// A Device, single-threaded and repeatable: all that it does follows from the seed and the calls.
/// Work of all three lanes is queued and run only when somebody waits, or by whim. Each task has
/// a vector clock, which on serial lanes is a fence: everything that it is ordered after.
class adversary {
 public:
  explicit adversary(std::uint64_t seed, wait_reason ignored = wait_reason::none)
      : random_(seed), ignored_(ignored) {}
  adversary(const adversary&) = delete;
  adversary& operator=(const adversary&) = delete;

  std::byte* device_memory(bytes n) { return reserve(n, "device"); }
  std::byte* host_memory(bytes n) { return reserve(n, "host"); }

  /// Queues an operator's work between begin() and end(): `work` touches no more than it says.
  void launch(std::vector<range> reads, std::vector<range> writes, std::function<void()> work) {
    launch_as("operator", false, std::move(reads), std::move(writes), std::move(work));
  }

  stamp copy(direction d, std::byte* to, const std::byte* from, bytes n, const fence& after) {
    const range source{const_cast<std::byte*>(from), n.count}, target{to, n.count};
    fence f = after;
    auto& other = f.point[at(d == direction::out ? lane::copy_in : lane::copy_out)];
    auto& compute = f.point[at(lane::compute)];
    if (d == direction::out) {
      if (ignored_ == wait_reason::copy_out_after_writer) compute = 0;
      while (other != 0 &&
             ignores(other, lane::copy_in, source, target, wait_reason::copy_out_after_writer,
                     wait_reason::copy_out_after_copy_in_of_slab))
        --other;
    } else {
      if (ignored_ == wait_reason::copy_in_after_operator) compute = 0;
      while (other != 0 &&
             ignores(other, lane::copy_out, source, target, wait_reason::copy_in_after_own_copy_out,
                     wait_reason::copy_in_after_copy_out_of_block))
        --other;
    }
    const stamp s = submit(lane_of(d), d == direction::out ? "copy out" : "copy in", f, {source},
                           {target}, [=] {
                             if (n.count > 0) std::memcpy(to, from, n.count);
                           });
    whim();
    return s;
  }
  void begin(const fence& after) { pending_.join(after); }
  void move(std::byte* to, const std::byte* from, bytes n) {
    launch_as("move", true, {{const_cast<std::byte*>(from), n.count}}, {{to, n.count}},
              [=] { std::memmove(to, from, n.count); });
  }
  stamp end() {
    launch_as("end", false, {}, {}, [] {});
    whim();
    return {lane::compute, queue_of(lane::compute).tasks.size()};
  }

  bool reached(stamp s) {
    run_some();
    auto& told = told_.point[at(s.where)];
    if (s.point <= told) return true;
    if (queue_of(s.where).done < s.point || chance(2)) return false;
    told = s.point;
    host_clock_.join(task_at(s).clock);
    return true;
  }
  void wait(stamp s) {
    if (s.point == 0) return;
    while (queue_of(s.where).done < s.point) run_some();
    told_.join(s);
    host_clock_.join(task_at(s).clock);
  }
  /// Everything runs to its end.
  void drain() {
    for (const lane e : {lane::compute, lane::copy_out, lane::copy_in})
      wait({e, queue_of(e).tasks.size()});
  }

  /// The host itself touches memory, now.
  void host_access(range r, bool write) { check_and_mark("host", {}, host_clock_, r, write); }

  [[nodiscard]] std::optional<nanoseconds> elapsed(stamp) { return std::nullopt; }
  [[nodiscard]] nanoseconds now() const {
    std::uint64_t done = 0;
    for (const work_queue& l : queues_) done += l.done;
    return nanoseconds{static_cast<std::int64_t>(done) * 1000};
  }
  [[nodiscard]] nanoseconds waited() const { return {}; }
  [[nodiscard]] double rate(direction) const { return 1e9; }
  [[nodiscard]] nanoseconds latency(direction) const { return nanoseconds{1000}; }
  [[nodiscard]] nanoseconds backlog(direction d) const {
    const work_queue& l = queues_[at(lane_of(d))];
    return nanoseconds{static_cast<std::int64_t>(l.tasks.size() - l.done) * 1000};
  }
  [[nodiscard]] void* native_stream() { return this; }

  // For machines that are built on this one (fake_cuda.hpp): memory of their own, and work and
  // questions that are no Device's.

  /// Accesses to that memory are checked from now on; until `forget`, which says so when work that
  /// is not over still touches it.
  void watch(std::byte* begin, std::size_t size, const char* name) {
    memories_.push_back({{}, begin, size, std::vector<cell>(size / cell_bytes + 1), name});
  }
  void forget(std::byte* begin) {
    const auto it = std::find_if(memories_.begin(), memories_.end(),
                                 [&](const memory& m) { return m.begin == begin; });
    assert(it != memories_.end());
    const range all{it->begin, it->size};
    for (const work_queue& l : queues_)
      for (std::size_t i = l.done; i < l.tasks.size(); ++i)
        for (const auto* list : {&l.tasks[i].reads, &l.tasks[i].writes})
          for (const range r : *list)
            if (overlap(r, all))
              violations_.push_back(std::string(it->name) + " memory is freed under a " +
                                    l.tasks[i].name + " that is not over");
    memories_.erase(it);
  }
  [[nodiscard]] bool watches(range r) { return find(r) != nullptr; }
  /// Work on any lane.
  stamp queue(lane e, const char* name, const fence& after, std::vector<range> reads,
              std::vector<range> writes, std::function<void()> work) {
    return submit(e, name, after, std::move(reads), std::move(writes), std::move(work));
  }
  /// The last work that was queued there.
  [[nodiscard]] stamp last(lane e) const { return {e, queues_[at(e)].tasks.size()}; }
  /// Whether it has run, whatever the host has been told.
  [[nodiscard]] bool over(stamp s) const { return queues_[at(s.where)].done >= s.point; }
  /// Sometimes some of what may go on does.
  void whim() {
    if (chance(8)) run_some();
  }

  /// Each names two accesses, at least one of them a write, that nothing orders.
  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }

 private:
  static constexpr std::size_t cell_bytes = 8;  // the detector's grain
  struct task {
    const char* name;
    fence after;  ///< what it waits for
    fence clock;  ///< what is ordered before it, itself included
    std::vector<range> reads, writes;
    std::function<void()> work;
  };
  struct work_queue {
    std::vector<task> tasks;  ///< number p is at p - 1
    std::uint64_t done = 0;
  };
  struct cell {
    stamp writer;  ///< the last; point 0: nobody
    fence readers;
  };
  struct memory {
    std::vector<std::byte> storage;  ///< empty where the bytes are somebody else's
    std::byte* begin = nullptr;
    std::size_t size = 0;
    std::vector<cell> cells;
    const char* name = "";
  };

  std::byte* reserve(bytes n, const char* name) {
    std::vector<std::byte> storage(n.count + 64);
    std::byte* const begin =
        storage.data() + (64 - reinterpret_cast<std::uintptr_t>(storage.data()) % 64) % 64;
    watch(begin, n.count, name);
    memories_.back().storage = std::move(storage);
    return begin;
  }
  memory* find(range r) {
    for (memory& m : memories_)
      if (r.begin >= m.begin && r.begin + r.size <= m.begin + m.size) return &m;
    return nullptr;
  }

  static constexpr std::size_t at(lane e) { return static_cast<std::size_t>(e); }
  static bool overlap(range a, range b) {
    return a.size && b.size && a.begin < b.begin + b.size && b.begin < a.begin + a.size;
  }
  work_queue& queue_of(lane e) { return queues_[at(e)]; }
  task& task_at(stamp s) { return queue_of(s.where).tasks[s.point - 1]; }
  bool chance(unsigned one_in) { return random_() % one_in == 0; }

  /// Whether the wait of a copy for that task of the other copy lane is switched off: it has one
  /// reason before reading the source, another before writing the target, and the one that is
  /// ignored is the only one.
  bool ignores(std::uint64_t point, lane e, range source, range target, wait_reason for_source,
               wait_reason for_target) {
    if (ignored_ != for_source && ignored_ != for_target) return false;
    const task& t = task_at({e, point});
    const bool source_needs = overlap(t.writes[0], source);
    const bool target_needs = overlap(t.reads[0], target) || overlap(t.writes[0], target);
    return source_needs != target_needs && ignored_ == (source_needs ? for_source : for_target);
  }

  void launch_as(const char* name, bool move, std::vector<range> reads, std::vector<range> writes,
                 std::function<void()> work) {
    fence f = std::exchange(pending_, {});
    const auto ignore = [&](wait_reason w, lane e) {
      if (ignored_ == w) f.point[at(e)] = 0;
    };
    ignore(move ? wait_reason::move_after_copy_out : wait_reason::operator_after_copy_out,
           lane::copy_out);
    ignore(move ? wait_reason::move_after_copy_in : wait_reason::operator_after_copy_in,
           lane::copy_in);
    submit(lane::compute, name, f, std::move(reads), std::move(writes), std::move(work));
  }

  stamp submit(lane e, const char* name, const fence& after, std::vector<range> reads,
               std::vector<range> writes, std::function<void()> work) {
    work_queue& l = queue_of(e);
    fence clock = host_clock_;
    if (!l.tasks.empty()) clock.join(l.tasks.back().clock);
    for (std::size_t i = 0; i < lane_count; ++i) {
      const stamp s{static_cast<lane>(i), after.point[i]};
      assert(s.point <= queue_of(s.where).tasks.size() && "a fence names work not queued yet");
      if (s.point != 0) clock.join(task_at(s).clock);
    }
    const stamp self{e, l.tasks.size() + 1};
    const fence before = clock;
    clock.join(self);
    for (const range r : reads) check_and_mark(name, self, before, r, false);
    for (const range r : writes) check_and_mark(name, self, before, r, true);
    l.tasks.push_back({name, after, clock, std::move(reads), std::move(writes), std::move(work)});
    return self;
  }

  /// Reports who touched the range before and is not in `clock`; then `self` (or the host, which
  /// needs no mark: whatever is queued later comes after it) is the last to have touched it.
  void check_and_mark(const char* name, stamp self, const fence& clock, range r, bool write) {
    if (r.size == 0) return;
    memory* const found = find(r);
    if (found == nullptr)
      return;  // the heap: whoever copies there waits for it (Arena::read_bytes)
    memory& m = *found;
    const auto first = static_cast<std::size_t>(r.begin - m.begin) / cell_bytes;
    const auto last = (static_cast<std::size_t>(r.begin - m.begin) + r.size - 1) / cell_bytes;
    bool reported = false;
    for (std::size_t i = first; i <= last; ++i) {
      cell& c = m.cells[i];
      const auto check = [&](stamp s, bool writes) {
        if (s == self || s.point <= clock.point[at(s.where)] || reported) return;
        reported = true;
        report(name, self, write, task_at(s).name, s, writes, m, i * cell_bytes);
      };
      check(c.writer, true);
      if (write)
        for (std::size_t e = 0; e < lane_count; ++e)
          check({static_cast<lane>(e), c.readers.point[e]}, false);
      if (self.point == 0) continue;
      if (write)
        c.writer = self, c.readers = {};
      else
        c.readers.join(self);
    }
  }
  void report(const char* name, stamp self, bool write, const char* other, stamp s, bool writes,
              const memory& m, std::size_t where) {
    violations_.push_back(
        std::string(name) + " #" + std::to_string(self.point) + (write ? " writes " : " reads ") +
        m.name + " byte " + std::to_string(where) + ", which " + other + " #" +
        std::to_string(s.point) + (writes ? " writes" : " reads") + "; nothing orders the two");
  }

  [[nodiscard]] bool ready(const work_queue& l) const {
    if (l.done == l.tasks.size()) return false;
    const fence& f = l.tasks[l.done].after;
    for (std::size_t e = 0; e < lane_count; ++e)
      if (queues_[e].done < f.point[e]) return false;
    return true;
  }
  /// Runs a few tasks of one lane that can go on. One of them always can: the task queued first.
  void run_some() {
    const std::size_t from = random_() % lane_count;
    for (std::size_t i = 0; i < lane_count; ++i) {
      work_queue& l = queues_[(from + i) % lane_count];
      if (!ready(l)) continue;
      do {
        auto work = std::move(l.tasks[l.done].work);
        work();
        ++l.done;
      } while (chance(2) && ready(l));
      return;
    }
  }

  std::mt19937_64 random_;
  wait_reason ignored_;
  std::vector<memory> memories_;
  std::array<work_queue, lane_count> queues_;
  fence pending_;     // what compute waits for next
  fence told_;        // what reached() has said yes to
  fence host_clock_;  // what the host knows to be done
  std::vector<std::string> violations_;
};

static_assert(Device<adversary> && Storage<arena<adversary>>);

/// Queues a kernel's body on the adversary, for run_program.
struct launch_late {
  adversary* device;
  template <class F>
  void operator()(std::span<const std::span<std::byte>> reads,
                  std::span<const std::span<std::byte>> writes, F&& body) const {
    const auto ranges = [](std::span<const std::span<std::byte>> list) {
      std::vector<range> r;
      for (const auto& s : list) r.push_back({s.data(), s.size()});
      return r;
    };
    device->launch(ranges(reads), ranges(writes), std::forward<F>(body));
  }
};

}  // namespace delta::test

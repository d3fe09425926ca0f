// delta benchmark: the adaptive policy and its peers' rules on recorded traces, step by step in
// virtual time. A JSON row per replay; bench/adaptive.py makes tables and figures of them.
//
//   adaptive_grid TRACE...

#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adaptive_rows.hpp"
#include "delta/presets.hpp"
#include "replay/on_all_cores.hpp"
#include "replay/replay_named.hpp"
#include "trace/file.hpp"
#include "trace/repeat.hpp"
#include "trace_name.hpp"

namespace {

using namespace delta;
using namespace delta::executor;
using namespace delta::bench;

// Rows come from all cores.
class row_writer {
 public:
  void write(const std::string& row) {
    const std::scoped_lock one(lock_);
    std::cout << row << '\n';
  }

 private:
  std::mutex lock_;
};

/// `replay_it` replays a program on a machine.
template <class Replay>
void replay_one(row_writer& rows, std::string_view table, const subject& s, const trace& program,
                const setting& on, double ratio, std::string_view name, const Replay& replay_it) {
  rows.write(row_of({table, s.name, on.name, ratio, name}, s,
                    replay_it(program, machine_for(s, on, ratio))));
}

auto by_name(std::string_view policy) {
  return [policy](const trace& t, const replay_machine& m) { return replay_named(policy, t, m); };
}

using job = std::function<void()>;

void add_grid(std::vector<job>& jobs, row_writer& rows, const subject& s) {
  // Below 0.2 only who claims to pass there.
  constexpr double ratios[]{0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8};
  for (const setting& on : settings) {
    const auto program = std::make_shared<const trace>(program_for(s, on));
    const bool plain = on.faster == 1 && on.noise == 0 && on.steps == 4;
    for (const double ratio : ratios) {
      const bool low = ratio < 0.2 || ratio == 0.25;
      if (low && !plain) continue;
      jobs.emplace_back([&rows, &s, &on, ratio] {
        rows.write(row_of({"reference", s.name, on.name, ratio, ""}, reference_of(s, on, ratio)));
      });
      for (const preset& p : named_policies) {
        // The baseline needs no budget; peers are compared on the plain machines.
        const bool ours = p.name == "adaptive" || p.name == "dtr" || p.name == "online";
        if (p.name == "unmanaged" || ((!plain || low) && !ours)) continue;
        jobs.emplace_back([&rows, &s, &on, ratio, program, name = p.name] {
          replay_one(rows, "grid", s, *program, on, ratio, name, by_name(name));
        });
      }
      if (plain && !low)
        for (const std::string_view name : compared_peers)
          jobs.emplace_back([&rows, &s, &on, ratio, program, name] {
            replay_one(rows, "grid", s, *program, on, ratio, name, by_name(name));
          });
    }
  }
}

// Two kinds of steps in turns, and a change for good at the third step.
void add_changes(std::vector<job>& jobs, row_writer& rows, const std::vector<subject>& all) {
  static constexpr const setting& on = settings[0];
  for (std::size_t i = 0; i < all.size(); ++i) {
    const subject &a = all[i], &b = all[(i + 1) % all.size()];
    for (const double ratio : {0.3, 0.5, 0.7})
      for (const std::string_view name : {"adaptive"})
        jobs.emplace_back([&rows, &a, &b, ratio, name] {
          // The budget is that part of the larger one's peak; each alone under the same budget is
          // what the turns are compared with.
          const subject& larger = a.peak < b.peak ? b : a;
          const subject both{a.name + "+" + b.name, {}, larger.peak};
          replay_one(rows, "in turns", both, alternate(a.step, b.step, 4), on, ratio, name,
                     by_name(name));
          for (const subject* s : {&a, &b}) {
            const subject alone{both.name + ":" + (s == &a ? "first" : "second"), {}, larger.peak};
            replay_one(rows, "alone", alone, repeat_trace(s->step, 4), on, ratio, name,
                       by_name(name));
          }
        });
  }
}

int run(std::span<char*> files) {
  std::vector<subject> all;
  for (const char* f : files) {
    trace t = read_trace(f);
    const bytes peak = unmanaged_peak(t);
    all.push_back({trace_name(f), std::move(t), peak});
  }
  row_writer rows;
  std::vector<job> jobs;
  for (const subject& s : all) add_grid(jobs, rows, s);
  add_changes(jobs, rows, all);
  on_all_cores(jobs.size(), [&](std::size_t i) { jobs[i](); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "adaptive_grid: no trace; expected: adaptive_grid TRACE...\n";
    return 2;
  }
  try {
    return run(std::span(argv + 1, static_cast<std::size_t>(argc - 1)));
  } catch (const std::exception& e) {
    std::cerr << "adaptive_grid: " << e.what() << '\n';
    return 2;
  }
}

#include "kernels/thread_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using delta::executor::thread_pool;

extern "C" int omp_get_max_threads();  // OpenMP's header comes with g++ alone

namespace {
std::atomic<std::size_t> allocations{0};
}  // namespace

// The whole program's `new`, counted.
void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

TEST_CASE("every task runs once, for any number of tasks and threads") {
  for (const int threads : {1, 2, 3, 7}) {
    thread_pool pool(threads);
    CHECK(pool.threads() == threads);
    for (const std::size_t tasks : {0u, 1u, 2u, 3u, 7u, 8u, 1000u}) {
      std::vector<std::atomic<int>> runs(tasks);
      pool.parallel_for(tasks, [&](std::size_t task) { ++runs[task]; });
      CHECK(std::all_of(runs.begin(), runs.end(), [](const auto& n) { return n == 1; }));
    }
  }
}

TEST_CASE("no two tasks share a worker at a time") {
  thread_pool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> shared{false}, outside{false};
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(16, [&](std::size_t, int worker) {
      if (worker < 0 || worker >= 4) {
        outside = true;
        return;
      }
      if (inside[std::size_t(worker)].fetch_add(1) != 0) shared = true;
      inside[std::size_t(worker)].fetch_sub(1);
    });
  }
  CHECK_FALSE(shared);
  CHECK_FALSE(outside);
}

TEST_CASE("plain memory written by tasks is seen by the caller, and by the next loop's tasks") {
  thread_pool pool(3);
  std::vector<long> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(values.size(), [&](std::size_t i) { values[i] += long(i); });
    // Another split, so that elements change hands.
    pool.parallel_for(8, [&](std::size_t task) {
      for (std::size_t i = task; i < values.size(); i += 8) values[i] += 1;
    });
  }
  const long sum = std::accumulate(values.begin(), values.end(), 0L);
  CHECK(sum == 2000 * (64 * 63 / 2 + 64));
}

TEST_CASE("sleeping threads wake up") {
  thread_pool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> runs{0};
    pool.parallel_for(100, [&](std::size_t) { ++runs; });
    CHECK(runs == 100);
  }
}

TEST_CASE("an exception reaches the caller, and the pool goes on") {
  for (const int threads : {1, 3}) {
    thread_pool pool(threads);
    for (int round = 0; round < 20; ++round) {
      std::string caught;
      try {
        pool.parallel_for(50, [](std::size_t task) {
          if (task == 20) throw std::runtime_error("task twenty");
        });
      } catch (const std::runtime_error& e) {
        caught = e.what();
      }
      CHECK(caught == "task twenty");
      std::atomic<int> runs{0};
      pool.parallel_for(50, [&](std::size_t) { ++runs; });
      CHECK(runs == 50);
    }
    CHECK_THROWS_AS(pool.parallel_for(9, [](std::size_t) { throw std::logic_error("all"); }),
                    std::logic_error);
  }
}

TEST_CASE("a loop inside a loop is refused") {
  thread_pool pool(2);
  CHECK_THROWS_AS(
      pool.parallel_for(4, [&](std::size_t) { pool.parallel_for(2, [](std::size_t) {}); }),
      std::logic_error);
  CHECK_THROWS_AS(thread_pool(0), std::invalid_argument);
}

TEST_CASE("a loop allocates nothing") {
  thread_pool pool(3);
  std::vector<double> values(1000);
  const auto loop = [&] {
    pool.parallel_for(values.size(), [&](std::size_t i, int worker) { values[i] += worker; });
  };
  loop();
  const auto before = allocations.load();
  for (int round = 0; round < 100; ++round) loop();
  CHECK(allocations.load() == before);
}

TEST_CASE("OpenMP is held to one thread in every worker") {
  thread_pool pool(3);
  std::atomic<bool> single{true};
  for (int round = 0; round < 50; ++round) {
    pool.parallel_for(16, [&](std::size_t) {
      if (omp_get_max_threads() != 1) single = false;
    });
  }
  CHECK(single);
}

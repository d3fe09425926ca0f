// delta executor: a loop whose turns run on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace delta::executor {

/// Calls work(0) to work(count - 1), each once, on all cores. Ends early when one throws, and
/// throws that.
template <class Work>
void on_all_cores(std::size_t count, const Work& work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto worker = [&] {
    for (std::size_t i = next++; i < count && !failed; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
        failed = true;
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    while (workers.size() < std::min(cores, count)) workers.emplace_back(worker);
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace delta::executor

// delta benchmark: runs jobs on all cores, and names traces by their files.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace delta::bench {

/// Calls each job once, as many at a time as there are cores; returns when all are done. A job must
/// not throw.
inline void run_on_all_cores(const std::vector<std::function<void()>>& jobs) {
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> workers;
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  while (workers.size() < cores)
    workers.emplace_back([&] {
      for (std::size_t i = next++; i < jobs.size(); i = next++) jobs[i]();
    });
}

/// "unet" of "traces/unet.log.gz".
inline std::string trace_name(const std::filesystem::path& file) {
  auto name = file.filename();
  if (name.extension() == ".gz") name = name.stem();
  return name.stem().string();
}

}  // namespace delta::bench

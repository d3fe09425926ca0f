// delta benchmark: processor time of the calling thread.
#pragma once

#include <ctime>

namespace delta::bench {

/// What the processor has done for the calling thread, in ns. Of what is short the wall clock would
/// tell what other programs did meanwhile, if they did anything.
inline double processor_ns() {
  std::timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

}  // namespace delta::bench

// A function of glibc 2.36, for programs that are carried to machines with an older one. The C++
// library that is linked into them names it, for std::random_device, which nothing here uses.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" std::uint32_t arc4random() {
  std::uint32_t drawn = 0;
  if (getrandom(&drawn, sizeof drawn, 0) != static_cast<ssize_t>(sizeof drawn)) std::abort();
  return drawn;
}

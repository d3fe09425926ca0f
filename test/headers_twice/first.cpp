// One of two units that include everything; see second.cpp.
#include <delta/delta.hpp>

/// Uses a little of everything, so that there is something to define twice.
static delta::bytes use_first() {
  delta::simulated storage({.capacity = delta::bytes{100}, .host_capacity = delta::bytes{100}});
  delta::manager manager{delta::online(), storage};
  (void)manager.run({.outputs = {delta::bytes{10}}}, [](delta::call&) {});
  return storage.used();
}

delta::bytes use_second();

int main() {
  return use_first() == use_second() ? 0 : 1;
}

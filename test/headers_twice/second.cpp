// The other of two units that include everything: linked together, they show that no header
// defines anything twice.
#include <delta/delta.hpp>

/// Uses a little of everything, so that there is something to define twice.
delta::bytes use_second() {
  delta::simulated storage({.capacity = delta::bytes{100}, .host_capacity = delta::bytes{100}});
  delta::manager manager{delta::online(), storage};
  (void)manager.run({.outputs = {delta::bytes{10}}}, [](delta::call&) {});
  return storage.used();
}

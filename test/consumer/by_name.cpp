// The same with a policy that is chosen when the program runs.
#include <delta/engine/engine.hpp>
#include <delta/storage/simulated.hpp>
#include <iostream>

int main(int argc, char** argv) {
  using namespace delta::literals;
  delta::simulated storage{{.capacity = 4_MiB}};
  try {
    const auto manager = delta::make_manager(argc > 1 ? argv[1] : "dtr", delta::over(storage));
    delta::tensor_id last = manager->variable(1_MiB);
    for (int i = 0; i < 8; ++i)
      last = manager->run({.inputs = {last}, .outputs = {1_MiB}}, [](delta::call&) {});
    std::cout << manager->counts().evictions << " evictions\n";
    return manager->counts().evictions > 0 ? 0 : 1;
  } catch (const delta::unknown_policy& e) {
    std::cerr << e.what() << '\n';
    return 2;
  }
}

// The smallest program that needs delta.
#include <delta/concepts.hpp>
#include <iostream>

int main() {
  using namespace delta::literals;
  const delta::bytes budget = 3_GiB;
  std::cout << "a budget of " << budget.count << " bytes\n";
  return budget == 3072_MiB ? 0 : 1;
}

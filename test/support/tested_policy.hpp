// delta tests: a policy with a name, as a way to make a manager of it over whatever storage. Those
// of delta::engine are not compiled again by the test; one of its own is compiled once for all
// storages.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "delta/engine/engine.hpp"
#include "delta/engine/manager_of.hpp"

namespace delta::test {

struct tested_policy {
  std::string name;
  std::function<std::unique_ptr<manager_interface>(std::unique_ptr<any_storage>)> manage;
};

/// A preset or a peer.
inline tested_policy by_name(std::string name) {
  return {name,
          [name](std::unique_ptr<any_storage> s) { return make_manager(name, std::move(s)); }};
}

/// One of the test's own.
template <class P>
tested_policy own(std::string name, P p) {
  return {std::move(name),
          [p](std::unique_ptr<any_storage> s) { return make_manager(p, std::move(s)); }};
}

}  // namespace delta::test

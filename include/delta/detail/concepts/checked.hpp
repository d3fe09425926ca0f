// delta: how a wrong type gets to its sentences (explain.hpp) wherever it is given, and no other
// error hides them.
//
// `manager`, `policy` and `switching` take any types: of a constraint that is not met the compiler
// would say in its own words that it is not. Instead each names a checked_... of every part. Of a
// right type that is the type itself; of a wrong one it instantiates the explain_... that prints
// the sentences, and is a stand_in, so that the rest compiles.
#pragma once

#include <cstdint>
#include <type_traits>

#include "delta/concepts.hpp"
#include "delta/observer.hpp"
#include "delta/policy_answers.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Models all roles with as little as each needs, and is made from anything. Never linked.
struct stand_in {
  template <class T>
  explicit(false) stand_in(const T&);
  double score(const context&, tensor_id) const;
  action decide(const context&, tensor_id) const;
  tensor_id next(const context&) const;
  std::uint32_t choose(const context&) const;  // of switching's selector
  void on(const event&) const;
};

DELTA_DETAIL_CHECKED(policy, Policy, stand_in);
DELTA_DETAIL_CHECKED(observer, Observer, stand_in);

}  // namespace delta::detail

// delta executor: loops written in vectors, for what the compiler does not vectorise by itself:
// many accumulators that must stay in registers. Internal to the kernels.
//
// A loop is a template over the number of floats in a vector, inlined into one function for each
// kind of processor, of which the running one's is called (see vectorise.hpp, also about bits).
#pragma once

#include <cstring>

#include "kernels/vectorise.hpp"

#define DELTA_INLINE inline __attribute__((always_inline))

namespace delta::executor {

template <int Lanes>
struct lanes_type {
  // A typedef: in an alias g++ 12 drops the attribute, as it depends on the parameter.
  typedef float type __attribute__((vector_size(Lanes * sizeof(float))));
  static_assert(sizeof(type) == Lanes * sizeof(float));
};
template <>
struct lanes_type<1> {
  using type = float;
};
template <int Lanes>
using lanes = typename lanes_type<Lanes>::type;

// By reference: how a vector is passed by value depends on the processor.
template <class Vector>
DELTA_INLINE void load(Vector& v, const float* from) {
  std::memcpy(&v, from, sizeof v);
}
template <class Vector>
DELTA_INLINE void store(float* to, const Vector& v) {
  std::memcpy(to, &v, sizeof v);
}

}  // namespace delta::executor

// `body` names a template, which can't be in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)

/// Defines void name(const arguments&), which is body<lanes>(arguments) with the lanes that suit
/// the processor.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define DELTA_DEFINE_BY_LANES(name, arguments, body)                      \
  __attribute__((target("arch=x86-64-v4"))) void name##_16(arguments a) { \
    body<16>(a);                                                          \
  }                                                                       \
  __attribute__((target("arch=x86-64-v3"))) void name##_8(arguments a) {  \
    body<8>(a);                                                           \
  }                                                                       \
  void name##_4(arguments a) {                                            \
    body<4>(a);                                                           \
  }                                                                       \
  void name(arguments a) {                                                \
    if (__builtin_cpu_supports("x86-64-v4")) return name##_16(a);         \
    if (__builtin_cpu_supports("x86-64-v3")) return name##_8(a);          \
    name##_4(a);                                                          \
  }
#else
#define DELTA_DEFINE_BY_LANES(name, arguments, body) \
  void name(arguments a) {                           \
    body<4>(a);                                      \
  }
#endif

// NOLINTEND(bugprone-macro-parentheses)

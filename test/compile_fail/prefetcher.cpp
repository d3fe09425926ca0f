// Near misses of Prefetcher, and what is said about each: see check.cmake.
#include "delta/concepts.hpp"

using namespace delta;

struct right {
  tensor_id next(const context&) { return tensor_id::none; }
  double early_release_bytes(const context&) { return 0; }
  static constexpr bool releases_with_room = false;
  static constexpr bool learns = true;
  tensor_id copy_ahead(const context&) { return tensor_id::none; }
  void wasted(const context&, tensor_id) {}
  void end_of_operator(const context&) {}
  void end_of_step(const context&) {}
};
static_assert(explain_prefetcher<right>());

#ifdef WITH_MISSES
// says: a Prefetcher needs 'delta::tensor_id next(const delta::context&)' (what to reload now,
//   or delta::tensor_id::none)
struct names_nothing {};
static_assert(explain_prefetcher<names_nothing>());

// says: a Prefetcher needs 'delta::tensor_id next(const delta::context&)' (what to reload now,
//   or delta::tensor_id::none)
struct names_a_row : right {
  int next(const context&) { return 0; }
};
static_assert(explain_prefetcher<names_a_row>());

// says: 'early_release_bytes' is there, but not as 'double early_release_bytes(const
// delta::context&)' (bytes)
struct starts_in_words : right {
  const char* early_release_bytes(const context&) { return "soon"; }
};
static_assert(explain_prefetcher<starts_in_words>());

// says: 'releases_with_room' is there, but not as 'static constexpr bool releases_with_room'
struct releases_now_and_then : right {
  bool releases_with_room(const context&) { return false; }
};
static_assert(explain_prefetcher<releases_now_and_then>());

// says: 'copy_ahead' is there, but not as 'delta::tensor_id copy_ahead(const delta::context&)'
// (what to copy
//   out now, or delta::tensor_id::none)
struct cleans_all : right {
  void copy_ahead(const context&) {}
};
static_assert(explain_prefetcher<cleans_all>());

// says: 'learns' is there, but not as 'static constexpr bool learns'
struct learns_in_the_object : right {
  bool learns = true;
};
static_assert(explain_prefetcher<learns_in_the_object>());

// says: 'wasted' is there, but not as 'void wasted(const delta::context&, delta::tensor_id)'
struct wastes_silently : right {
  void wasted() {}
};
static_assert(explain_prefetcher<wastes_silently>());

// says: 'end_of_operator' is there, but not as 'void end_of_operator(const delta::context&)'
// says: 'end_of_step' is there, but not as 'void end_of_step(const delta::context&)'
struct ends_wrongly : right {
  void end_of_operator(operator_id) {}
  int end_of_step = 0;
};
static_assert(explain_prefetcher<ends_wrongly>());

// mentions: no_such_list
struct looks_too_far {
  tensor_id next(const auto& c) { return c.no_such_list().front(); }
};
static_assert(Prefetcher<looks_too_far> && explain_prefetcher<looks_too_far>());
#endif

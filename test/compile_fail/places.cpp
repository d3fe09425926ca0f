// Wherever a policy may stand it is told in sentences what is wrong with it, and nothing else is
// said: see check.cmake. Every member is wrong in every place; types are numbered, as each type is
// told once.
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"

using namespace delta;

// What is right compiles in all of them.
struct one_object : cheaper, no_prefetch {
  double weight(const context& c, tensor_id t) const { return c.bytes(t); }
};
struct right {
  manager<policy<lru, cheaper, no_prefetch>, simulated> by_roles;
  manager<policy<lru, cheaper, no_prefetch>, simulated, no_observer> with_observer;
  manager<decltype(online()), simulated> by_value;
  manager<one_object, simulated> by_type;
  explicit right(simulated& s)
      : by_roles{lru{}, cheaper{}, no_prefetch{}, s},
        with_observer{policy{lru{}, cheaper{}, no_prefetch{}}, s, {}},
        by_value{online(), s},
        by_type{one_object{}, s} {}
};
void all_places(simulated& s) {
  right r{s};
  manager deduced{lru{}, cheaper{}, no_prefetch{}, s};
  manager composed{policy{lru{}, cheaper{}, no_prefetch{}}, s, no_observer{}};
  r.by_type.end_of_step(), r.by_value.end_of_step(), deduced.end_of_step(), composed.end_of_step();
}

#ifdef WITH_MISSES
// says in 5 places: a Heuristic needs 'double score(const delta::context&, delta::tensor_id) const'
//   (lower leaves first) or 'double weight(const delta::context&, delta::tensor_id) const' (it
//   stands for the score 1 / (weight x staleness))
// says in 5 places: 'score' is there, but not as 'double score(const delta::context&,
//   delta::tensor_id) const'
// says in 5 places: 'weight' is there, but not as 'double weight(const delta::context&,
//   delta::tensor_id) const'
// says in 5 places: 'depends_on' is there, but not as 'static constexpr delta::quantity depends_on'
// says in 5 places: 'later_if_dearer' is there, but not as 'static constexpr bool later_if_dearer'
// says in 5 places: 'victim' is there, but not as 'delta::tensor_id victim(const delta::context&,
//   const auto& may_leave) const'
template <int Place>
struct wrong_heuristic {
  double score(const context&, operator_id) const;
  double weight(context&, tensor_id) const;
  static constexpr int depends_on = 0;
  static constexpr int later_if_dearer = 0;
  tensor_id victim();
  static constexpr int learns = 0;
  void end_of_operator();
  void end_of_step(tensor_id);
};
// says in 6 places: a Decider needs 'delta::action decide(const delta::context&, delta::tensor_id)'
//   (evict, offload or keep)
// says in 5 places: 'restore' is there, but not as 'delta::restoration restore(const
//   delta::context&, delta::tensor_id)'
// says in 5 places: 'on_thrash' is there, but not as 'bool on_thrash(const delta::context&)'
// says in 5 places: 'evicts' is there, but not as 'static constexpr bool evicts'
// says in 5 places: 'offloads' is there, but not as 'static constexpr bool offloads'
template <int Place>
struct wrong_decider {
  restoration decide(const context&, tensor_id);
  action restore(const context&, tensor_id);
  void on_thrash(const context&);
  bool evicts();
  enum { offloads };
  bool learns = true;
  void end_of_operator(operator_id);
  int end_of_step = 0;
};
// says in 6 places: a Prefetcher needs 'delta::tensor_id next(const delta::context&)' (what to
//   reload now, or delta::tensor_id::none)
// says in 5 places: 'early_release_bytes' is there, but not as 'double early_release_bytes(const
//   delta::context&)' (bytes)
// says in 5 places: 'copy_ahead' is there, but not as 'delta::tensor_id copy_ahead(const
//   delta::context&)' (what to copy out now, or delta::tensor_id::none)
// says in 5 places: 'wasted' is there, but not as 'void wasted(const delta::context&,
//   delta::tensor_id)'
// says in 15 places: 'learns' is there, but not as 'static constexpr bool learns'
// says in 15 places: 'end_of_operator' is there, but not as 'void end_of_operator(const
//   delta::context&)'
// says in 15 places: 'end_of_step' is there, but not as 'void end_of_step(const delta::context&)'
template <int Place>
struct wrong_prefetcher {
  bool next(const context&);
  bytes early_release_bytes(const context&);
  bool copy_ahead(const context&);
  void wasted(const context&);
  static bool learns();
  void end_of_operator(tensor_id);
  void end_of_step(context&);
};
// says in 4 places: an Observer needs 'void on(const delta::event&)'
// says in 4 places: 'listens' is there, but not as 'bool listens() const'
template <int Place>
struct wrong_observer {
  void on(int);
  bool listens();
};
// What a storage needs is in storage.cpp; here one of that, and what is detected.
// says in 4 places: a Storage needs 'delta::nanoseconds now() const'
// says in 4 places: 'data' is there, but not as 'std::byte* data(const delta::block&)'
// says in 4 places: 'hold' is there, but not as 'void hold(const delta::block&)'
// says in 4 places: 'native_stream' is there, but not as 'void* native_stream()'
// says in 4 places: one of 'hold', 'unhold' is there, but not all of them
// says in 4 places: 'move_rate' is there, but not as 'double move_rate()' (bytes per second)
// says in 4 places: one of 'largest_hole', 'bytes_to_move', 'move_rate', 'walk_blocks' is there,
//   but not all of them
// says in 4 places: 'burden' is there, but not as 'double burden(delta::direction) const'
// says in 4 places: one of 'burden', 'alone' is there, but not all of them
// says in 4 places: 'began' is there, but not as 'std::optional<delta::nanoseconds>
//   began(delta::stamp)'
template <int Place>
struct wrong_storage : simulated {
  int now() const;
  int data(const block&);
  void hold(int);
  int native_stream();
  const char* move_rate();
  const char* burden(direction) const;
  nanoseconds began(stamp);
};

// 1. Deduced from single roles.
void deduced(wrong_storage<1>& s) {
  manager m{wrong_heuristic<1>{}, wrong_decider<1>{}, wrong_prefetcher<1>{}, s,
            wrong_observer<1>{}};
  m.end_of_step();
}
// 2. A member by its template's arguments.
struct member {
  manager<policy<wrong_heuristic<2>, wrong_decider<2>, wrong_prefetcher<2>>, wrong_storage<2>,
          wrong_observer<2>>
      m;
  explicit member(wrong_storage<2>& s) : m{{}, {}, {}, s, {}} {}
  void step() { m.end_of_step(), m.variable(bytes{1}), m.observer(), m.policy(); }
};
// 3. A policy, deduced and by its template's arguments.
void composed(wrong_storage<3>& s) {
  policy p{wrong_heuristic<3>{}, wrong_decider<3>{}, wrong_prefetcher<3>{}};
  manager m{p, s, wrong_observer<3>{}};
  m.end_of_step();
}
struct composition {
  policy<wrong_heuristic<4>, wrong_decider<4>, wrong_prefetcher<4>> parts;
};
// 4. A member by its policy's type.
struct member_for {
  using parts = policy<wrong_heuristic<5>, wrong_decider<5>, wrong_prefetcher<5>>;
  manager<parts, wrong_storage<5>, wrong_observer<5>> m;
  explicit member_for(wrong_storage<5>& s) : m{parts{}, s} {}
  void step() { m.end_of_step(), m.variable(bytes{1}); }
};
// An object that plays one role alone: it is told what a Decider and a Prefetcher need, too.
struct member_for_a_role {
  manager<lru, simulated> m;
};
#endif

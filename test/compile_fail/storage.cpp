// Near misses of Storage, and what is said about each: see check.cmake.
#include "delta/storage/simulated.hpp"

using namespace delta;

struct right : simulated {
  using simulated::simulated;
  std::byte* data(const block&) { return nullptr; }
  void* native_stream() { return nullptr; }
};
static_assert(explain_storage<right>() && explain_storage<simulated>());

#ifdef WITH_MISSES
// Everything at once.
// says: a Storage needs 'std::optional<delta::block> allocate(delta::bytes, delta::lifetime)'
//   (nullopt: no room)
// says: a Storage needs 'void free(delta::block&&)'
// says: a Storage needs 'void free(delta::slab&&)'
// says: a Storage needs 'std::optional<delta::transfer> copy_out(delta::block&)' (nullopt: the
//   host is full)
// says: a Storage needs 'delta::transfer copy_in(delta::slab&&, delta::block&&)'
// says: a Storage needs 'std::pair<delta::block, delta::slab> land(delta::transfer&&)'
// says: a Storage needs 'void begin_operator(std::span<const delta::block* const> reads,
//   std::span<const delta::block* const> writes)'
// says: a Storage needs 'delta::stamp end_operator(delta::nanoseconds cost)'
// says: a Storage needs 'bool reached(delta::stamp)'
// says: a Storage needs 'void wait(delta::stamp)'
// says: a Storage needs 'std::optional<delta::nanoseconds> elapsed(delta::stamp)' (nullopt: not
//   known)
// says: a Storage needs 'delta::nanoseconds now() const'
// says: a Storage needs 'double rate(delta::direction) const' (bytes per second)
// says: a Storage needs 'delta::nanoseconds latency(delta::direction) const'
// says: a Storage needs 'delta::nanoseconds backlog(delta::direction) const'
// says: a Storage needs 'delta::bytes capacity() const'
// says: a Storage needs 'delta::bytes used() const'
// says: a Storage needs 'delta::bytes host_capacity() const'
// says: a Storage needs 'delta::bytes host_used() const'
// says: a Storage needs 'delta::bytes rounded(delta::bytes) const'
struct stores_nothing {};
static_assert(explain_storage<stores_nothing>());

// And each once more, there but not right. `free` of slabs hides `free` of blocks.
// says: a Storage needs 'std::optional<delta::block> allocate(delta::bytes, delta::lifetime)'
//   (nullopt: no room)
struct allocates_without_doubt : right {
  block allocate(bytes, lifetime);
};
static_assert(explain_storage<allocates_without_doubt>());
// says: a Storage needs 'void free(delta::block&&)'
struct frees_slabs_only : right {
  void free(slab&&);
};
static_assert(explain_storage<frees_slabs_only>());
// says: a Storage needs 'void free(delta::slab&&)'
struct frees_blocks_only : right {
  void free(block&&);
};
static_assert(explain_storage<frees_blocks_only>());
// says: a Storage needs 'std::optional<delta::transfer> copy_out(delta::block&)' (nullopt: the
//   host is full)
struct copies_out_without_doubt : right {
  transfer copy_out(block&);
};
static_assert(explain_storage<copies_out_without_doubt>());
// says: a Storage needs 'delta::transfer copy_in(delta::slab&&, delta::block&&)'
struct copies_in_with_doubt : right {
  std::optional<transfer> copy_in(slab&&, block&&);
};
static_assert(explain_storage<copies_in_with_doubt>());
// says: a Storage needs 'std::pair<delta::block, delta::slab> land(delta::transfer&&)'
struct lands_half : right {
  block land(transfer&&);
};
static_assert(explain_storage<lands_half>());
// says: a Storage needs 'void begin_operator(std::span<const delta::block* const> reads,
//   std::span<const delta::block* const> writes)'
struct begins_with_a_stamp : right {
  stamp begin_operator(std::span<const block* const>, std::span<const block* const>);
};
static_assert(explain_storage<begins_with_a_stamp>());
// says: a Storage needs 'delta::stamp end_operator(delta::nanoseconds cost)'
struct ends_without_a_stamp : right {
  void end_operator(nanoseconds);
};
static_assert(explain_storage<ends_without_a_stamp>());
// says: a Storage needs 'bool reached(delta::stamp)'
struct reaches_by_number : right {
  int reached(stamp);
};
static_assert(explain_storage<reaches_by_number>());
// says: a Storage needs 'void wait(delta::stamp)'
struct waits_with_an_answer : right {
  bool wait(stamp);
};
static_assert(explain_storage<waits_with_an_answer>());
// says: a Storage needs 'std::optional<delta::nanoseconds> elapsed(delta::stamp)' (nullopt: not
//   known)
struct always_measures : right {
  nanoseconds elapsed(stamp);
};
static_assert(explain_storage<always_measures>());
// says: a Storage needs 'delta::nanoseconds now() const'
struct changes_with_time : right {
  nanoseconds now();
};
static_assert(explain_storage<changes_with_time>());
// says: a Storage needs 'double rate(delta::direction) const' (bytes per second)
struct rates_by_float : right {
  float rate(direction) const;
};
static_assert(explain_storage<rates_by_float>());
// says: a Storage needs 'delta::nanoseconds latency(delta::direction) const'
struct delays_by_number : right {
  double latency(direction) const;
};
static_assert(explain_storage<delays_by_number>());
// says: a Storage needs 'delta::nanoseconds backlog(delta::direction) const'
struct backs_up_both_ways : right {
  nanoseconds backlog() const;
};
static_assert(explain_storage<backs_up_both_ways>());
// says: a Storage needs 'delta::bytes capacity() const'
struct counts_capacity : right {
  std::size_t capacity() const;
};
static_assert(explain_storage<counts_capacity>());
// says: a Storage needs 'delta::bytes used() const'
struct changes_when_asked : right {
  bytes used();
};
static_assert(explain_storage<changes_when_asked>());
// says: a Storage needs 'delta::bytes host_capacity() const'
struct counts_host_capacity : right {
  std::size_t host_capacity() const;
};
static_assert(explain_storage<counts_host_capacity>());
// says: a Storage needs 'delta::bytes host_used() const'
struct changes_when_asked_of_the_host : right {
  bytes host_used();
};
static_assert(explain_storage<changes_when_asked_of_the_host>());
// says: a Storage needs 'delta::bytes rounded(delta::bytes) const'
struct rounds_numbers : right {
  bytes rounded(std::size_t) const;
};
static_assert(explain_storage<rounds_numbers>());

// says: 'data' is there, but not as 'std::byte* data(const delta::block&)'
struct shows_bytes_to_read : right {
  const std::byte* data(const block&);
};
static_assert(explain_storage<shows_bytes_to_read>());
// says: 'hold' is there, but not as 'void hold(const delta::block&)'
// says: one of 'hold', 'unhold' is there, but not all of them
struct holds_by_row : right {
  void hold(std::uint32_t row);
};
static_assert(explain_storage<holds_by_row>());
// says: 'native_stream' is there, but not as 'void* native_stream()'
struct has_a_numbered_stream : right {
  int native_stream();
};
static_assert(explain_storage<has_a_numbered_stream>());
// says: one of 'largest_hole', 'bytes_to_move', 'move_rate', 'walk_blocks' is there, but not all of
//   them
// says: 'largest_hole' is there, but not as 'delta::bytes largest_hole()'
// says: 'bytes_to_move' is there, but not as 'std::optional<delta::bytes>
//   bytes_to_move(delta::bytes)'
// says: 'walk_blocks' is there, but not as 'void walk_blocks(void (*f)(std::uint32_t row,
//   delta::bytes, bool used))'
struct counts_holes : right {
  std::size_t largest_hole();
  bytes bytes_to_move(bytes);
  void walk_blocks();
};
static_assert(explain_storage<counts_holes>());
// says: 'burden' is there, but not as 'double burden(delta::direction) const'
// says: one of 'burden', 'alone' is there, but not all of them
struct tells_of_burdens_in_words : right {
  const char* burden(delta::direction) const;
};
static_assert(explain_storage<tells_of_burdens_in_words>());
// says: 'read_bytes' is there, but not as 'bool read_bytes(const delta::block&, std::uint64_t,
//   std::span<std::byte>)'
struct reads_and_says_nothing : right {
  void read_bytes(const block&, std::uint64_t, std::span<std::byte>);
};
static_assert(explain_storage<reads_and_says_nothing>());
// says: one of 'read_bytes', 'write_bytes' is there, but not all of them
struct writes_alone : right {
  bool write_bytes(const block&, std::uint64_t, std::span<const std::byte>);
};
static_assert(explain_storage<writes_alone>());
// says: 'began' is there, but not as 'std::optional<delta::nanoseconds> began(delta::stamp)'
struct always_knows_when : right {
  nanoseconds began(stamp);
};
static_assert(explain_storage<always_knows_when>());
// says: 'knows' is there, but not as 'bool knows(const delta::block&, delta::bytes) const'
struct knows_every_block : right {
  bool knows(const block&) const;
};
static_assert(explain_storage<knows_every_block>());
// says: 'on_owner_changed' is there, but not as 'void on_owner_changed(const delta::block&,
// delta::tensor_id)'
struct hears_it_the_other_way_round : right {
  void on_owner_changed(tensor_id, const block&);
};
static_assert(explain_storage<hears_it_the_other_way_round>());
// says: 'may_fragment' is there, but not as 'bool may_fragment() const'
struct scatters_now_and_then : right {
  bool may_fragment();
};
static_assert(explain_storage<scatters_now_and_then>());
// says: 'may_allocate_in_operator' is there, but not as 'bool may_allocate_in_operator() const'
struct allocates_within_brackets_now_and_then : right {
  bool may_allocate_in_operator();
};
static_assert(explain_storage<allocates_within_brackets_now_and_then>());
// says: a Storage changes: it can't be const
static_assert(explain_storage<const right>());

// mentions: no_such_member
struct asks_too_much : right {
  bytes used() const { return {}; }
  auto walk_blocks(auto&& f) -> void { f.no_such_member(); }
};
static_assert(Storage<asks_too_much> && explain_storage<asks_too_much>());
#endif

// What the dispatcher of a framework meets: operators that call operators, temporaries, an
// allocator of its own, views, copy on write, host writes, random numbers. docs/in_a_framework.md
// explains. A tensor is 16 floats.
#include <algorithm>
#include <array>
#include <delta/delta.hpp>
#include <iostream>
#include <span>
#include <utility>

using namespace delta::literals;

using machine = delta::arena<delta::host_device>;
using manager =
    delta::manager<delta::policy<delta::dtr, delta::evict_only, delta::no_prefetch>, machine>;
using delta::tensor_id;

constexpr std::size_t count = 16;
constexpr delta::bytes size{count * sizeof(float)};
std::span<float, count> floats(std::byte* p) {
  return std::span<float, count>(reinterpret_cast<float*>(p), count);
}

// --- kernels ---
void scale(float a, std::span<const float> x, std::span<float> y) {
  std::ranges::transform(x, y.begin(), [a](float v) { return a * v; });
}
void add(std::span<const float> x, std::span<const float> y, std::span<float> z) {
  std::ranges::transform(x, y, z.begin(), std::plus{});
}

// --- an operator of its own for each kernel, and two ways to call one from another ---
tensor_id scaled(manager& m, float a, tensor_id x) {
  return m.run({.inputs = {x}, .outputs = {size}, .name = "scale"},
               [a](delta::call& c) { scale(a, floats(c.in(0)), floats(c.out(0))); });
}
tensor_id sum(manager& m, tensor_id x, tensor_id y) {
  return m.run({.inputs = {x, y}, .outputs = {size}, .name = "add"},
               [](delta::call& c) { add(floats(c.in(0)), floats(c.in(1)), floats(c.out(0))); });
}
/// No operator itself: what is between may leave.
tensor_id axpy_of_two(manager& m, float a, tensor_id x, tensor_id y) {
  const tensor_id ax = scaled(m, a, x);
  const tensor_id z = sum(m, ax, y);
  m.drop(ax);
  return z;
}
/// One operator: it calls the inner kernels, and what is between is scratch.
tensor_id axpy_in_one(manager& m, float a, tensor_id x, tensor_id y) {
  auto op = m.begin({.inputs = {x, y}, .name = "axpy"});
  op.allocate(size);
  op.workspace(size);
  const auto body = [a](delta::call& c) {
    scale(a, floats(c.in(0)), floats(c.workspace(0)));
    add(floats(c.workspace(0)), floats(c.in(1)), floats(c.out(0)));
  };
  delta::call now = op.arguments();
  body(now);
  return op.end(body);
}

// --- a kernel that allocates by itself ---
/// Somebody else's: it gives its result in memory that it has asked `allocate` for.
template <class Allocate>
void libraries_sum(const std::byte* x, const std::byte* y, Allocate allocate) {
  const auto in = [](const std::byte* p) { return floats(const_cast<std::byte*>(p)); };
  std::byte* const scratch = allocate();
  scale(1, in(x), floats(scratch));
  add(floats(scratch), in(y), floats(allocate()));
}
/// Its allocator takes blocks. The last becomes the output, where it is; a replay's go into what
/// delta has allocated by then.
tensor_id sum_by_library(manager& m, machine& storage, tensor_id x, tensor_id y) {
  auto op = m.begin({.inputs = {x, y}, .name = "library's sum"});
  std::array<delta::block, 2> blocks;
  delta::call now = op.arguments();
  libraries_sum(now.in(0), now.in(1), [&, i = std::size_t{0}]() mutable {
    return storage.data(blocks[i++] = m.take_block(size));
  });
  m.give_back(std::move(blocks[0]));
  op.allocate(size, std::move(blocks[1]));
  op.replay_workspace(size);
  return op.end([](delta::call& c) {
    libraries_sum(c.in(0), c.in(1),
                  [&, i = 0]() mutable { return i++ == 0 ? c.workspace(0) : c.out(0); });
  });
}

// --- in place, copy on write, from the host, random ---
/// Operators that read the old bytes come back first, and are not computed again after this.
void double_in_place(manager& m, tensor_id x) {
  m.run<0>({.updates = {x}, .name = "double"},
           [](delta::call& c) { scale(2, floats(c.update(0)), floats(c.update(0))); });
}
/// The same where the old version can be computed again: it stays a tensor, and what was computed
/// from it too. A replay finds the old bytes in a block of their own.
tensor_id doubled_in_place(manager& m, tensor_id x) {
  auto op = m.begin({.inputs = {x}, .name = "double"});
  op.replace(x);
  const auto body = [](delta::call& c) { scale(2, floats(c.in(0)), floats(c.out(0))); };
  delta::call now = op.arguments();
  body(now);
  return op.end(body);
}
/// What a framework does before it writes to bytes that others see, and before it begins the
/// writer.
tensor_id copied(manager& m, tensor_id x) {
  return m.run({.inputs = {x}, .outputs = {size}, .name = "copy"},
               [](delta::call& c) { scale(1, floats(c.in(0)), floats(c.out(0))); });
}
/// Into what an operator made: an update, which is never run again, so `values` need not outlive
/// it.
void write(manager& m, tensor_id x, std::span<const float> values) {
  m.run<0>({.updates = {x}, .name = "write"},
           [values](delta::call& c) { std::ranges::copy(values, floats(c.update(0)).begin()); });
}
/// The state is taken by value when the operator is called. A replay leaves the generator alone.
struct generator {
  std::uint32_t state = 1;
};
tensor_id noise(manager& m, generator& g) {
  const std::uint32_t seed = g.state;
  g.state += count;
  return m.run({.outputs = {size}, .traits = delta::trait::random, .name = "noise"},
               [seed](delta::call& c) {
                 for (std::uint32_t i = 0; float& v : floats(c.out(0)))
                   v = float((seed + i++) * 2654435761u >> 8);
               });
}

std::array<float, count> read(manager& m, tensor_id t) {
  const auto view = m.acquire(t);
  std::array<float, count> copy;
  std::ranges::copy(floats(view.data()), copy.begin());
  return copy;
}
/// The same bytes when it has left and was computed again?
bool replayed_equal(manager& m, tensor_id t) {
  const auto first = read(m, t);
  const auto before = m.counts().recomputes;
  for (std::uint64_t n = 1; m.where(t) != delta::residency::evicted; ++n) m.make_room(size * n);
  return read(m, t) == first && m.counts().recomputes > before;
}

int main() {
  delta::host_device memory;
  machine storage{memory, {.capacity = size * 16}};
  manager m{delta::recompute_only(), storage};
  const tensor_id x = m.variable(size), y = m.variable(size);
  for (const tensor_id t : {x, y}) {
    const auto written = m.acquire(t, delta::access::write);
    std::ranges::fill(floats(written.data()), 1.5f);
  }
  bool right = true;

  const tensor_id z = axpy_in_one(m, 2, x, y), same = axpy_of_two(m, 2, x, y);
  right &= read(m, z) == read(m, same) && replayed_equal(m, z) && replayed_equal(m, same);
  {
    auto op = m.begin({.inputs = {x}});  // given up at the end of the block
    try {
      scaled(m, 2, x);
      right = false;
    } catch (const delta::misuse& e) {
      std::cout << e.what() << '\n';
    }
  }

  const tensor_id alias = m.share(z);  // a view: no operator, one reference more
  const tensor_id own = copied(m, z);  // two see these bytes, so who writes takes a copy
  double_in_place(m, own);
  right &= read(m, alias)[0] == 4.5f && read(m, own)[0] == 9;
  m.drop(alias);

  try {
    (void)m.acquire(same, delta::access::write);
    right = false;
  } catch (const delta::misuse& e) {
    std::cout << e.what() << '\n';
  }
  write(m, same, std::array<float, count>{7});
  right &= read(m, same)[0] == 7 && read(m, same)[1] == 0;

  const tensor_id total = sum_by_library(m, storage, x, y);
  right &= read(m, total)[0] == 3 && replayed_equal(m, total) && m.recomputable(total);
  const tensor_id twice = doubled_in_place(m, total);
  right &= m.where(total) == delta::residency::evicted && read(m, twice)[0] == 6;
  right &= read(m, total)[0] == 3 && replayed_equal(m, twice);

  generator g;
  const tensor_id drawn = noise(m, g), next = noise(m, g);
  right &= replayed_equal(m, drawn) && g.state == 1 + 2 * count && read(m, drawn) != read(m, next);
  std::cout << m.counts().recomputes << " recomputed: " << (right ? "equal" : "WRONG") << '\n';
  return right ? 0 : 1;
}

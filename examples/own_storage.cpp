// A storage of one's own: memory from malloc, copies that are done when the call returns. A small
// training run under a budget on it, and the same run without one: the bits are the same.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <delta/delta.hpp>
#include <iostream>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

using namespace delta::literals;

class malloc_storage {
 public:
  malloc_storage(delta::bytes capacity, delta::bytes host_capacity)
      : device_{capacity, {}, {}}, host_{host_capacity, {}, {}} {}
  malloc_storage(const malloc_storage&) = delete;
  malloc_storage& operator=(const malloc_storage&) = delete;
  ~malloc_storage() {
    for (const memory* m : {&device_, &host_})
      for (const piece& p : m->pieces) std::free(p.at);
  }

  // Where bytes live. No room is not an error.
  std::optional<delta::block> allocate(delta::bytes n, delta::lifetime) {
    if (!device_.fits(n)) return std::nullopt;
    return delta::block{device_.take(n)};
  }
  void free(delta::block&& b) { device_.give_back(std::exchange(b, {}).index()); }
  void free(delta::slab&& h) { host_.give_back(std::exchange(h, {}).index()); }
  std::byte* data(const delta::block& b) { return device_.pieces[b.index()].at; }

  // How they move. A transfer owns both ends; `done` is reached at once here.
  std::optional<delta::transfer> copy_out(delta::block& b) {
    const piece from = device_.pieces[b.index()];
    if (!host_.fits(from.size)) return std::nullopt;
    const std::uint32_t to = host_.take(from.size);
    std::memcpy(host_.pieces[to].at, from.at, from.size.count);
    return delta::transfer{std::move(b), delta::slab{to}, done(delta::lane::copy_out)};
  }
  delta::transfer copy_in(delta::slab&& h, delta::block&& b) {
    const piece from = host_.pieces[h.index()];
    std::memcpy(device_.pieces[b.index()].at, from.at, from.size.count);
    return {std::move(b), std::move(h), done(delta::lane::copy_in)};
  }
  std::pair<delta::block, delta::slab> land(delta::transfer&& t) { return std::move(t).take(); }

  // In what order. Everything is over when a call returns, so nobody ever waits.
  using blocks = std::span<const delta::block* const>;
  void begin_operator(blocks /*reads*/, blocks /*writes*/) {}
  delta::stamp end_operator(delta::nanoseconds) { return done(delta::lane::compute); }
  bool reached(delta::stamp) { return true; }
  void wait(delta::stamp) {}
  std::optional<delta::nanoseconds> elapsed(delta::stamp) { return std::nullopt; }
  delta::nanoseconds now() const { return {}; }
  double rate(delta::direction) const { return 8e9; }  // bytes per second
  delta::nanoseconds latency(delta::direction) const { return {}; }
  delta::nanoseconds backlog(delta::direction) const { return {}; }

  // How much there is.
  delta::bytes capacity() const { return device_.capacity; }
  delta::bytes used() const { return device_.used; }
  delta::bytes host_capacity() const { return host_.capacity; }
  delta::bytes host_used() const { return host_.used; }
  delta::bytes rounded(delta::bytes n) const { return n; }

 private:
  struct piece {
    std::byte* at = nullptr;
    delta::bytes size{};
  };
  struct memory {
    delta::bytes capacity, used;
    std::vector<piece> pieces;  // tokens are rows of it
    bool fits(delta::bytes n) const { return n <= capacity && used + n <= capacity; }
    std::uint32_t take(delta::bytes n) {
      auto row = std::ranges::find(pieces, nullptr, &piece::at);
      if (row == pieces.end()) row = pieces.emplace(row);
      row->at = static_cast<std::byte*>(std::malloc(std::max<std::size_t>(n.count, 1)));
      if (row->at == nullptr) throw std::bad_alloc();
      row->size = n, used += n;
      return static_cast<std::uint32_t>(row - pieces.begin());
    }
    void give_back(std::uint32_t row) {
      std::free(std::exchange(pieces[row].at, nullptr));
      used -= pieces[row].size;
    }
  };
  delta::stamp done(delta::lane e) { return {e, ++points_}; }
  memory device_, host_;
  std::uint64_t points_ = 0;
};
static_assert(delta::explain_storage<malloc_storage>());

constexpr std::size_t width = 4096, layers = 12;
constexpr delta::bytes size{width * sizeof(float)};
std::span<float> floats(std::byte* p) {
  return {reinterpret_cast<float*>(p), width};
}

struct outcome {
  std::vector<float> weights;
  delta::counters counts;
};
// Three steps of gradient descent on layers y = w x + x^2 / 9, all by element.
outcome train(delta::bytes budget, delta::bytes host) {
  malloc_storage storage{budget, host};
  delta::manager manager{delta::online(), storage};
  const auto fill = [&](float first) {
    const delta::tensor_id t = manager.variable(size);
    const auto view = manager.acquire(t, delta::access::write);
    for (std::size_t k = 0; k < width; ++k) floats(view.data())[k] = first + float(k % 7) / 100;
    return t;
  };
  std::vector<delta::tensor_id> w;
  for (std::size_t i = 0; i < layers; ++i) w.push_back(fill(0.9f));
  for (int step = 0; step < 3; ++step) {
    std::vector<delta::tensor_id> x{fill(0.1f * float(step))};
    for (std::size_t i = 0; i < layers; ++i)
      x.push_back(manager.run({.inputs = {w[i], x[i]}, .outputs = {size}}, [](delta::call& c) {
        for (std::size_t k = 0; k < width; ++k) {
          const float v = floats(c.in(1))[k];
          floats(c.out(0))[k] = floats(c.in(0))[k] * v + v * v / 9;
        }
      }));
    manager.backward();
    delta::tensor_id dy = fill(0.01f);
    for (std::size_t i = layers; i-- > 0;) {
      manager.drop(x[i + 1]);
      const auto [dx, dw] =
          manager.run<2>({.inputs = {w[i], x[i], dy}, .outputs = {size, size}}, [](delta::call& c) {
            for (std::size_t k = 0; k < width; ++k) {
              const float v = floats(c.in(1))[k], d = floats(c.in(2))[k];
              floats(c.out(0))[k] = d * (floats(c.in(0))[k] + 2 * v / 9);
              floats(c.out(1))[k] = d * v;
            }
          });
      manager.run<0>({.inputs = {dw}, .updates = {w[i]}}, [](delta::call& c) {
        for (std::size_t k = 0; k < width; ++k) floats(c.update(0))[k] -= 0.1f * floats(c.in(0))[k];
      });
      manager.drop(dw), manager.drop(std::exchange(dy, dx));
    }
    manager.drop(dy), manager.drop(x[0]);
    manager.end_of_step();
  }
  outcome result;
  for (const delta::tensor_id t : w) {
    const auto view = manager.acquire(t);
    result.weights.insert(result.weights.end(), floats(view.data()).begin(),
                          floats(view.data()).end());
  }
  result.counts = manager.counts();
  return result;
}

int main() {
  const outcome free = train(64_MiB, 0_B), tight = train(size * 7, size * 40);
  const bool equal = std::memcmp(free.weights.data(), tight.weights.data(),
                                 free.weights.size() * sizeof(float)) == 0;
  const delta::counters& n = tight.counts;
  std::cout << n.evictions << " evicted, " << n.offloads << " offloaded, " << n.recomputes
            << " recomputed, " << n.reloads << " reloaded: " << (equal ? "equal" : "WRONG") << '\n';
  const bool managed = n.evictions + n.offloads > 0 && n.recomputes + n.reloads > 0;
  const bool unmanaged = free.counts.evictions + free.counts.offloads == 0;
  return equal && managed && unmanaged ? 0 : 1;
}

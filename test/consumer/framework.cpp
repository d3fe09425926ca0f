// A framework of somebody else's on delta: C++17, no exceptions, no RTTI. Eager tensors with views
// and copy on write, a dispatcher whose operators call operators, temporaries, random operators,
// updates in place, autograd by a tape. It trains in 35 % of its unmanaged peak to the same bits.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <delta/any_manager.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

delta::any_manager* manager = nullptr;

template <class T>
T get(delta::any_result<T> r) {
  if (!r) std::fprintf(stderr, "framework: %s\n", r.error().what()), std::exit(3);
  return std::move(r).value();
}
void get(const delta::any_result<void>& r) {
  if (!r) std::fprintf(stderr, "framework: %s\n", r.error().what()), std::exit(3);
}

// Bytes are shared by views and by copies, until one of them is written. Within a kernel a tensor
// is an address.
struct tensor {
  std::shared_ptr<delta::any_tensor> storage;
  float* address = nullptr;
  std::size_t offset = 0, count = 0;
  [[nodiscard]] tensor view(std::size_t from, std::size_t n) const {
    return {storage, address ? address + from : nullptr, offset + from, n};
  }
};
// What a kernel sees, on whatever level.
struct context {
  std::vector<tensor> in;
  float* out;
  std::uint64_t seed;
  const std::function<float*(std::size_t)>* temporary;
};
using body = std::function<void(const context&)>;
context* running = nullptr;

// The one door to all operators. `target`: updated in place, instead of a new output.
tensor dispatch(const char* name, const std::vector<tensor>& in, std::size_t count, const body& f,
                unsigned traits = DELTA_PURE, const tensor* target = nullptr) {
  if (running) {  // an operator within an operator: in the scratch of the outer one
    context c{in, target ? target->address : (*running->temporary)(count), running->seed + 1,
              running->temporary};
    context* const outer = std::exchange(running, &c);
    f(c);
    running = outer;
    return {nullptr, c.out, 0, count};
  }
  delta::any_operation op(name);
  for (const tensor& t : in) op.reads({*t.storage});
  if (target) op.updates({*target->storage});
  auto open = get(manager->begin(op.traits(traits)));
  if (!target) get(open.allocate(count * sizeof(float)));
  std::vector<std::pair<std::size_t, std::size_t>>
      places;  // not the tensors: they would stay alive
  for (const tensor& t : in) places.emplace_back(t.offset, t.count);
  const std::size_t shift = target ? target->offset : 0;
  const bool in_place = target != nullptr;
  const auto floats = [](std::byte* p) { return reinterpret_cast<float*>(p); };
  const auto execute = [=](const delta::any_call& c,
                           const std::function<float*(std::size_t)>& temporary) {
    context x{{},
              in_place ? floats(c.update(0)) + shift : floats(c.out(0)),
              c.sequence() << 8,
              &temporary};
    for (std::size_t i = 0; i < places.size(); ++i)
      x.in.push_back({nullptr, floats(c.in(i)) + places[i].first, 0, places[i].second});
    running = &x;
    f(x);
    running = nullptr;
  };
  execute(get(open.arguments()), [&](std::size_t n) {
    const std::size_t i = get(open.workspace(n * sizeof(float)));
    return floats(get(open.arguments()).workspace(i));
  });
  auto made = get(open.end_all([=](const delta::any_call& c) {
    std::size_t next = 0;
    execute(c, [&](std::size_t) { return floats(c.workspace(next++)); });
  }));
  if (target) return *target;
  return {std::make_shared<delta::any_tensor>(std::move(made[0])), nullptr, 0, count};
}

template <class F>
tensor map(const char* name, const std::vector<tensor>& in, F f, unsigned traits = DELTA_PURE) {
  return dispatch(
      name, in, in[0].count,
      [f](const context& c) {
        for (std::size_t k = 0; k < c.in[0].count; ++k) c.out[k] = f(c, k);
      },
      traits);
}
tensor transpose(const tensor& a, std::size_t rows) {
  return dispatch("transpose", {a}, a.count, [=](const context& c) {
    const std::size_t columns = c.in[0].count / rows;
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        c.out[j * rows + i] = c.in[0].address[i * columns + j];
  });
}
// a (rows x inner) b: calls `transpose` within, whose result is a temporary.
tensor matmul(const tensor& a, const tensor& b, std::size_t rows) {
  const std::size_t inner = a.count / rows, columns = b.count / inner;
  return dispatch("matmul", {a, b}, rows * columns, [=](const context& c) {
    const tensor t = transpose(c.in[1], inner);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) {
        float sum = 0;
        for (std::size_t k = 0; k < inner; ++k)
          sum += c.in[0].address[i * inner + k] * t.address[j * inner + k];
        c.out[i * columns + j] = sum;
      }
  });
}
float noise(std::uint64_t n) {
  n = (n ^ (n >> 31)) * 0x9e3779b97f4a7c15u;
  return float((n ^ (n >> 29)) * 0xbf58476d1ce4e5b9u >> 40) / float(1 << 24) - 0.5f;
}
tensor dropout_mask(const tensor& like) {
  return map(
      "mask", {like},
      [](const context& c, std::size_t k) {
        return noise(c.seed * 0x10001 + k) > -0.3f ? 1.25f : 0.0f;
      },
      DELTA_RANDOM);
}
tensor multiply(const tensor& a, const tensor& b) {
  return map("multiply", {a, b}, [](const context& c, std::size_t k) {
    return c.in[0].address[k] * c.in[1].address[k];
  });
}
// w -= g / 1000 in place. Copy on write: who shares the bytes keeps the old ones.
void update(tensor& w, const tensor& g) {
  if (w.storage.use_count() > 1)
    w = map("copy", {w}, [](const context& c, std::size_t k) { return c.in[0].address[k]; });
  dispatch(
      "update", {g}, w.count,
      [](const context& c) {
        for (std::size_t k = 0; k < c.in[0].count; ++k) c.out[k] -= c.in[0].address[k] / 1000;
      },
      DELTA_PURE, &w);
}

// Two steps of a network of 16 layers; gives a digest of the weights.
std::uint64_t train() {
  const std::size_t layers = 16, batch = 192, width = 64;
  std::vector<tensor> weights(layers), start;
  for (std::size_t l = 0; l < layers; ++l) {
    const std::size_t n = width * width;
    weights[l] = {
        std::make_shared<delta::any_tensor>(get(manager->variable(n * sizeof(float), "weights"))),
        nullptr, 0, n};
    const auto bytes = get(manager->write(*weights[l].storage));
    for (std::size_t k = 0; k < n; ++k)
      reinterpret_cast<float*>(bytes.data())[k] = noise(l * 100003 + k) / 4;
  }
  start = weights;  // shares the bytes until the first update
  for (std::uint64_t step = 0; step < 2; ++step) {
    std::vector<std::function<tensor(const tensor&)>> tape;
    const tensor batches = dispatch("input", {}, 2 * batch * width, [=](const context& c) {
      for (std::size_t k = 0; k < 2 * batch * width; ++k) c.out[k] = noise(k);
    });
    tensor x = batches.view(step * batch * width, batch * width);
    for (tensor& w : weights) {
      const tensor y = map("tanh", {matmul(x, w, batch)}, [](const context& c, std::size_t k) {
        return std::tanh(c.in[0].address[k]);
      });
      const tensor mask = dropout_mask(y);
      tape.emplace_back([=, &w](const tensor& g) {
        const tensor slope =
            map("slope", {multiply(g, mask), y}, [](const context& c, std::size_t k) {
              const float value = c.in[1].address[k];
              return c.in[0].address[k] * (1 - value * value);
            });
        const tensor back = matmul(slope, transpose(w, width), batch);
        update(w, matmul(transpose(x, batch), slope, width));
        return back;
      });
      x = multiply(y, mask);
    }
    for (; !tape.empty(); tape.pop_back()) x = tape.back()(x);
    x = {};
    get(manager->end_of_step());
  }
  std::uint64_t digest = 0;
  for (const auto& list : {start, weights})
    for (const tensor& w : list) {
      const auto bytes = get(manager->read(*w.storage));
      for (std::size_t k = 0; k < bytes.size(); ++k)
        digest = (digest ^ std::uint64_t(bytes.data()[k])) * 0x100000001b3u;
    }
  return digest;
}

std::uint64_t train_under(const std::string& policy, std::uint64_t budget, delta_counts& counts) {
  delta::any_options options;
  options.policy = policy;
  options.budget = budget;
  options.host_budget = 64u << 20;
  delta::any_manager made = get(delta::any_manager::make(options));
  manager = &made;
  const std::uint64_t digest = train();
  counts = made.counts();
  return digest;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string policy = argc > 1 ? argv[1] : "adaptive";
  delta_counts free{}, tight{};
  const std::uint64_t expected = train_under("unmanaged", 64u << 20, free);
  const std::uint64_t budget = free.peak * 35 / 100;
  const std::uint64_t digest = train_under(policy, budget, tight);
  std::printf(
      "%s: peak %llu of %llu bytes, %llu offloads, %llu recomputes, %s bits\n", policy.c_str(),
      static_cast<unsigned long long>(tight.peak), static_cast<unsigned long long>(free.peak),
      static_cast<unsigned long long>(tight.offloads),
      static_cast<unsigned long long>(tight.recomputes), digest == expected ? "the same" : "OTHER");
  return digest == expected && tight.peak <= budget && tight.offloads + tight.recomputes > 0 ? 0
                                                                                             : 1;
}

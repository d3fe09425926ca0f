// A small eager tensor library over delta: matrices of floats, views, in-place operations,
// reference counts, autograd by closures, and an allocator that asks the manager for room. No
// operator states its sizes before it runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <delta/delta.hpp>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace eager {

using machine = delta::arena<delta::host_device>;
using manager = delta::manager<decltype(delta::online()), machine>;

// --- memory ---
/// The bytes of a tensor and of all its views, which count the references.
struct buffer {
  manager& owner;
  delta::tensor_id id;
  buffer(manager& m, delta::tensor_id t) : owner(m), id(t) {}
  buffer(buffer&&) = delete;
  ~buffer() { owner.drop(id); }
};
/// What a kernel allocates with while its operator is open.
struct allocator {
  manager::open_operator& op;
  void allocate(std::size_t floats) const {
    const delta::bytes size{floats * sizeof(float)};
    op.make_room(size);
    op.allocate(size);
  }
};

// --- tensors: a view of a buffer, and how its gradient goes on ---
struct layout {
  std::size_t rows = 0, columns = 0, row_step = columns, column_step = 1, offset = 0;
};
struct matrix : layout {
  float* data;
  float& operator()(std::size_t i, std::size_t j) const {
    return data[offset + i * row_step + j * column_step];
  }
  template <class F>
  void set(const F& f) const {  // each element to f(row, column)
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) (*this)(i, j) = f(i, j);
  }
};
using matrices = std::vector<matrix>;

struct node;
struct tensor : layout {
  tensor(std::shared_ptr<buffer> b, layout l) : layout(l), data(std::move(b)) {}
  tensor slice(std::size_t first, std::size_t count) const {  // rows
    return {data, {count, columns, row_step, column_step, offset + first * row_step}};
  }
  tensor transposed() const { return {data, {columns, rows, column_step, row_step, offset}}; }
  std::shared_ptr<buffer> data;
  std::shared_ptr<node> maker;  // null: nobody asks for its gradient
};
using tensors = std::vector<tensor>;

struct node {
  std::uint64_t number = 0;  // in the order of the program
  std::vector<std::shared_ptr<node>> parents;
  std::function<tensors(const tensor& dy)> backward;  // none: a parameter
  tensors gradient;                                   // none yet, or one
};

// --- operators ---
inline matrices inputs(const std::vector<layout>& layouts, const delta::call& c) {
  matrices all;
  for (const layout& l : layouts) all.push_back({l, reinterpret_cast<float*>(c.in(all.size()))});
  return all;
}
inline std::vector<delta::tensor_id> ids_of(const tensors& list) {
  std::vector<delta::tensor_id> ids;
  for (const tensor& t : list) ids.push_back(t.data->id);
  return ids;
}
/// Runs `kernel(inputs, output, call)`. `shape` is the output's layout, or a function that says it
/// when it has seen the inputs. The kernel runs again when its output is needed after it left.
template <class Shape, class Kernel>
tensor apply(const char* name, const tensors& in, const Shape& shape, double flops,
             const Kernel& kernel, delta::trait traits = delta::trait::pure) {
  const auto ids = ids_of(in);
  const std::vector<layout> layouts(in.begin(), in.end());
  const std::chrono::nanoseconds cost{std::int64_t(flops / 100)};  // at 100 GFlop/s
  auto op = in.front().data->owner.begin(
      delta::operation_span{.inputs = ids, .traits = traits, .cost = cost, .name = name});
  layout out;
  if constexpr (std::is_convertible_v<Shape, layout>)
    out = shape;
  else
    out = shape(inputs(layouts, op.arguments()));
  allocator{op}.allocate(out.rows * out.columns);
  const auto body = [layouts, out, kernel](delta::call& c) {
    kernel(inputs(layouts, c), matrix{out, reinterpret_cast<float*>(c.out(0))}, c);
  };
  delta::call now = op.arguments();
  body(now);
  return {std::make_shared<buffer>(in.front().data->owner, op.end(body)), out};
}
/// Changes `t` in place: each element to f(inputs, row, column, what it was).
template <class F>
void update(const char* name, const tensor& t, const tensors& in, const F& f) {
  const auto ids = ids_of(in), changed = ids_of({t});
  auto op =
      t.data->owner.begin(delta::operation_span{.inputs = ids, .updates = changed, .name = name});
  const delta::call c = op.arguments();
  const matrix y{t, reinterpret_cast<float*>(c.update(0))};
  const matrices x = inputs({in.begin(), in.end()}, c);
  y.set([&](auto i, auto j) { return f(x, i, j, y(i, j)); });
  op.end({}, [](delta::call&) {});
}
/// Each element f(inputs, row, column), for so many flops.
template <class F>
tensor element_wise(const char* name, const tensors& x, layout out, double flops, const F& f) {
  return apply(name, x, out, flops * double(out.rows * out.columns),
               [f](const matrices& in, const matrix& y, delta::call&) {
                 y.set([&](auto i, auto j) { return f(in, i, j); });
               });
}

// --- autograd ---
/// `y` was made of `parents`; `backward(dy)` gives their gradients.
inline tensor derived(tensor y, const tensors& parents,
                      std::function<tensors(const tensor&)> backward) {
  static std::uint64_t number = 0;
  y.maker = std::make_shared<node>(node{++number, {}, std::move(backward), {}});
  for (const tensor& t : parents) y.maker->parents.push_back(t.maker);
  return y;
}
/// Gradients of all parameters that `loss` depends on. What the closures kept goes on the way.
inline void backward(const tensor& loss) {
  const auto one = [](const auto&, auto, auto) { return 1.0f; };
  const auto add = [](const matrices& in, auto i, auto j) { return in[0](i, j) + in[1](i, j); };
  loss.maker->gradient = {element_wise("seed", {loss}, loss, 1, one)};
  std::map<std::uint64_t, std::shared_ptr<node>> open{{loss.maker->number, loss.maker}};
  while (!open.empty()) {
    const std::shared_ptr<node> n = std::prev(open.end())->second;
    open.erase(n->number);
    if (!n->backward) continue;
    const tensors parts = n->backward(n->gradient.front());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (n->parents[i] == nullptr) continue;
      tensors& sum = n->parents[i]->gradient;
      sum = {sum.empty() ? parts[i] : element_wise("add", {sum[0], parts[i]}, sum[0], 1, add)};
      open.emplace(n->parents[i]->number, n->parents[i]);
    }
    *n = {};
  }
}

// --- what models are made of ---
template <class F>
tensor variable(manager& m, layout l, const F& start) {
  const delta::bytes size{l.rows * l.columns * sizeof(float)};
  tensor t{std::make_shared<buffer>(m, m.variable(size)), l};
  const auto view = m.acquire(t.data->id, delta::access::write);
  matrix{t, reinterpret_cast<float*>(view.data())}.set(start);
  return t;
}
inline float item(const tensor& t, std::size_t i = 0, std::size_t j = 0) {
  const auto view = t.data->owner.acquire(t.data->id);
  return matrix{t, reinterpret_cast<float*>(view.data())}(i, j);
}
inline tensor product(const tensor& a, const tensor& b) {
  const auto dot = [](const matrices& in, auto i, auto j) {
    float sum = 0;
    for (std::size_t k = 0; k < in[0].columns; ++k) sum += in[0](i, k) * in[1](k, j);
    return sum;
  };
  return element_wise("matmul", {a, b}, {a.rows, b.columns}, 2.0 * double(a.columns), dot);
}
inline tensor matmul(const tensor& a, const tensor& b) {
  return derived(product(a, b), {a, b}, [a, b](const tensor& dy) -> tensors {
    return {product(dy, b.transposed()), product(a.transposed(), dy)};
  });
}
inline tensor add_bias(const tensor& x, const tensor& bias) {
  const auto sum = [](const matrices& in, auto i, auto j) { return in[0](i, j) + in[1](0, j); };
  const auto sum_rows = [](const matrices& in, auto, auto j) {
    float all = 0;
    for (std::size_t i = 0; i < in[0].rows; ++i) all += in[0](i, j);
    return all;
  };
  const tensor y = element_wise("add_bias", {x, bias}, {x.rows, x.columns}, 1, sum);
  return derived(y, {x, bias}, [=](const tensor& dy) -> tensors {
    return {dy, element_wise("sum_rows", {dy}, {1, dy.columns}, double(dy.rows), sum_rows)};
  });
}
/// In place: the result is `x`'s own bytes in a new version.
inline tensor relu_(const tensor& x) {  // NOLINT(readability-identifier-naming): as elsewhere
  update("relu_", x, {}, [](const matrices&, auto, auto, float v) { return std::max(v, 0.0f); });
  const auto pass = [](const matrices& in, auto i, auto j) {
    return in[0](i, j) > 0 ? in[1](i, j) : 0.0f;
  };
  return derived(x, {x}, [=](const tensor& dy) -> tensors {
    return {element_wise("relu_backward", {x, dy}, {x.rows, x.columns}, 1, pass)};
  });
}
/// Keeps an element with probability 1 - p. The mask is a function of the operator's number in the
/// program, so a replay draws the same, and so does the backward pass.
inline tensor dropout(const tensor& x, float p) {
  const auto drawn = std::make_shared<std::uint64_t>();
  const auto masked = [p, drawn](bool draws) {
    return [=](const matrices& in, const matrix& y, delta::call& c) {
      if (draws) *drawn = c.sequence();
      y.set([&](std::size_t i, std::size_t j) {
        std::uint64_t h = (*drawn << 32) + i * y.columns + j;  // SplitMix64's finalizer
        h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
        h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
        return double(h >> 11) * 0x1p-53 < p ? 0.0f : in[0](i, j) / (1 - p);
      });
    };
  };
  const layout out{x.rows, x.columns};
  const double flops = 8.0 * double(x.rows * x.columns);
  const tensor y = apply("dropout", {x}, out, flops, masked(true), delta::trait::random);
  return derived(y, {x}, [=](const tensor& dy) -> tensors {
    return {apply("dropout_backward", {dy}, out, flops, masked(false))};
  });
}
/// w -= rate * gradient, which then goes.
inline void descend(const tensor& w, float rate) {
  update("descend", w, {w.maker->gradient.front()},
         [rate](const matrices& in, auto i, auto j, float v) { return v - rate * in[0](i, j); });
  w.maker->gradient.clear();
}

}  // namespace eager

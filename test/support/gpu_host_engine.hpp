// The Engine of kernels/gpu/engine.hpp on the host: the GPU's operators run here with the very
// functors, index arithmetic and reduction trees that a GPU runs, in an order of threads that the
// test picks. Results may not depend on it: not in one bit.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/gpu/engine.hpp"

namespace gpu_host {

namespace gpu = delta::executor::gpu;

/// In which order the threads of a launch run.
enum class order { ascending, descending, scattered };

class engine {
 public:
  explicit engine(order o = order::ascending, std::size_t gathered_bytes = 1 << 20,
                  std::size_t product_workspace = 1024)
      : order_(o), gathered_bytes_(gathered_bytes), product_workspace_(product_workspace) {}

  template <class F>
  void each(std::size_t n, const F& f) const {
    in_order(n, [&](std::size_t i) { f(i); });
  }

  template <class R>
  void columns(const gpu::column_cut& cut, std::size_t columns, const R& r) const {
    using state = decltype(r.collect(0, 0, 1, 1));
    constexpr std::size_t lanes = R::team::lanes;
    in_order(cut.parts * columns, [&](std::size_t at) {
      const std::size_t part = at / columns, column = at % columns;
      const std::size_t first = part * cut.rows_per_part;
      const std::size_t end = std::min(cut.rows, first + cut.rows_per_part);
      std::array<state, lanes> states;
      in_order(lanes, [&](std::size_t lane) {
        states[lane] = r.collect(column, first + lane, lanes, end);
      });
      for (std::size_t half = lanes / 2; half > 0; half /= 2) {
        in_order(half, [&](std::size_t lane) {
          states[lane] = r.join(states[lane], states[lane + half]);
        });
      }
      r.finish(part, column, states[0]);
    });
  }

  template <class F>
  void blocks(std::size_t n, const F& f) const {
    in_order(n, [&](std::size_t b) {
      block team{*this};
      f(team, b);
    });
  }

  /// Sums in double. It wastes its workspace, so that whoever keeps something there loses it.
  void multiply(const gpu::matrix_product& p, std::byte* workspace) const {
    std::memset(workspace, 0xFF, product_workspace());
    in_order(p.batch * p.m * p.n, [&](std::size_t at) {
      const std::size_t batch = at / (p.m * p.n), row = at / p.n % p.m, column = at % p.n;
      double sum = 0.0;
      for (std::size_t i = 0; i < p.k; ++i) {
        sum += double(element(p.a, batch, row, i)) * double(element(p.b, batch, i, column));
      }
      float& c = p.c.at[batch * p.c.step + row * p.c.line + column];
      c = float(p.beta == 0.0f ? sum : sum + double(p.beta) * double(c));
    });
  }
  [[nodiscard]] std::size_t product_workspace() const { return product_workspace_; }
  [[nodiscard]] std::size_t gathered_bytes() const { return gathered_bytes_; }

 private:
  struct block {
    const engine& e;
    template <class T, class F, class Join>
    T reduce(std::size_t n, T identity, const F& value, const Join& join) {
      std::array<T, gpu::block_lanes> partial;
      e.in_order(gpu::block_lanes, [&](std::size_t lane) {
        partial[lane] = identity;
        for (auto j = lane; j < n; j += gpu::block_lanes) {
          partial[lane] = join(partial[lane], value(j));
        }
      });
      for (std::size_t half = gpu::block_lanes / 2; half > 0; half /= 2) {
        e.in_order(half, [&](std::size_t lane) {
          partial[lane] = join(partial[lane], partial[lane + half]);
        });
      }
      return partial[0];
    }
    template <class F>
    void each(std::size_t n, const F& f) {
      e.in_order(n, f);
    }
  };

  static float element(const gpu::factor& f, std::size_t batch, std::size_t row,
                       std::size_t column) {
    if (f.turned) std::swap(row, column);
    return f.at[batch * f.step + row * f.line + column];
  }

  template <class F>
  void in_order(std::size_t n, const F& f) const {
    if (order_ == order::ascending) {
      for (std::size_t i = 0; i < n; ++i) f(i);
    } else if (order_ == order::descending) {
      for (std::size_t i = n; i > 0; --i) f(i - 1);
    } else {
      std::size_t step = n / 3 * 2 + 1;  // visits all where it shares no factor with n
      while (std::gcd(step, n) > 1) ++step;
      for (std::size_t i = 0, at = n / 2; i < n; ++i, at = (at + step) % n) f(at);
    }
  }

  order order_;
  std::size_t gathered_bytes_, product_workspace_;
};

}  // namespace gpu_host

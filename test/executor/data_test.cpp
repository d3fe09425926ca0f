// Synthetic images, epoch orders and the numbers behind them.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "data/counter_random.hpp"
#include "data/dataset.hpp"
#include "data/synthetic.hpp"
#include "train/digest.hpp"

using namespace delta::executor;

namespace {

struct batch {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
};

batch take(const dataset& data, const std::vector<std::uint32_t>& indices, int side) {
  const auto pixels = static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
  batch b{std::vector<float>(indices.size() * pixels * std::size_t(data.channels())),
          std::vector<std::int32_t>(indices.size())};
  data.fill(indices, side, b.images.data(), b.labels.data());
  return b;
}

std::vector<std::uint32_t> first(std::uint32_t count) {
  std::vector<std::uint32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0u);
  return indices;
}

}  // namespace

TEST_CASE("an image depends on seed, index and side alone") {
  const synthetic data(3);
  const batch together = take(data, {5, 9, 5}, 16);
  const batch alone = take(data, {9}, 16);
  const std::size_t size = alone.images.size();
  const auto at = [&](std::size_t i) { return together.images.begin() + std::ptrdiff_t(i * size); };
  CHECK(std::equal(alone.images.begin(), alone.images.end(), at(1)));
  CHECK(std::equal(at(0), at(1), at(2)));
  CHECK_FALSE(std::equal(at(0), at(1), at(1)));
  CHECK(together.labels[0] == together.labels[2]);
  CHECK(together.labels[1] == alone.labels[0]);
  CHECK(take(synthetic(4), {9}, 16).images != alone.images);
  CHECK(take(synthetic(3, 100), {9}, 16).images == alone.images);  // not on the set's size
}

TEST_CASE("the very bits, so that a change of the images does not go unnoticed") {
  const batch b = take(synthetic(1), first(20), 32);
  CHECK(digest{}.add(std::span<const float>(b.images)).hex() == "a0ed0006f954a9fc");
  CHECK(digest{}.add(std::span<const std::int32_t>(b.labels)).hex() == "1494e37c678f3551");
}

TEST_CASE("ten classes, evenly, in about zero mean and unit deviation") {
  const synthetic data(1);
  CHECK(data.size() == 10'000);
  CHECK(data.channels() == 3);
  CHECK(data.classes() == 10);
  const batch b = take(data, first(2000), 16);
  std::array<int, 10> count{};
  for (const std::int32_t label : b.labels) ++count.at(static_cast<std::size_t>(label));
  for (const int n : count) CHECK(std::abs(n - 200) < 60);

  double sum = 0;
  double squares = 0;
  for (const float v : b.images) {
    REQUIRE(std::isfinite(v));
    sum += v;
    squares += double(v) * v;
  }
  const auto n = static_cast<double>(b.images.size());
  CHECK(std::abs(sum / n) < 0.1);
  CHECK(std::sqrt(squares / n) == doctest::Approx(1.4).epsilon(0.2));
}

TEST_CASE("the class can be seen: gradients lie along its direction") {
  // The structure tensor of an image (averaged over a few per class) has its main axis along the
  // grating's direction: 18 degrees from class to class.
  const synthetic data(7);
  constexpr int side = 64;
  std::array<double, 10> xx{}, xy{}, yy{};
  const batch b = take(data, first(200), side);
  for (std::size_t i = 0; i < b.labels.size(); ++i) {
    const auto c = static_cast<std::size_t>(b.labels[i]);
    const float* image = b.images.data() + i * side * side * 3;
    const auto pixel = [&](int y, int x) {
      // 3 x 3 mean against the noise, over the channels too
      double sum = 0;
      for (int v = y - 1; v <= y + 1; ++v) {
        for (int h = (x - 1) * 3; h < (x + 2) * 3; ++h) sum += image[v * side * 3 + h];
      }
      return sum;
    };
    for (int y = 4; y < side - 4; y += 2) {
      for (int x = 4; x < side - 4; x += 2) {
        const double dx = pixel(y, x + 2) - pixel(y, x - 2);
        const double dy = pixel(y + 2, x) - pixel(y - 2, x);
        xx[c] += dx * dx;
        xy[c] += dx * dy;
        yy[c] += dy * dy;
      }
    }
  }
  for (std::size_t c = 0; c < 10; ++c) {
    const double degrees = std::atan2(2 * xy[c], xx[c] - yy[c]) * 90 / 3.14159265358979;
    const double wanted = 18.0 * double(c);
    const double off = std::remainder(degrees - wanted, 180.0);
    CHECK_MESSAGE(std::abs(off) < 9, "class " << c << ": " << degrees << " degrees");
  }
}

TEST_CASE("training and evaluation share no image") {
  CHECK(synthetic(1).training().count == 9000);
  CHECK(synthetic(1).evaluation().first == 9000);
  CHECK(synthetic(1).evaluation().count == 1000);
  CHECK(synthetic(1, 70'000).training().count == 69'000);
  CHECK(synthetic(1, 50).training().count == 45);
  CHECK(synthetic(1, 50).evaluation().count == 5);
  CHECK(synthetic(1, 3).training().count == 3);
}

TEST_CASE("an epoch's order is a shuffle of its range by (seed, epoch)") {
  epoch_order order({100, 1000}, 5);
  const auto all = [&] {
    const auto span = order.batch(0, 1000);
    return std::vector<std::uint32_t>(span.begin(), span.end());
  };
  const auto zero = all();
  order.shuffle(1);
  const auto one = all();
  order.shuffle(0);
  CHECK(all() == zero);
  CHECK(one != zero);
  CHECK(epoch_order({100, 1000}, 6).batch(0, 1000)[0] != zero[0]);

  auto sorted = one;
  std::ranges::sort(sorted);
  for (std::uint32_t i = 0; i < 1000; ++i) REQUIRE(sorted[i] == 100 + i);
  std::size_t fixed = 0;
  for (std::uint32_t i = 0; i < 1000; ++i) fixed += one[i] == 100 + i ? 1u : 0u;
  CHECK(fixed < 10);
}

TEST_CASE("batches partition the order") {
  const epoch_order order({0, 10}, 1);
  CHECK(order.whole_batches(3) == 3);
  CHECK(order.batch(0, 3).size() == 3);
  CHECK(order.batch(3, 3).size() == 1);
  CHECK(order.batch(4, 3).empty());
  CHECK(order.batch(1, 3).data() == order.batch(0, 3).data() + 3);
  const epoch_order none({0, 0}, 1);
  CHECK(none.batch(0, 3).empty());
}

TEST_CASE("splitmix64's published values") {
  // The first outputs of the sequence whose state starts at 1234567.
  std::uint64_t state = 1234567;
  for (const std::uint64_t wanted :
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u}) {
    CHECK(mix(state) == wanted);
    state += 0x9e3779b97f4a7c15u;
  }
  CHECK(below(~0ull, 10) == 9);
  CHECK(below(0, 10) == 0);
}

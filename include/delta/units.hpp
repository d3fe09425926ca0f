// delta: units, identifiers and the tokens that stand for memory. The lowest floor: no other delta
// header is included here.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace delta {

/// A number of bytes. A strong type, because sizes, ticks and identifiers look alike as integers.
struct bytes {
  std::uint64_t count = 0;

  constexpr bytes() = default;
  constexpr explicit bytes(std::uint64_t n) noexcept : count(n) {}
  constexpr auto operator<=>(const bytes&) const = default;
  constexpr bytes& operator+=(bytes o) noexcept { return count += o.count, *this; }
  constexpr bytes& operator-=(bytes o) noexcept { return count -= o.count, *this; }
  friend constexpr bytes operator+(bytes a, bytes b) noexcept { return a += b; }
  friend constexpr bytes operator-(bytes a, bytes b) noexcept { return a -= b; }
  friend constexpr bytes operator*(bytes a, std::uint64_t n) noexcept { return bytes{a.count * n}; }
};

/// `a - b`, or zero where that would be negative.
constexpr bytes saturating_sub(bytes a, bytes b) noexcept {
  return a > b ? a - b : bytes{};
}

/// `n` rounded up to a multiple of `granularity` (which is a power of two).
constexpr bytes round_up(bytes n, std::uint64_t granularity) noexcept {
  return bytes{(n.count + granularity - 1) & ~(granularity - 1)};
}

inline namespace literals {
constexpr bytes operator""_B(unsigned long long n) noexcept {
  return bytes{n};
}
constexpr bytes operator""_KiB(unsigned long long n) noexcept {
  return bytes{n << 10};
}
constexpr bytes operator""_MiB(unsigned long long n) noexcept {
  return bytes{n << 20};
}
constexpr bytes operator""_GiB(unsigned long long n) noexcept {
  return bytes{n << 30};
}
}  // namespace literals

/// Time, measured or virtual. Policies compute in double (ns); clocks and records keep integers.
using nanoseconds = std::chrono::duration<std::int64_t, std::nano>;

/// The operator counter: one tick per operator that the program runs (replays do not count).
/// Staleness (the paper's s) is a difference of ticks (repairs P-17).
using tick = std::uint64_t;

/// A managed tensor: one storage's bytes, shared by its views. Ties between equal scores go to the
/// lower id.
enum class tensor_id : std::uint32_t { none = 0xffffffffu };
/// An operator record: who made which tensors from what.
enum class operator_id : std::uint32_t { none = 0xffffffffu };

constexpr std::uint32_t index(tensor_id t) noexcept {
  return static_cast<std::uint32_t>(t);
}
constexpr std::uint32_t index(operator_id o) noexcept {
  return static_cast<std::uint32_t>(o);
}

/// The three serial engines of a device. They run side by side; order between them is by stamps.
enum class engine : std::uint8_t { compute, copy_out, copy_in };
inline constexpr std::size_t engine_count = 3;

/// Which way a copy goes: out to the host, or in to the device.
enum class direction : std::uint8_t { out, in };
constexpr engine engine_of(direction d) noexcept {
  return d == direction::out ? engine::copy_out : engine::copy_in;
}

/// A point on one engine: everything queued there up to and including it. What `point` counts
/// (a sequence number, a virtual time) is the storage's own affair; on one engine it only grows.
struct stamp {
  engine where = engine::compute;
  std::uint64_t point = 0;  ///< 0: reached from the beginning
  constexpr bool operator==(const stamp&) const = default;
};

/// One point per engine: reached when all three are. Joining two fences is an element-wise max.
struct fence {
  std::array<std::uint64_t, engine_count> point{};

  constexpr fence& join(stamp s) noexcept {
    auto& p = point[static_cast<std::size_t>(s.where)];
    p = s.point > p ? s.point : p;
    return *this;
  }
  constexpr fence& join(const fence& o) noexcept {
    for (std::size_t e = 0; e < engine_count; ++e) join(stamp{static_cast<engine>(e), o.point[e]});
    return *this;
  }
  constexpr bool operator==(const fence&) const = default;
};

/// How long a block is expected to live. Storages may place the two kinds apart (the arena grows
/// them from opposite ends), so that long-lived blocks do not split the room of short-lived ones.
enum class lifetime : std::uint8_t { transient, persistent };

/// A move-only handle to memory that a storage owns. It does not free by itself: only the storage
/// that gave it can take it back, so a token that is copied, forgotten or used twice is a bug that
/// the type makes hard to write. `index` names a row in the storage's own table, not an address:
/// blocks may be moved together between operators.
template <class Kind>
class token {
 public:
  static constexpr std::uint32_t none = 0xffffffffu;

  constexpr token() noexcept = default;
  constexpr explicit token(std::uint32_t index) noexcept : index_(index) {}
  constexpr token(token&& o) noexcept : index_(std::exchange(o.index_, none)) {}
  constexpr token& operator=(token&& o) noexcept {
    index_ = std::exchange(o.index_, none);
    return *this;
  }
  token(const token&) = delete;
  token& operator=(const token&) = delete;

  constexpr explicit operator bool() const noexcept { return index_ != none; }
  [[nodiscard]] constexpr std::uint32_t index() const noexcept { return index_; }

 private:
  std::uint32_t index_ = none;
};

using block = token<struct block_kind>;  ///< bytes on the device
using slab = token<struct slab_kind>;    ///< bytes on the host, in the budgeted host arena

/// A copy under way. It owns both of its ends, so nobody else can name a block or a slab in motion
/// (the eight transfer rules; storage/arena.hpp keeps them). `Storage::land` gives both back.
class transfer {
 public:
  transfer(block device, slab host, stamp done) noexcept
      : device_(std::move(device)), host_(std::move(host)), done_(done) {}
  [[nodiscard]] stamp done() const noexcept { return done_; }
  [[nodiscard]] std::pair<block, slab> take() && noexcept {
    return {std::move(device_), std::move(host_)};
  }

 private:
  block device_;
  slab host_;
  stamp done_;
};

}  // namespace delta

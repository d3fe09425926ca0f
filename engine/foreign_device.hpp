// delta engine: a Device that is a table of C functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "delta/engine/c_interface.h"
#include "delta/storage/device.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Calls the functions of a delta_device. What may be missing there answers as c_interface.h says.
class foreign_device {
 public:
  explicit foreign_device(const delta_device& d) noexcept : table_(d) {}

  /// The first function that a device must have and this one lacks; null: it is complete.
  static const char* missing(const delta_device& d) noexcept {
    if (d.device_memory == nullptr) return "device_memory";
    if (d.host_memory == nullptr) return "host_memory";
    if (d.copy == nullptr) return "copy";
    if (d.begin == nullptr) return "begin";
    if (d.move == nullptr) return "move";
    if (d.end == nullptr) return "end";
    if (d.reached == nullptr) return "reached";
    if (d.wait == nullptr) return "wait";
    if (d.elapsed == nullptr) return "elapsed";
    if (d.now == nullptr) return "now";
    return d.rate == nullptr ? "rate" : nullptr;
  }

  std::byte* device_memory(bytes n) { return taken(table_.device_memory(table_.self, n.count)); }
  std::byte* host_memory(bytes n) { return taken(table_.host_memory(table_.self, n.count)); }
  stamp copy(direction d, std::byte* to, const std::byte* from, bytes n, const fence& after) {
    const std::uint64_t point = table_.copy(table_.self, d == direction::out ? 0 : 1, to, from,
                                            n.count, after.point.data());
    return {lane_of(d), point};
  }
  void begin(const fence& after) { table_.begin(table_.self, after.point.data()); }
  void move(std::byte* to, const std::byte* from, bytes n) {
    table_.move(table_.self, to, from, n.count);
  }
  stamp end() { return {lane::compute, table_.end(table_.self)}; }

  bool reached(stamp s) {
    return table_.reached(table_.self, static_cast<int>(s.where), s.point) != 0;
  }
  void wait(stamp s) { table_.wait(table_.self, static_cast<int>(s.where), s.point); }
  std::optional<nanoseconds> elapsed(stamp s) {
    const std::int64_t took = table_.elapsed(table_.self, static_cast<int>(s.where), s.point);
    return took < 0 ? std::nullopt : std::optional(nanoseconds{took});
  }
  [[nodiscard]] nanoseconds now() const { return nanoseconds{table_.now(table_.self)}; }
  [[nodiscard]] nanoseconds waited() const {
    return nanoseconds{table_.waited == nullptr ? 0 : table_.waited(table_.self)};
  }
  [[nodiscard]] double rate(direction d) const { return table_.rate(table_.self, int(d)); }
  [[nodiscard]] nanoseconds latency(direction d) const { return asked(table_.latency, d); }
  [[nodiscard]] nanoseconds backlog(direction d) const { return asked(table_.backlog, d); }
  [[nodiscard]] double move_rate() const {
    return table_.move_rate == nullptr ? detail::assumed_move_rate : table_.move_rate(table_.self);
  }
  void* native_stream() {
    return table_.native_stream == nullptr ? nullptr : table_.native_stream(table_.self);
  }

 private:
  static std::byte* taken(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<std::byte*>(memory);
  }
  nanoseconds asked(std::int64_t (*f)(void*, int), direction d) const {
    return nanoseconds{f == nullptr ? 0 : f(table_.self, static_cast<int>(d))};
  }

  delta_device table_;
};

static_assert(Device<foreign_device>);

}  // namespace delta::detail

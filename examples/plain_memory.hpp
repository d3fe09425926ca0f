// The smallest delta::Device: plain memory, and copies that are done when the call returns.
#pragma once

#include <cstring>
#include <delta/storage/arena.hpp>
#include <optional>
#include <vector>

struct plain_memory {
  std::byte* device_memory(delta::bytes n) { return take(device_, n); }
  std::byte* host_memory(delta::bytes n) { return take(host_, n); }

  delta::stamp copy(delta::direction d, std::byte* to, const std::byte* from, delta::bytes n,
                    const delta::fence&) {
    std::memcpy(to, from, n.count);
    return {delta::engine_of(d), ++queued_};
  }
  void begin(const delta::fence&) {}
  void move(std::byte* to, const std::byte* from, delta::bytes n) {
    std::memmove(to, from, n.count);
  }
  delta::stamp end() { return {delta::engine::compute, ++queued_}; }

  bool reached(delta::stamp) { return true; }
  void wait(delta::stamp) {}
  std::optional<delta::nanoseconds> elapsed(delta::stamp) { return {}; }  // does not measure
  delta::nanoseconds now() const { return {}; }
  delta::nanoseconds waited() const { return {}; }
  double rate(delta::direction) const { return 8e9; }  // bytes per second, each way
  delta::nanoseconds latency(delta::direction) const { return {}; }
  delta::nanoseconds backlog(delta::direction) const { return {}; }

 private:
  struct alignas(64) line {
    std::byte bytes[64];
  };
  static std::byte* take(std::vector<line>& memory, delta::bytes n) {
    memory.resize(n.count / sizeof(line) + 1);
    return memory.data()->bytes;
  }
  std::vector<line> device_, host_;
  std::uint64_t queued_ = 0;
};

static_assert(delta::explain_device<plain_memory>());

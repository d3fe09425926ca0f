// delta_torch: a run's memory over time.
#include "memory_log.hpp"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "session.hpp"

namespace delta_torch {

void memory_log::add(const block& what, bool taken) {
  // The clock takes as long as the rest.
  if (count_ % 16 == 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    now_ = std::chrono::nanoseconds(now).count();
  }
  const change made{what, taken, now_};
  if (ring_.size() < most)
    ring_.push_back(made);
  else
    ring_[count_ % most] = made;
  ++count_;
}

void memory_log::take(std::uint32_t number, const block& what, bool adopted) {
  if (closed_ || what.bytes == 0) return;
  if (number >= rows_.size()) rows_.resize(number + 1u + number / 2u);
  rows_[number] = {what, count_, adopted};
  add(what, true);
}

std::uint64_t memory_log::give(std::uint32_t number) {
  if (closed_ || number >= rows_.size() || rows_[number].what.bytes == 0) return 0;
  const row given = std::exchange(rows_[number], {});
  add(given.what, false);
  return given.adopted ? 0 : given.what.bytes;
}

void memory_log::name(std::uint32_t number, const char* maker) {
  if (closed_ || number >= rows_.size()) return;
  row& r = rows_[number];
  r.what.maker = maker;
  if (r.what.bytes > 0 && count_ - r.taken_at <= most) ring_[r.taken_at % most].what.maker = maker;
}

std::vector<memory_log::change> memory_log::changes() const {
  std::vector<change> all = ring_;
  if (count_ > most)
    std::ranges::rotate(all, all.begin() + static_cast<std::ptrdiff_t>(count_ % most));
  return all;
}

std::vector<memory_log::block> memory_log::in_use() const {
  std::vector<block> all;
  for (const row& r : rows_)
    if (r.what.bytes > 0) all.push_back(r.what);
  return all;
}

std::optional<delta::block> logged_storage::allocate(delta::bytes n, delta::lifetime life) {
  auto b = forwarding_storage::allocate(n, life);
  if (!b) return b;
  const session::scratch& now = session::get().taken;
  const char* const operation = now.operation != 0 ? now.label : "";
  log_->take(b->index(), {.address = reinterpret_cast<std::uintptr_t>(data(*b)),
                          .bytes = rounded(n).count,
                          .needed_by = operation});
  tell_profiler(data(*b), static_cast<std::int64_t>(rounded(n).count));
  return b;
}

void logged_storage::free(delta::block&& b) {
  void* const at = data(b);
  const std::uint64_t gone = log_->give(b.index());
  forwarding_storage::free(std::move(b));
  if (gone > 0) tell_profiler(at, -static_cast<std::int64_t>(gone));
}

void logged_storage::tell_profiler(void* at, std::int64_t change) const {
  const c10::Device device = managed_device();
  if (device.is_cpu())
    c10::reportMemoryUsageToProfiler(at, change, used().count, /*total_reserved=*/0, device);
}

void logged_storage::on_owner_changed(const delta::block& b, delta::tensor_id t) {
  if (const entry* const e = session::get().tensors().of(t)) log_->name(b.index(), e->label);
  forwarding_storage::on_owner_changed(b, t);
}

}  // namespace delta_torch

// delta_torch: pins what collectives in flight use, and lets go of it when they are over.
#include "flights.hpp"

#include <Python.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

namespace delta_torch {

namespace {

// As long as people wait before they look what is wrong; a late process is waited for.
constexpr std::chrono::seconds patience{30};
constexpr std::chrono::microseconds between_looks{100};

c10::intrusive_ptr<c10::ivalue::Future> future_of(c10d::Work& work) {
  try {
    return work.getFuture();
  } catch (const std::exception&) {
    return nullptr;  // it is a send, a receive, or one whose `wait` does it all
  }
}

}  // namespace

struct flight_list::flight {
  struct pin {
    delta::tensor_id id;
    delta::manager_interface::view bytes;
  };
  std::list<pin> pins;                             // a view is not assigned to
  c10::intrusive_ptr<c10d::Work> work;             // null: it is functional
  c10::intrusive_ptr<c10::ivalue::Future> future;  // null: there is none
  storage_list awaited;                            // of a functional one: no storage may be freed

  void use(delta::manager_interface& manager, std::span<const delta::tensor_id> tensors) {
    for (const delta::tensor_id t : tensors) pins.push_back({t, manager.acquire(t)});
  }
  [[nodiscard]] bool is_over() const {
    // A callback may still be running when its future is completed: it waits for an operator of
    // ours perhaps, and uses its tensors by operators.
    if (future) return future->completed();
    // What nobody else has can't be waited for any more, nor does it run: Gloo's queue would have
    // it. Of a send or a receive the work is completed only by its `wait`.
    return work && (work->isCompleted() || work.use_count() == 1);
  }
};

void time_under_way::begin() {
  const std::scoped_lock lock(mutex_);
  if (under_way_++ == 0) since_ = clock::now();
}
void time_under_way::end() {
  const std::scoped_lock lock(mutex_);
  // Of a wait from before the run its beginning is not known.
  if (under_way_ > 0 && --under_way_ == 0) total_ += clock::now() - since_;
}
std::chrono::nanoseconds time_under_way::total() const {
  const std::scoped_lock lock(mutex_);
  return under_way_ == 0 ? total_ : total_ + (clock::now() - since_);
}

flight_list::flight_list() = default;
flight_list::~flight_list() = default;

void flight_list::take_off(delta::manager_interface& manager,
                           const c10::intrusive_ptr<c10d::Work>& work,
                           std::span<const delta::tensor_id> tensors) {
  if (tensors.empty()) return;
  flight f;
  f.future = future_of(*work);
  if (f.future ? f.future->completed() : work->isCompleted()) return;
  f.work = work;
  f.use(manager, tensors);
  if (f.future) {
    time_->begin();
    f.future->addCallback([time = time_](c10::ivalue::Future&) { time->end(); });
  }
  flights_.push_back(std::move(f));
}

void flight_list::take_off(delta::manager_interface& manager, storage_list results,
                           std::span<const delta::tensor_id> tensors) {
  if (tensors.empty()) return;
  flight f;
  f.awaited = std::move(results);
  f.use(manager, tensors);
  flights_.push_back(std::move(f));
}

template <class Over>
void flight_list::remove(const Over& over) {
  for (auto at = flights_.begin(); at != flights_.end();) {
    if (!over(*at)) {
      ++at;
      continue;
    }
    std::list<flight::pin> pins = std::move(at->pins);
    at = flights_.erase(at);
    for (const flight::pin& p : pins)
      if (landed != nullptr && !uses(p.id)) landed(p.id);
  }
}

void flight_list::land() {
  if (!flights_.empty()) remove([](const flight& f) { return f.is_over(); });
}

void flight_list::waited_for(const storage_list& storages) {
  remove([&](flight& f) {
    if (f.work) return false;
    std::erase_if(f.awaited,
                  [&](const auto& s) { return std::ranges::find(storages, s) != storages.end(); });
    return f.awaited.empty();
  });
}

void flight_list::forget(delta::tensor_id t) {
  for (flight& f : flights_) std::erase_if(f.pins, [&](const flight::pin& p) { return p.id == t; });
}

void flight_list::clear() noexcept {
  flights_.clear();
}

bool flight_list::uses(delta::tensor_id t) const noexcept {
  return std::ranges::any_of(flights_, [&](const flight& f) {
    return std::ranges::find(f.pins, t, &flight::pin::id) != f.pins.end();
  });
}

std::size_t flight_list::tensors() const noexcept {
  std::size_t n = 0;
  for (const flight& f : flights_) n += f.pins.size();
  return n;
}

c10::intrusive_ptr<c10::ivalue::Future> flight_list::oldest() const {
  const auto at = std::ranges::find_if(flights_, [](const flight& f) { return bool(f.future); });
  return at != flights_.end() ? at->future : nullptr;
}

bool wait_for(c10::ivalue::Future& future) {
  PyThreadState* const python =
      Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
  const auto end = std::chrono::steady_clock::now() + patience;
  bool over = future.completed();
  for (; !over && std::chrono::steady_clock::now() < end; over = future.completed())
    std::this_thread::sleep_for(between_looks);
  if (python != nullptr) PyEval_RestoreThread(python);
  return over;
}

}  // namespace delta_torch

// delta_torch: collectives in flight, which use their tensors behind their operator's return: the
// bytes of these stay on the device, where they are, until the collective is over.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>

#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "delta/engine/manager_interface.hpp"

// c10d's headers take long to compile.
namespace c10d {
class Work;
}

namespace delta_torch {

using storage_list = std::vector<c10::intrusive_ptr<c10::StorageImpl>>;

/// Since when, and how long altogether, at least one collective is under way. From any thread.
class time_under_way {
 public:
  void begin();
  void end();
  [[nodiscard]] std::chrono::nanoseconds total() const;

 private:
  using clock = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  int under_way_ = 0;
  clock::time_point since_;
  std::chrono::nanoseconds total_{};
};

/// Collectives in flight, the oldest first. Under the session's lock `state`.
class flight_list {
 public:
  flight_list();
  ~flight_list();
  flight_list(const flight_list&) = delete;
  flight_list& operator=(const flight_list&) = delete;

  /// A collective has begun that uses these tensors, which are on the device. Nothing where its
  /// work is over already. O(tensors).
  void take_off(delta::manager_interface&, const c10::intrusive_ptr<c10d::Work>&,
                std::span<const delta::tensor_id>);
  /// The same of a functional one, which lasts until all of its results were waited for.
  void take_off(delta::manager_interface&, storage_list results, std::span<const delta::tensor_id>);
  /// Is told of each tensor that no collective uses any more.
  void (*landed)(delta::tensor_id) = nullptr;
  /// Lets go of what is used by collectives that are over. O(1) where there are none.
  void land();
  /// These were waited for.
  void waited_for(const storage_list&);
  /// The manager is about to drop this tensor.
  void forget(delta::tensor_id);
  /// Lets go of everything.
  void clear() noexcept;

  /// Does one of them use this tensor?
  [[nodiscard]] bool uses(delta::tensor_id) const noexcept;
  /// How many tensors they use.
  [[nodiscard]] std::size_t tensors() const noexcept;
  /// How long collectives of this run are under way: those whose end a future tells, and what
  /// whoever waits for others adds to it. Not null; outlives the run where a collective does.
  [[nodiscard]] const std::shared_ptr<time_under_way>& time() const noexcept { return time_; }
  /// A run begins: its time does.
  void restart_time() { time_ = std::make_shared<time_under_way>(); }
  /// What tells the end of the oldest one that can be waited for; null: there is none. Sends and
  /// receives can't: the other side may wait for what this process does later. Nor can functional
  /// ones, whose work only PyTorch knows.
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> oldest() const;

 private:
  struct flight;
  template <class Over>
  void remove(const Over&);
  std::list<flight> flights_;
  std::shared_ptr<time_under_way> time_ = std::make_shared<time_under_way>();
};

/// Waits, without a lock, until a collective is over, and lets other threads have Python's lock
/// meanwhile. False: it takes too long; other processes may be waiting for this one.
bool wait_for(c10::ivalue::Future&);

}  // namespace delta_torch

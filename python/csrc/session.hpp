// delta_torch: the run that is on: its budget, its manager and its tensors, and the locks that
// order the program's threads. No operator is known here.
#pragma once

#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "delta/engine/manager_interface.hpp"
#include "delta/error.hpp"
#include "flights.hpp"
#include "hashes/hashed_storage.hpp"
#include "host_memory.hpp"
#include "managed_memory.hpp"
#include "random_state.hpp"
#include "record.hpp"
#include "target.hpp"
#include "tensors.hpp"
#include "threads.hpp"

namespace delta_torch {

class memory_log;

/// What a run is started with.
struct run_options {
  std::string policy = "adaptive";
  std::size_t budget = no_limit;  ///< bytes
  std::size_t host = 0;           ///< bytes
  bool check_replays = false;
  bool verify_tensors = false;  ///< on a CPU
  bool lifts_limit = false;     ///< where memory is short, there is no limit from then on
  std::string timeline;         ///< a file; empty: none
  c10::Device device{c10::kCPU};
};

/// Everything that a run has, and what stays behind it to be reported. There is one, for the whole
/// process; `on` says whether a run is under way.
///
/// Two locks: `operators`, held from the beginning of an operator to its end, as one is open at a
/// time; and `state`, held during calls of the manager, so that threads which a kernel has started
/// may allocate meanwhile. `operators` is taken first.
class session {
 public:
  static session& get();

  /// Holds one of the locks. Where Python's lock would be waited with, it is let go meanwhile:
  /// the operator that is waited for may need it.
  class locked {
   public:
    explicit locked(std::mutex& m);
    locked(const locked&) = delete;
    locked& operator=(const locked&) = delete;
    ~locked() { mutex_->unlock(); }

   private:
    std::mutex* mutex_;
  };
  /// Holds `state`, and this thread knows it.
  class inside {
   public:
    explicit inside(session& s, thread_state& t = this_thread())
        : lock_(s.state), thread_(&t), before_(t.within_manager) {
      t.within_manager = true;
    }
    ~inside() { thread_->within_manager = before_; }
    inside(const inside&) = delete;
    inside& operator=(const inside&) = delete;
    /// Is this thread in a call of the manager?
    [[nodiscard]] static bool here() noexcept { return this_thread().within_manager; }

   private:
    locked lock_;
    thread_state* thread_;
    bool before_;
  };
  std::mutex operators, state;

  /// In a process that was forked off there is no run: its memory is the parent's affair.
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_acquire); }
  /// The number of the run that is on, or was last: from 1 on.
  [[nodiscard]] std::uint64_t number() const noexcept {
    return number_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool forked() const noexcept { return forked_.load(std::memory_order_relaxed); }
  void now_a_child() noexcept {
    child_ = true;
    forked_ = on();
    on_ = false;
  }
  /// The device of the run that is on, or was last.
  [[nodiscard]] target& device() noexcept { return *device_; }

  // --- under `operators` and `state`
  // --------------------------------------------------------------

  /// Throws unknown_policy, std::runtime_error.
  void start(const run_options&);
  /// Tensors whose bytes could not be brought back, and why the first one's could not.
  struct lost_tensors {
    std::size_t count = 0;
    std::string why;
  };
  /// Everything comes back and is plain memory again. Throws hashes::tensor_differs where a tensor
  /// came back with other bits; all has ended then, too. Gives what is lost: nothing but where the
  /// machine has no memory, or a policy or an operator that runs again has failed.
  lost_tensors stop();
  void end_of_step();
  /// The budget is this share of what the program takes at most without one, now and whenever that
  /// grows: of `peak` bytes, or, by 0, of what the run took until now, without a limit. Makes room
  /// first; where there is none it holds all the same, and share_too_small is thrown.
  void hold_share(double share, std::size_t peak);
  /// The tensor of a storage; it becomes one where it is none. Null for a storage without bytes.
  entry* adopt(c10::StorageImpl*, const char* label);
  /// Its bytes are here now, and stay for the step; and they may leave again. O(1), O(held).
  void hold(entry&);
  void let_go(entry&);
  /// As hold, and others may write them meanwhile.
  void lend(entry&);
  /// They stay for good; `exposed`: and others may write them.
  void pin(entry&, bool exposed);

  // --- under `state`
  // ------------------------------------------------------------------------------

  [[nodiscard]] delta::manager_interface& manager() noexcept { return *manager_; }
  /// Null between runs, and while it is destroyed.
  [[nodiscard]] delta::manager_interface* manager_if_any() noexcept { return manager_.get(); }
  [[nodiscard]] managed_memory& memory() noexcept { return *memory_; }
  [[nodiscard]] tensor_table& tensors() noexcept { return tensors_; }
  [[nodiscard]] record& past() noexcept { return record_; }
  [[nodiscard]] flight_list& flights() noexcept { return flights_; }
  /// Of the run that is on, or was last; null: there was none.
  [[nodiscard]] const std::shared_ptr<memory_log>& log() const noexcept { return log_; }
  /// Room is short: lets go of what has landed, and gives the collective to wait for before another
  /// try, which is counted; null: there is none, or the caller may not wait.
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> landing_to_await(bool may_wait);
  /// Room is short, and nothing can be awaited: of a run that lifts its limit then, does so and is
  /// true; the failure is recorded. Else false.
  [[nodiscard]] bool lift_limit(const delta::budget_exceeded&);
  /// Is told of memory that is short, by the error's sentence, before the error is thrown; it may
  /// end the process. Empty: nobody is.
  std::function<void(const std::string&)> on_shortage;
  /// The program's name of a storage, for errors, while both it and the run last. O(1).
  void name(c10::StorageImpl&, tensor_name);
  /// That of a tensor; empty where there is none. O(1).
  [[nodiscard]] tensor_name name_of(delta::tensor_id) const;
  [[nodiscard]] tensor_name name_of(const c10::StorageImpl*) const;
  /// What other threads could not give back at once, and what collectives use no more.
  void drain();
  /// Bytes that count, for a kernel or a tensor to be; makes room.
  header& take(std::size_t size);
  void give_back(header&);
  /// The program uses these bytes on that stream by itself: freed, they are nobody's until that is
  /// over. False: the run does not know them.
  bool used_by(const at::DataPtr&, c10::Stream);
  /// Bytes that count no more: they have become a tensor's, whose block this is.
  delta::block leave(header&) noexcept;
  /// A tensor's bytes are PyTorch's alone: they stay when the manager frees their block. The entry
  /// goes; its tensor is still the manager's.
  void detach(entry&);
  /// As pin, of bytes that are here and whose operator is open: what was computed from them before
  /// does not come back first.
  void stay(entry&, bool exposed);
  [[nodiscard]] bool checks_replays() const noexcept { return checks_replays_; }
  /// Bytes that a kernel leaves unwritten are the same when it runs again.
  [[nodiscard]] bool clears() const noexcept { return checks_replays_ || hashes_ != nullptr; }
  /// Null: tensors are not hashed.
  [[nodiscard]] delta::hashes::hashed_storage* hashes() const noexcept { return hashes_; }
  /// This process among those that train together, for errors; -1: it is alone.
  int rank = -1;

  /// Is this thread a process group's, which runs a collective? It goes on from the operator that
  /// has begun it: below our key.
  [[nodiscard]] static bool is_groups_thread() noexcept;

  /// Frees what is behind a header, of that device's memory: from any thread, from within the
  /// manager, too.
  static void release(target&, header&) noexcept;

  /// Bytes that the operator under way has taken, now and at most; under `state`.
  struct scratch {
    std::uint64_t operation = 0;  ///< its number; 0: none is under way
    const char* label = "";       ///< lives for ever
    std::int64_t now = 0, most = 0;
    bool hidden = false;   ///< its kernel has used a tensor that is none of its arguments
    bool refused = false;  ///< its kernel was told that there is no memory, and may do with less
    /// What its kernel, in Python, may write, and a hash of the bytes before. Of the host's memory.
    struct watched_bytes {
      const entry* of;
      std::uint64_t hash;
    };
    std::vector<watched_bytes> watched;
    /// Its arguments whose addresses its kernel has taken: the next who takes one is not seen.
    std::vector<const entry*> unwatched;
  };
  scratch taken;
  /// Tensors of operators that are made of others, and under way: nobody may read them but by
  /// operators. Of runs that check; under `state`.
  struct guarded_storage {
    c10::StorageImpl* storage;
    const char* sentence;  ///< of the error
  };
  std::vector<guarded_storage> guarded;
  random_block random;
  /// While the manager allocates what the program itself asks for, outside operators; under
  /// `state`.
  bool taking_outside = false;

 private:
  session();

  std::atomic<bool> on_{false}, forked_{false}, child_{false};
  std::atomic<std::uint64_t> number_{0};
  bool checks_replays_ = false, lifts_limit_ = false;
  target* device_ = &cpu_target();
  std::unique_ptr<managed_memory> memory_;
  std::unique_ptr<struct timeline_file> told_;
  std::shared_ptr<memory_log> log_;
  std::unique_ptr<delta::manager_interface> manager_;
  delta::hashes::hashed_storage* hashes_ = nullptr;  // the manager's
  [[nodiscard]] delta::hashes::hash_options hashing();
  void let_all_go();
  void sever(entry&);
  void order_unseen(entry&);
  [[nodiscard]] delta::bytes share_of_peak() const;
  void limit(delta::bytes budget);
  void take_note_of(std::size_t more);
  void settle_late(target& of, header&);

  struct held_tensor {
    delta::tensor_id id;
    delta::manager_interface::view bytes;
  };
  std::list<held_tensor> held_;
  flight_list flights_;
  tensor_table tensors_;
  record record_;
  header counted_;  // a ring of what counts and is no tensor's
  // What the program refers to, beside its tensors, and with them at most: it takes that much
  // without a budget.
  std::size_t counted_bytes_ = 0, own_peak_ = 0;
  double share_ = 0;  // of the unmanaged peak, that the budget is; 0: it is no share
  struct named_storage {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // so that its address stays its own
    tensor_name name;
  };
  std::unordered_map<const c10::StorageImpl*, named_storage> names_;
  std::size_t names_at_most_ = 0;  // before those of dead storages go
  static std::atomic<header*> late_;
};

}  // namespace delta_torch
